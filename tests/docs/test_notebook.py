"""The cells of the notebook page run, and those that print on the page print again; the site prints its own.

Sums of recalls stand as close as rounding of another processor may bring them: a query of 86 counts 1.2 at each K.
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import notebook  # noqa: E402


def sums_of_recalls(text):
    return [float(figure) for figure in re.findall(r"SumR (\d+\.\d)", text)]


@pytest.mark.check
def test_the_cells_print_where_the_page_shows_it_and_the_same_sums():
    page = notebook.PAGE.read_text(encoding="utf-8")
    now, advice = notebook.run_page(page), "run the page again: python docs/site/notebook.py"
    printed = [[bool(cell["printed"]) for cell in notebook.CELL.finditer(text)] for text in (now, page)]
    assert printed[0] == printed[1], advice
    assert len(sums_of_recalls(page)) == 12
    assert sums_of_recalls(now) == pytest.approx(sums_of_recalls(page), abs=5), advice


def test_an_error_in_a_cell_ends_the_build():
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        notebook.run_page("```python\n1 / 0\n```\n")
