"""The cells of the notebook page run, and print what stands below them, but for digits; the site prints its own."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import notebook  # noqa: E402


def without_digits(text):
    return re.sub(r"\d+(\.\d+)?", "0", text)


def test_the_cells_print_what_the_page_shows():
    page = notebook.PAGE.read_text(encoding="utf-8")
    advice = "run the page again: python docs/site/notebook.py"
    assert without_digits(notebook.run_page(page)) == without_digits(page), advice


def test_an_error_in_a_cell_ends_the_build():
    with pytest.raises(ValueError, match=r"(?s)a cell ended with an error.*ZeroDivisionError"):
        notebook.run_page("```python\n1 / 0\n```\n")
