"""docs/research.md shows the commands of examples/research.sh, in the same order."""

import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def commands_of_the_script(folder):
    """The commands that the script prints, without running them."""
    script = (ROOT / "examples" / "research.sh").read_text(encoding="utf-8")
    call = '    "$@"\n'
    assert script.count(call) == 1, "run() prints a command, then calls it"
    printed = subprocess.run(
        ["bash", "-c", script.replace(call, ""), "research.sh", str(folder)], capture_output=True, text=True, check=True
    ).stdout
    return [line.removeprefix("$ ") for line in printed.splitlines() if line.startswith("$ ")]


def commands_of_the_page():
    page = (ROOT / "docs" / "research.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```\n(.*?)^```", page)
    text = "".join(block for block in blocks if "$ untrimmed" in block).replace("\\\n", "")
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def test_the_page_shows_the_commands_of_the_script(tmp_path):
    # The script prints arguments without quotes, so the page's are compared without them, too.
    page = [" ".join(shlex.split(command)) for command in commands_of_the_page()]
    assert page == commands_of_the_script(tmp_path / "new")
    assert len(page) > 10
