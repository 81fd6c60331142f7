"""Run the Python cells of docs/notebook.md in order and put their output into the `text` blocks below them.

`python docs/site/notebook.py` updates the page; `make.py` runs the cells again for the site. Cells run in an empty
folder and share one namespace. As in a notebook, the value of a last expression is shown.
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
    """The page with the current output of its cells, which run in a new process and folder.

    Raises: ValueError with the error of a cell.
    """
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [sys.executable, __file__, "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "XDG_DATA_HOME": folder, "COLUMNS": "110"},
        )
    if process.returncode:
        raise ValueError(f"{PAGE.name}: a cell raised an error\n{process.stderr}")
    return process.stdout


def _run_cells(text: str) -> str:
    names: dict[str, Any] = {"__name__": "__main__"}

    def with_output(cell: re.Match[str]) -> str:
        printed = _run_cell(cell["code"], names)
        block = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{cell['code']}```\n{block}"

    return CELL.sub(with_output, text)


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
        page = _run_cells(sys.stdin.read())
        sys.stdout.write(page)
    else:
        PAGE.write_text(run_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
