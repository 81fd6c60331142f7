"""What commands import: a start must not cost more than its work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search.test_index import SETTINGS, stored
from untrimmed.search.index import VideoIndex

HEAVY = {"torch", "pandas", "lancedb", "lance", "pyarrow", "numpy", "scipy", "h5py", "jaxtyping"}
START = """
import json, sys
sys.argv = ["untrimmed", *sys.argv[1:]]
from untrimmed.cli.app import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def imported(*arguments: str | Path) -> set[str]:
    """The packages that one command of a fresh process imports."""
    command = [sys.executable, "-c", START, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def library(tmp_path):
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(SETTINGS)
        index.put(stored("/v/a.mp4"))
    return tmp_path / "library"


@pytest.mark.parametrize("command", ["ls", "status"])
def test_listing_imports_nothing_heavy(library, command):
    assert not imported(command, "--library", library) & HEAVY


def test_opening_the_table_imports_neither_torch_nor_pandas_nor_lancedb(library):
    (library / "records.json").unlink()
    names = imported("ls", "--library", library)
    assert "lance" in names
    assert not names & {"torch", "pandas", "lancedb"}
