"""The command line uses the service of its library, gets the same answers, and trusts no other service."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import untrimmed
from tests.cli.conftest import typed  # noqa: F401
from tests.served import served as on_a_socket
from untrimmed.search.library import Library
from untrimmed.search.query.hits import Hits, WeighedWord
from untrimmed.search.query.query import Cutoff, Query
from untrimmed.server.access import Access
from untrimmed.server.app import create_app
from untrimmed.server.client import ask_service
from untrimmed.server.notice import FILE, announce, find_notice


@pytest.fixture
def served(toy, world):
    """The library of `world` with a running, announced service."""
    library, access = world / "library", Access()
    with (
        on_a_socket(create_app(untrimmed.open(library), access=access)) as at,
        announce(library, "127.0.0.1", int(at.rpartition(":")[2]), access.own_token),
    ):
        yield library
    assert not (library / FILE).exists()


ASKED = [
    ["white"],
    ["white", "--json", "--limit", "2", "--moments", "2"],
    ["red", "--then", "green", "--not", "blue", "--flat"],
    ["red", "--like", "flag.mp4@0.5", "--min-score", "0.3"],
    ["red", "--min-duration", "5", "--since", "2001-02-03"],
    ["red", "--in", "/nowhere"],
    ["red", "--min-score", "9"],
    ["red", "--min-confidence", "0.5"],
    ["--image", "sea.png"],
    ["red", "--image", "sea.png", "--not", "green", "--limit", "3", "--json"],
]
SHOWN = [["flag.mp4@3"], ["sea.png", "--json", "--moments", "1"], ["sea.png", "--in", "/nowhere"]]


@pytest.mark.parametrize(
    "words", [["search", *words] for words in ASKED] + [["similar", *words] for words in SHOWN], ids=" ".join
)
def test_the_client_gets_the_answers_of_the_library(served, typed, world, tmp_path, monkeypatch, words):  # noqa: F811
    Image.fromarray(np.full((40, 60, 3), (20, 40, 255), np.uint8)).save(tmp_path / "sea.png")
    monkeypatch.chdir(tmp_path)
    words = [str(world / "videos" / word) if word.startswith("flag.mp4") else word for word in words]
    options = ["--library", served]
    alone = typed(*words, *options, "--no-service")
    monkeypatch.setattr("untrimmed.open", lambda *_, **__: pytest.fail("searched here"))
    assert typed(*words, *options) == alone


def test_the_client_gets_the_weights_of_words(served, monkeypatch):
    search, words = Library.search, (WeighedWord("a", 0.25), WeighedWord("red", 0.75))
    cutoff = Cutoff(limit=3, moments=1)
    assert ask_service(served, Query("a red"), cutoff).words == ()
    monkeypatch.setattr(Library, "search", lambda *values, **options: Hits(search(*values, **options), words=words))
    assert ask_service(served, Query("a red"), cutoff).words == words


HEAVY = {"numpy", "jaxtyping", "lance", "pyarrow", "torch", "PIL", "av", "fastapi"}


def test_a_command_that_asks_the_service_imports_nothing_heavy(served):
    code = (
        "import sys; from untrimmed.cli.app import main; sys.argv = ['untrimmed', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit as stop: print(stop.code, *sys.modules)"
    )
    words = ["search", "white", "--not", "blue", "--min-duration", "1", "--json", "--library", str(served)]
    run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    exit_code, *modules = run.stdout.rpartition("}")[2].split()
    assert (exit_code, HEAVY.intersection(modules)) == ("0", set())
    assert "untrimmed.server.client" in modules


def test_a_chosen_number_format_is_searched_in_this_process(served, typed, monkeypatch):  # noqa: F811
    monkeypatch.setattr("untrimmed.server.client.ask_service", lambda *_, **__: pytest.fail("asked the service"))
    assert typed("search", "white", "--library", served, "--precision", "float32")[0] == 0


def test_an_unknown_place_or_a_stopped_service_is_searched_in_this_process(served, typed, world):  # noqa: F811
    assert "/nowhere.mp4" in typed("search", "--like", "/nowhere.mp4@1", "--library", served)[2]
    os.truncate(served / FILE, 0)
    assert typed("search", "white", "--library", served)[0] == 0


@pytest.fixture
def notice(tmp_path):
    """The notice file of a running service, and its content."""
    with announce(tmp_path, "127.0.0.1", 4321, "secret") as is_announced:
        assert is_announced
        yield tmp_path / FILE


def test_a_notice_is_private_and_removed_with_its_service(tmp_path):
    with announce(tmp_path, "127.0.0.1", 4321, "secret"):
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        read_notice = find_notice(tmp_path)
        assert (read_notice.host, read_notice.port, read_notice.token) == ("127.0.0.1", 4321, "secret")
        with announce(tmp_path, "127.0.0.1", 1, "other") as second:
            assert not second
        assert find_notice(tmp_path).port == 4321
    assert find_notice(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_notice_of_a_killed_service_is_ignored(notice, tmp_path):
    left = notice.read_bytes()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE).write_bytes(left)
    (tmp_path / "other" / FILE).chmod(0o600)
    assert find_notice(tmp_path) is not None
    assert find_notice(tmp_path / "other") is None
    with announce(tmp_path / "other", "127.0.0.1", 99, "new"):
        assert find_notice(tmp_path / "other").port == 99


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o622])
def test_a_notice_that_others_can_read_or_write_is_ignored(notice, mode):
    notice.chmod(mode)
    assert find_notice(notice.parent) is None


FOREIGN = [{"host": "192.168.1.5"}, {"host": "evil.example"}, {"machine": "elsewhere"}, {"x": 1}]


@pytest.mark.parametrize("change", FOREIGN)
def test_a_notice_of_another_machine_is_ignored(notice, change):
    notice.write_text(json.dumps({**json.loads(notice.read_text()), **change}))
    assert find_notice(notice.parent) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "3", "\0" * 5000])
def test_a_damaged_notice_is_ignored(notice, content):
    notice.write_text(content)
    assert find_notice(notice.parent) is None


def test_links_and_pipes_are_ignored(notice, tmp_path):
    for name, make in {"link": lambda path: path.symlink_to(notice), "pipe": os.mkfifo}.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / FILE)
        assert find_notice(tmp_path / name) is None


def test_a_library_that_cannot_be_written_to_is_served_without_a_notice(tmp_path):
    with announce(tmp_path / "none", "127.0.0.1", 1, "x") as is_announced:
        assert not is_announced
    assert not (tmp_path / "none").exists()
