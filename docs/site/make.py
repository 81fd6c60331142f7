"""Build the documentation into one static site: `make docs`, or `python docs/site/make.py [FOLDER]`.

FOLDER/docs (default: build/) gets the pages of docs/, README, CONTRIBUTING and CHANGELOG, the two pictures of the
architecture, and a page for every module with its docstrings. Links to source files become links to their pages. The
cells of notebook.md are run. A broken link, an error in a cell or a warning of the generator ends the build.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

import notebook
import pictures
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS, PACKAGE = ROOT / "docs", ROOT / "src" / "untrimmed"
FRONT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r'(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?:\s+"(?P<name>untrimmed[\w.]+)")?(?=\))')


def build(folder: Path) -> Path:
    """Build in a folder and return the folder of the finished site.

    Raises: ValueError naming page and link of a broken link.
    """
    tree = folder / "docs"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    pictures.write()
    shutil.copytree(DOCS / "figures", tree / "figures")
    for picture in DOCS.glob("*.png"):
        shutil.copy(picture, tree)
    shutil.copy(DOCS / "site" / "site.css", tree)
    for page in [*(ROOT / name for name in FRONT), *DOCS.glob("*.md")]:
        source, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        text = notebook.run_page(text) if page == notebook.PAGE else text
        (tree / _place(source)).write_text(_relinked(text, source, tree), encoding="utf-8")
    config = yaml.safe_load((DOCS / "site" / "config.yml").read_text(encoding="utf-8"))
    config["nav"].append({"Code": _write_api(tree)})
    python = config["plugins"][1]["mkdocstrings"]["handlers"]["python"]
    python["paths"], python["options"]["extensions"] = [str(PACKAGE.parent)], [str(DOCS / "site" / "examples.py")]
    (folder / "docs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", folder / "docs.yml"]
    subprocess.run(command, check=True, cwd=folder, env={**os.environ, "NO_COLOR": "1"})
    return folder / "site"


def modules() -> list[str]:
    """Paths of all modules that have pages, such as `models/base`."""
    paths = sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent != PACKAGE, path))
    names = [path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths]
    return [name for name in names if not name.rpartition("/")[2].startswith("__") or _is_documented(name)]


def _is_documented(module: str) -> bool:
    """Whether a module is an `__init__` with a docstring."""
    return module.endswith("__init__") and (PACKAGE / f"{module}.py").read_text(encoding="utf-8").startswith('"""')


def _write_api(tree: Path) -> list[dict[str, object]]:
    """Write a page for every module and return the navigation, grouped by package."""
    packages: dict[str, list[str]] = {}
    for module in modules():
        page = tree / "code" / f"{module}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        name = ".".join(["untrimmed", *module.split("/")]).removesuffix(".__init__")
        page.write_text(f"::: {name}\n", encoding="utf-8")
        packages.setdefault(module.partition("/")[0] if "/" in module else "", []).append(module)
    nav: list[dict[str, object]] = []
    for package, members in packages.items():
        pages = [{_label(module, package): f"code/{module}.md"} for module in members]
        nav += [{package: pages}] if package else pages
    return nav


def _label(module: str, package: str) -> str:
    name = module.removeprefix(f"{package}/")
    return (package or "untrimmed") if name == "__init__" else name


def _place(source: str) -> str:
    """The path of a repository's page on the site."""
    return FRONT.get(source, source.removeprefix("docs/"))


def _relinked(text: str, source: str, tree: Path) -> str:
    """The text of a page with the links of the site. Other linked files of the repository are copied."""

    def site_link(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        if not (ROOT / target).exists():
            raise ValueError(f"{source}: {target} does not exist; correct the link")
        anchor = link["anchor"] or ""
        if target.endswith(".md"):
            return _place(target) + anchor
        if target.startswith("docs/"):
            return target.removeprefix("docs/")
        if target.startswith("src/untrimmed/") and target.endswith(".py"):
            page = "code/" + target.removeprefix("src/untrimmed/").replace(".py", ".md")
            return f"{page}#{link['name']}" if link["name"] else page
        (tree / "files" / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / target, tree / "files" / target)
        return f"files/{target}"

    return LINK.sub(site_link, text)


if __name__ == "__main__":
    site = build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve())
    print(f"{site}/index.html; the site's search needs a server: python -m http.server -d {site}")
