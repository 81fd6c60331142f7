"""A new filter is one line in the dataclass: all interfaces then have it, and it filters videos."""

import json
import subprocess
import sys
from pathlib import Path

from untrimmed.search.query import query as query_module

ROOT = Path(__file__).resolve().parents[3]
FIELD = """
    max_width: Annotated[_Whole, _at_most("width", "Widest picture.", "PIXELS", 10**5, "pixels")] = None
"""
CODE = """
import json, runpy, sys, types
from types import SimpleNamespace

file, field = sys.argv[1:3]
before, max_height, after = open(file).read().partition("    max_height: ")
module = types.ModuleType("untrimmed.search.query.query")
sys.modules[module.__name__] = module
exec(compile(before + field + max_height + after, file, "exec"), module.__dict__)

from typer.testing import CliRunner
import untrimmed
from untrimmed.cli.app import build_app
from untrimmed.cli.query_options import read_query
from untrimmed.server.agents import create_server
from untrimmed.server.client import as_json
from untrimmed.server.schemas import SearchRequest
from untrimmed.server.service import Service

service = Service(untrimmed.open("nowhere"))
tool = create_server(service)._tool_input_schema("search")
typed, _ = read_query({"text": "red", "then": None, "max_width": 640}, None)
sent = SearchRequest(**as_json(typed)).query()
print(json.dumps({
    "help": CliRunner().invoke(build_app("search"), ["search", "--help"]).output,
    "typescript": runpy.run_path(sys.argv[3])["service"](),
    "openapi": SearchRequest.model_json_schema()["$defs"]["FiltersJson"]["properties"]["max_width"]["anyOf"][0],
    "tool": tool["$defs"]["FiltersJson"]["properties"]["max_width"]["anyOf"][0],
    "admits": [sent.filters.admit(SimpleNamespace(width=width)) for width in (640, 641)],
    "words": str(sent.filters),
}))
service.close()
"""


def test_one_line_adds_a_filter_to_all_interfaces():
    command = [sys.executable, "-c", CODE, query_module.__file__, FIELD, ROOT / "web" / "service.py"]
    actual = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert "--max-width" in actual["help"]
    assert "max_width?: number | null" in actual["typescript"]
    assert '"help": "Widest picture", "unit": "pixels"' in actual["typescript"]
    assert actual["openapi"] == actual["tool"] == {"type": "integer", "minimum": 0, "maximum": 100_000}
    assert actual["admits"] == [True, False]
    assert actual["words"] == "widest picture: 640 pixels"
