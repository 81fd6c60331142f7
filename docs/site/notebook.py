"""Run docs/notebook.md as a notebook: each cell of Python, in order, and what it prints in the block `text` below it.

`python docs/site/notebook.py` writes what came out into the page; the site is built with outputs of its own
(`make.py`). Cells run in an empty folder and in one namespace; the value of a last expression is shown, as in one.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "notebook.md"
CELL = re.compile(r"(?ms)^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?")


def run_page(text: str) -> str:
    """The page with what its cells print now, from a process and a folder of their own.

    Raises: ValueError with the error of the cell that ended with one.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [sys.executable, __file__, "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "XDG_DATA_HOME": folder, "COLUMNS": "110"},
        )
    if made.returncode:
        raise ValueError(f"{PAGE.name}: a cell ended with an error\n{made.stderr}")
    return made.stdout


def _run_here(text: str) -> str:
    names: dict[str, Any] = {"__name__": "__main__"}

    def shown(cell: re.Match[str]) -> str:
        printed = _run_cell(cell["code"], names)
        block = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{cell['code']}```\n{block}"

    return CELL.sub(shown, text)


def _run_cell(code: str, names: dict[str, Any]) -> str:
    body = ast.parse(code).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), PAGE.name, "exec"), names)
        value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names) if last is not None else None
        if value is not None:
            print(repr(value))
    return printed.getvalue()


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        page = _run_here(sys.stdin.read())
        sys.stdout.write(page)
    else:
        PAGE.write_text(run_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
