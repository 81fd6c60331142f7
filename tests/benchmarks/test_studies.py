"""The tables of the docs come from benchmarks/studies."""

import json
import shutil

import pytest

from benchmarks import studies


@pytest.mark.parametrize("path", studies.PAGES, ids=lambda path: path.name)
def test_pages_agree_with_the_stored_results(path):
    """After new results: python benchmarks/studies.py."""
    page = path.read_text(encoding="utf-8")
    assert studies.BLOCK.search(page)
    assert studies.generated(page) == page


def test_a_page_changes_with_the_results(tmp_path):
    folder = shutil.copytree(studies.STUDIES / "charades", tmp_path / "charades")
    page = "before\n<!-- studies: charades -->\n<!-- end of studies -->\nafter\n"
    first = studies.generated(page, tmp_path)
    assert first.startswith("before\n")
    assert first.endswith("after\n")
    assert first == studies.generated(first, tmp_path)
    run = folder / "dl_dkd-0.0003-750-0.json"
    figures = json.loads(run.read_text())
    figures["test"] = [1] * len(figures["test"])
    run.write_text(json.dumps(figures))
    assert studies.generated(first, tmp_path) != first


def test_a_block_without_results_has_a_note(tmp_path):
    page = "<!-- studies: tvr tvr_mixed -->\n<!-- end of studies -->\n"
    assert len(studies.generated(page, tmp_path)) > len(page)


def test_the_table_of_prototypes_comes_from_the_results(tmp_path):
    shutil.copytree(studies.STUDIES / "prototypes", tmp_path / "prototypes")
    page = "<!-- prototypes -->\n<!-- end of studies -->\n"
    first = studies.generated(page, tmp_path)
    assert all(cells in first for cells in ("| 253.0, ", "| 252.9, ", "174.7, 172.2 |"))
    (run,) = (tmp_path / "prototypes" / "tvr").glob("proto,model.iterations=6,*weights*.json")
    figures = json.loads(run.read_text())
    figures["test"] = [1] * len(figures["test"])
    run.write_text(json.dumps(figures))
    assert "174.7, 172.2 |" not in studies.generated(first, tmp_path)
