"""The command `untrimmed serve`, in a process with a socket."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.cli.conftest import numbers
from untrimmed.cli import desktop
from untrimmed.server.notice import find_notice


@contextmanager
def serving(*options, **environment):
    """The process and the address that it prints."""
    with running("serve", "--port", "0", "--no-browser", *options, **environment) as started:
        yield started


@contextmanager
def running(*words, **environment):
    """The process of `untrimmed` and the first line that it prints."""
    command = [sys.executable, "-m", "untrimmed", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_serve_prints_its_address_and_ends_with_ctrl_c(tmp_path):
    with serving("--library", tmp_path / "library") as (process, address):
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address + "healthz", timeout=20) as answer:
            assert json.load(answer) == {"status": "empty", "num_videos": 0}
        assert find_notice(tmp_path / "library") is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """The environment of a desktop session. Its browser writes addresses to the file `opened`."""
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/opened"\n')
    browser.chmod(0o700)
    (tmp_path / "home" / "Films").mkdir(parents=True)
    library = tmp_path / "data" / "library"
    return {"DISPLAY": ":9", "BROWSER": str(browser), "HOME": str(tmp_path / "home"), "UNTRIMMED_LIBRARY": str(library)}


def opened(folder, count):
    """The addresses that the browser was started with."""
    deadline = time.monotonic() + 20
    while not (folder / "opened").exists() or len(addresses := (folder / "opened").read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return addresses


def visit(address, route):
    """Open an address as a browser does, then a route of the same service."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    browser.open(address, timeout=20).close()
    with browser.open(address.partition("?")[0] + route, timeout=20) as answer:
        return json.load(answer)


def test_without_arguments_a_desktop_shows_the_page_with_the_folders_of_the_user(session, tmp_path):
    library = Path(session["UNTRIMMED_LIBRARY"])
    with running(**session) as (process, address):
        (first,) = opened(tmp_path, 1)
        assert first.startswith(f"{address}?token=")
        assert find_notice(library).token not in first, "other users can read the command lines of programs"
        assert [folder["name"] for folder in visit(first, "api/browse")["folders"]] == ["Films"]
        with running(**session) as (later, same_address):
            assert (later.wait(20), same_address) == (0, address)
        second = opened(tmp_path, 2)[1]
        assert visit(second, "api/browse")["folder"]["path"] == session["HOME"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
    assert not library.exists(), "the library is created when the first video is indexed"


def test_the_page_stops_the_service_with_the_token(tmp_path):
    with serving("--library", tmp_path / "library") as (process, address):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(address + "api/stop", method="POST"), timeout=20)
        headers = {"Authorization": f"Bearer {find_notice(tmp_path / 'library').token}"}
        stop = urllib.request.Request(address + "api/stop", method="POST", headers=headers)
        with urllib.request.urlopen(stop, timeout=20) as answer:
            assert answer.status == 202
        assert process.wait(20) == 0
    assert find_notice(tmp_path / "library") is None


def test_no_browser_is_opened_on_request_or_without_a_desktop(session, tmp_path):
    with running("serve", "--no-browser", "--port", "0", **session) as (_, address):
        visit(address, "healthz")
        with running("serve", "--no-browser", **session) as (later, same_address):
            assert (later.wait(20), same_address) == (0, address)
        port = address.split(":")[2].strip("/")
        command = [sys.executable, "-m", "untrimmed", "serve", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **session})
        assert done.returncode == 2
        assert address in done.stderr, "the address of the service that uses the port"
    remote = session | {"SSH_CONNECTION": "1 2 3 4"}
    with running("serve", "--port", "0", **remote) as (_, address):
        visit(address, "healthz")
        command = [sys.executable, "-m", "untrimmed"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **remote})
        assert f"no desktop was found; the service runs, open its page: {address}" in done.stdout + done.stderr
    assert not (tmp_path / "opened").exists()


def test_without_arguments_help_is_printed_where_there_is_no_desktop_or_no_service(session):
    def first_lines(code="import untrimmed.cli.app as app; app.main()", **environment):
        command = [sys.executable, "-c", f"import sys; sys.argv = ['untrimmed']; {code}"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **session, **environment})
        assert done.returncode == 2
        return done.stdout + done.stderr

    without_desktop = first_lines(DISPLAY="", WAYLAND_DISPLAY="")
    assert "Usage" in without_desktop
    assert "no desktop was found; open the page with: untrimmed serve" in without_desktop
    missing = (
        "import importlib.util as util; util.find_spec = lambda name: None; import untrimmed.cli.app as app; app.main()"
    )
    assert "Usage" in first_lines(missing)


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "1 2 3 4"}, False),
        ("darwin", {}, True),
        ("win32", {}, True),
        ("darwin", {"SSH_CONNECTION": "1 2 3 4"}, False),
    ],
)
def test_desktops_are_recognised(monkeypatch, platform, environment, expected):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys, "platform", platform)
    assert desktop.has_desktop() == expected


def test_a_token_from_the_environment_is_required(tmp_path):
    with serving("--library", tmp_path / "library", UNTRIMMED_TOKEN="correct-horse-battery") as (_, address):
        assert address.endswith("/?token=correct-horse-battery")
        place = address.partition("?")[0] + "api/videos"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(place, timeout=20)
        request = urllib.request.Request(place, headers={"Authorization": "Bearer correct-horse-battery"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert json.load(answer)["total"] == 0


def test_public_addresses_are_refused_without_a_token(refusal, tmp_path):
    assert "--token auto" in refusal("serve", "--library", tmp_path, "--host", "0.0.0.0")


def test_shards_without_a_cluster_are_refused(refusal, tmp_path):
    assert "Ray" in refusal("serve", "--library", tmp_path, "--shards", 2)


def test_a_folder_is_watched(tmp_path):
    (tmp_path / "videos").mkdir()
    with (
        serving("--library", tmp_path / "library", "--watch", tmp_path / "videos") as (_, address),
        urllib.request.urlopen(address + "api/watches", timeout=20) as answer,
    ):
        (watch,) = json.load(answer)
    assert (watch["path"], watch["failed"]) == (str(tmp_path / "videos"), [])


def test_a_missing_folder_is_refused(refusal, tmp_path):
    assert "--watch" in refusal("serve", "--library", tmp_path, "--watch", tmp_path / "nowhere")
    assert "--videos" in refusal("serve", "--library", tmp_path, "--videos", tmp_path / "nowhere")


def test_a_port_in_use_is_refused(refusal, tmp_path):
    with serving("--library", tmp_path / "library") as (_, address):
        port = address.rstrip("/").rpartition(":")[2]
        assert "--port" in refusal("serve", "--library", tmp_path, "--port", port)


def test_mcp_for_other_machines_requires_http_and_a_token(refusal, tmp_path):
    assert "--token auto" in refusal("mcp", "--library", tmp_path, "--http", 0, "--host", "0.0.0.0")
    for option in ("--host", "--allow-host"):
        error = refusal("mcp", "--library", tmp_path, option, "0.0.0.0")
        assert [option in error, "--http PORT" in error] == [True, True]


def test_without_the_mcp_package_one_line_names_what_to_install(tmp_path):
    code = "import sys; sys.modules['mcp'] = None; from untrimmed.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "mcp", "--library", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip install -c constraints.txt '.[mcp]'" in line


def test_jobs_of_watched_folders_are_printed_and_a_notice_only_once(capsys):
    from untrimmed.cli.serve import _JobPrinter
    from untrimmed.server.jobs import IndexJob
    from untrimmed.server.schemas import FailedFile

    tell, job = _JobPrinter(), IndexJob([]).status
    failed = [FailedFile(path="/v/b.mp4", reason="/v/b.mp4: holds text, not a video; leave it out")]
    tell(job.model_copy(update={"num_done": 2, "num_failed": 1, "failed": failed, "notice": "encoder 'toy' in use"}))
    tell(job.model_copy(update={"num_removed": 1, "notice": "encoder 'toy' in use"}))
    tell(job.model_copy(update={"num_skipped": 5}))
    tell(job.model_copy(update={"num_skipped": 5, "num_copied": 2, "num_moved": 1}))
    tell(job.model_copy(update={"state": "failed", "problem": "library in use"}))
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == 6
    assert failed[0].reason in lines[0]
    assert "encoder 'toy' in use" in lines[1]
    assert [numbers(line) for line in lines[2:5]] == [[2, 0, 1], [0, 1, 0], [0, 2, 1, 0, 0]]
    assert "library in use" in lines[5]


def test_serving_a_missing_library_prints_a_note(tmp_path, capsys):
    from untrimmed.cli.serve import print_library

    print_library(tmp_path)
    serving, _ = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in serving
    (tmp_path / "library.json").write_text("{}")
    print_library(tmp_path)
    assert len(capsys.readouterr().err.splitlines()) == 1
