"""The built page in the package is what its source gives, and stays small."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src" / "untrimmed" / "server" / "page"
MOST_BYTES = 150_000  # compressed


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_page_is_small_and_fetches_nothing_from_elsewhere():
    built = contents(PAGE)
    assert {"index.html", "page.js", "page.css", "icon.svg"} == set(built)
    assert sum(len(gzip.compress(content)) for content in built.values()) < MOST_BYTES
    assert b"//" not in built["index.html"].replace(b"<!doctype html>", b"")


def test_the_page_is_built_from_its_source(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("no npm here; with Node 20 this builds web/ anew and compares")
    source = tmp_path / "web"
    shutil.copytree(ROOT / "web", source, ignore=shutil.ignore_patterns("node_modules"))
    environment = {**os.environ, "OUT": str(tmp_path / "page"), "NO_COLOR": "1"}
    run = {"cwd": source, "env": environment, "capture_output": True, "text": True}
    installed = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"], **run)
    if installed.returncode and any(word in installed.stderr for word in ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED")):
        pytest.skip("npm's registry cannot be reached")
    assert installed.returncode == 0, installed.stderr
    for script in ("check", "build"):
        made = subprocess.run(["npm", "run", script], **run)
        assert made.returncode == 0, made.stdout + made.stderr
    fresh, kept = contents(tmp_path / "page"), contents(PAGE)
    assert sorted(fresh) == sorted(kept)
    assert [name for name in fresh if fresh[name] != kept[name]] == [], "run `npm ci && npm run build` in web/"
