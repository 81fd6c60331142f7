"""Pages mention only existing files, modules, names, axis letters and steps of pictures."""

import ast
import re
import sys
from pathlib import Path

import pytest

import untrimmed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "untrimmed"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MADE_BY_USERS = re.compile(r"<|>|\*|^(runs|demo|data|mine|features|frames|words|ROOT|RUN|FOLDER|figures|FeatureData)\b")

ARRAYS = {"Float", "Int", "Bool", "UInt8", "Complex"}

sys.path.insert(0, str(ROOT / "docs" / "site"))
import pictures  # noqa: E402


def code_spans(text):
    """Texts in backticks outside code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text))


def exists(name):
    """Whether a dotted name is a module, or a class, function, value or member in one."""
    parts = name.split(".")
    if name.removeprefix("untrimmed.") in untrimmed.__all__:
        return True
    for size in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[1:size])
        module = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
        if module is not None:
            return defines(ast.parse(module.read_text(encoding="utf-8")).body, parts[size:])
    return False


def defines(body, names):
    if not names:
        return True
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == names[0]:
            return defines(node.body, names[1:])
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(target, ast.Name) and target.id == names[0] for target in targets):
            return len(names) == 1
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_existing_files(page):
    targets = re.findall(r'(?:\]\(|src=")([^)\s#"]+)', page.read_text(encoding="utf-8"))
    files = [target for target in targets if not target.startswith("https:")]
    assert [file for file in files if not (page.parent / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_on_a_page_exist(page):
    text = page.read_text(encoding="utf-8")
    words = [word.rstrip("/") for word in code_spans(text) if re.fullmatch(r"[\w./-]+", word)]
    paths = [word for word in words if re.search(r"\w/\w.*\.(py|yaml|npy)$", word) and not MADE_BY_USERS.search(word)]
    places = (ROOT, PACKAGE, ROOT / "docs", ROOT / "tests")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []
    names = [word for word in words if word.startswith("untrimmed.") and "/" not in word]
    names += re.findall(r'"(untrimmed\.[\w.]+)"', text)
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_selects_exist(page):
    selected = re.findall(r"pytest (?:-\S+ )*(?:slow )?(tests/\S+\.py)(?: -k (\w+))?", page.read_text(encoding="utf-8"))
    assert [(file, name) for file, name in selected if name not in (ROOT / file).read_text(encoding="utf-8")] == []


def test_the_glossary_lists_all_axis_letters():
    legend = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## The letters of axes")[2]
    listed = {name for row in re.findall(r"(?m)^\| (`.+?) \|", legend) for name in re.findall(r"`([^`]+)`", row)}
    used = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ARRAYS:
                axes = getattr(getattr(node.slice, "elts", [None])[-1], "value", None)
                used |= set(axes.split()) if isinstance(axes, str) else set()
    assert {letter for axis in used for letter in re.findall(r"[A-Z]\w*", axis)} == {
        name for name in listed if name[0].isupper()
    }


@pytest.mark.parametrize("name", pictures.FLOWS)
def test_a_picture_shows_each_step_with_existing_files(name):
    steps, _ = pictures.FLOWS[name]
    places = [place for step in steps for place in step.modules]
    assert [place for place in places if not (PACKAGE / place).exists()] == []
    picture = (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8")
    assert [place for place in places if place not in picture] == [], "draw them again: make figures"
