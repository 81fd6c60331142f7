"""The built page in the package is up to date, small, and fetches nothing from other sites."""

import gzip
import hashlib
import re
import runpy
from pathlib import Path

from starlette.testclient import TestClient

import untrimmed
from untrimmed.server.app import create_app

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src" / "untrimmed" / "server" / "page"
MAX_BYTES = 150_000  # compressed


def source_hash(web):
    """The hash that web/vite.config.ts writes into the page."""
    digest = hashlib.sha256()
    files = [*web.glob("src/*"), *web.glob("public/*"), web / "index.html"]
    for name, file in sorted((file.relative_to(web).as_posix(), file) for file in files):
        digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def test_the_page_is_small_and_fetches_nothing_from_other_sites():
    built = {path.name: path.read_bytes() for path in PAGE.iterdir()}
    assert {"index.html", "page.js", "page.css", "icon.svg"} == set(built)
    assert sum(len(gzip.compress(content)) for content in built.values()) < MAX_BYTES
    assert b"//" not in built["index.html"].replace(b"<!doctype html>", b"")


def test_the_files_of_the_page_are_sent_compressed(tmp_path):
    with TestClient(create_app(untrimmed.open(tmp_path)), base_url="http://localhost:8765") as client:
        sizes = {}
        for coding in ("gzip", "identity"):
            answer = client.get("/page.js", headers={"accept-encoding": coding})
            assert answer.text == (PAGE / "page.js").read_text(encoding="utf-8")
            assert answer.headers.get("content-encoding") == (coding if coding == "gzip" else None)
            sizes[coding] = int(answer.headers.get("content-length", 0)) or answer.num_bytes_downloaded
        assert sizes["gzip"] < sizes["identity"] / 2
        again = {"if-none-match": answer.headers["etag"]}
        assert client.get("/page.js", headers=again).status_code == 304


def test_the_page_is_built_from_its_current_source():
    built = (PAGE / "index.html").read_text(encoding="utf-8")
    match = re.search(r'name="source" content="(\w+)"', built)
    assert match, "run `make page`"
    assert match[1] == source_hash(ROOT / "web"), "run `make page`"


def test_the_page_has_the_current_types_and_bounds_of_the_service():
    module = runpy.run_path(str(ROOT / "web" / "service.py"))
    assert module["FILE"].read_text(encoding="utf-8") == module["service"](), "run `make page`"
