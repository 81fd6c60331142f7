"""The page in a real browser, over a library of VP9 clips with the toy encoder."""

import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import untrimmed
from tests.served import served as on_a_socket
from tests.toy import ToyEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.search.corpora.frames import FrameCorpus
from untrimmed.search.query import answer as asking
from untrimmed.search.query.confidence import Calibration, Confidence
from untrimmed.server.app import create_app

CHROMIUM = "/usr/bin/chromium"
HOSTILE = "<img src=x onerror=document.title='broken'> & <script>document.title='broken'< \u202eright\nto left"
VP9 = {"codec": "libvpx-vp9", "size": (320, 180), "fps": 25, "options": {"deadline": "realtime", "cpu-used": "8"}}
CLIPS = {
    "flag.webm": ["red", "white", "green", "white", "yellow", "red"],
    "sea.webm": ["blue", "blue", "white"],
    "sun.webm": ["yellow", "red", "yellow"],
    f"{HOSTILE}.webm": ["green", "green"],
}


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder of clips. Browsers cannot decode `old.avi`."""
    folder = tmp_path_factory.mktemp("page")
    videos = folder / "videos"
    videos.mkdir()
    for name, colours in CLIPS.items():
        write_clip(videos / name, colours, **VP9)
    write_clip(videos / "old.avi", ["yellow", "white"], size=(320, 180))
    return folder


def load_toy(*_, **__):
    return LoadedEncoder(ToyEncoder(), None)


@pytest.fixture(scope="session")
def library(world):
    """The library of the clips, which keeps its toy encoder."""
    library = untrimmed.open(world / "library")
    with pytest.MonkeyPatch.context() as patch:  # only while indexing: other tests load their own encoder
        patch.setattr(library_module, "load_encoder", load_toy)
        library.index(world / "videos")
    return library


@contextmanager
def served(library, folders=()):
    """Serve a library on this machine and yield the address."""
    with on_a_socket(create_app(library, folders=folders, warm=True)) as at:
        yield f"{at}/"


@pytest.fixture(scope="session")
def address(library):
    """The address of a service of the library."""
    with served(library) as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    if not shutil.which(CHROMIUM):
        pytest.skip(f"no browser at {CHROMIUM}; install Debian's chromium to test the page")
    playwright = pytest.importorskip("playwright.sync_api", reason="the dev group is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--autoplay-policy=no-user-gesture-required", "--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address, library, monkeypatch):
    """Open the page of a library without bins. An error in the browser's log, such as a refused script, fails the test.

    With `trouble`, logged errors are ignored, because tests make files or the service unavailable. `monkeypatch` is
    requested first, so that patches of the service are undone only after the pages are closed.
    """
    if bins := list((library.folder / "bins").glob("*.json")):  # of earlier tests
        time.sleep(0.3)  # the service may be storing a change
        for file in bins:
            file.unlink()
    contexts, errors = [], []

    def run(path="", *, at=address, width=1280, height=800, dark=False, trouble=False, **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **options
        )
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        if not trouble:
            page.on(
                "console", lambda line: errors.append(f"{line.text} {line.location}") if line.type == "error" else None
            )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(at + path)
        return page

    yield run
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def calibrated(monkeypatch):
    """Give the toy encoder a calibration, so that hits have a confidence."""
    confidence = Confidence(Calibration(10.0, 0.0), background_score=0.8)
    background = SimpleNamespace(corpus=FrameCorpus(), durations_s={}, confidence=lambda _: confidence)
    monkeypatch.setattr(asking, "background_of", lambda _: background)


@pytest.fixture
def shot():
    """Save a screenshot in the folder `UNTRIMMED_SCREENSHOTS`, if that is set."""

    def run(page, name):
        if folder := os.environ.get("UNTRIMMED_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=Path(folder) / f"{name}.png")

    return run
