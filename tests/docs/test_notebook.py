"""The cells of the notebook page run and print the same kind of output as on the page.

Sums of recalls may differ by the rounding of another processor: one of 86 queries counts 1.2 at each K.
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
def test_the_cells_print_as_on_the_page():
    page = notebook.PAGE.read_text(encoding="utf-8")
    advice = "run the page again: python docs/site/notebook.py"
    output = notebook.run_page(page)
    printed = [[bool(cell["printed"]) for cell in notebook.CELL.finditer(text)] for text in (output, page)]
    assert printed[0] == printed[1], advice
    assert len(sums_of_recalls(page)) == 6
    assert sums_of_recalls(output) == pytest.approx(sums_of_recalls(page), abs=5), advice


def test_an_error_in_a_cell_ends_the_build():
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        notebook.run_page("```python\n1 / 0\n```\n")
