"""The documentation builds without warnings, fetches nothing from other sites, and leads to the code in two clicks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.check

pytest.importorskip("zensical", reason="the docs group is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    process = subprocess.run(
        [sys.executable, ROOT / "docs" / "site" / "make.py", folder],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return folder / "site"


def links(page):
    targets = re.findall(r'href="([^"#:]+\.html(?:#[^"]+)?)"', page.read_text(encoding="utf-8"))
    return [link.removeprefix("./") for link in targets]


def test_every_page_of_the_repository_is_in_the_navigation_and_every_module_has_a_page(site):
    navigation = (ROOT / "docs" / "site" / "config.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    assert [
        page for page in pages if f": {page}\n" not in navigation or not (site / page).with_suffix(".html").is_file()
    ] == []
    package = ROOT / "src" / "untrimmed"
    modules = [path.relative_to(package) for path in package.rglob("*.py") if not path.name.startswith("__")]
    assert [module for module in modules if not (site / "code" / module).with_suffix(".html").is_file()] == []


@pytest.mark.parametrize(
    "place",
    [
        "code/models/base.html#untrimmed.models.base.RetrievalModel.forward",
        "code/search/library.html#untrimmed.search.library.Library.search",
    ],
)
def test_two_clicks_lead_from_the_first_page_to_the_code_of_losses_and_moments(site, place):
    assert "architecture.html" in links(site / "index.html")
    assert place in links(site / "architecture.html")
    file, _, anchor = place.partition("#")
    assert f'id="{anchor}"' in (site / file).read_text(encoding="utf-8")


def test_reading_fetches_nothing_from_other_sites(site):
    pattern = (
        r'<(?:script|img|iframe)[^>]+src="https?:[^"]*|<link[^>]+rel="(?:stylesheet|preload)"[^>]+href="https?:[^"]*'
    )
    assert [match for page in site.rglob("*.html") for match in re.findall(pattern, page.read_text("utf-8"))] == []
