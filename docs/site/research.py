"""Run examples/research.sh and put its output into the transcripts of docs/research.md.

`python docs/site/research.py` updates the page, in a few minutes on two cores; `research.py FILE` uses the output of an
earlier run. The page shows some lines of the output, and `...` for the others: the line after it decides where the
output continues. A line of the page is found in the output by its text without figures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "research.md"
SCRIPT = ROOT / "examples" / "research.sh"
TRANSCRIPT = re.compile(r"(?ms)^```\n(?=\$ untrimmed)(?P<lines>.*?)^```\n")
COMMAND = re.compile(r"(?m)^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<printed>(?:(?!\$ ).*\n)*)")
FIGURE = re.compile(r"[0-9a-f]{12}\b|< ?[\d.]+|[-+]?(?<![a-z])\d+(?:[.:]\d+)*")


def run_script() -> str:
    """The output of the script in a new folder, with paths relative to that folder."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
        environment |= {"XDG_DATA_HOME": folder, "COLUMNS": "110"}
        process = subprocess.run(
            ["bash", str(SCRIPT), f"{folder}/research"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            env={**os.environ, **environment},
        )
        return process.stdout.replace(f"{os.path.realpath(folder)}/research/", "").replace(f"{folder}/research/", "")


def with_output(page: str, output: str) -> str:
    """The page with the figures in the script's output.

    Raises: ValueError with a line of the page that its command did not print.
    """
    printed = iter(match["printed"].splitlines() for match in COMMAND.finditer(output))

    def updated(transcript: re.Match[str]) -> str:
        lines = COMMAND.sub(lambda command: _updated_command(command, next(printed, [])), transcript["lines"])
        return f"```\n{lines}```\n"

    return TRANSCRIPT.sub(updated, page)


def _updated_command(command: re.Match[str], printed: list[str]) -> str:
    rest = iter(printed)
    lines = [
        line if line.strip() in ("", "...") else _same_line(line, rest) for line in command["printed"].splitlines()
    ]
    return "".join(f"{line}\n" for line in (f"$ {command['command']}", *lines))


def _same_line(line: str, rest: Iterator[str]) -> str:
    """The next line of the output with the same text."""
    for candidate in rest:
        if _text(candidate) == _text(line):
            return candidate.rstrip()
    raise ValueError(f"{PAGE.name}: {SCRIPT.name} does not print {line.strip()!r}; correct the page")


def _text(line: str) -> str:
    """A line without figures, rules and repeated blanks."""
    return " ".join(FIGURE.sub("#", re.sub(r"[─│]", " ", line)).split())


if __name__ == "__main__":
    output = Path(sys.argv[1]).read_text(encoding="utf-8") if sys.argv[1:] else run_script()
    PAGE.write_text(with_output(PAGE.read_text(encoding="utf-8"), output), encoding="utf-8")
