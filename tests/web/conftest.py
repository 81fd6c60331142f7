"""The page in a real browser, over a library of VP9 clips with the toy encoder."""

import os
import shutil
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
    """A folder of clips; `old.avi` no browser decodes."""
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
    """The library of the clips; it keeps the encoder that it indexed with."""
    library = untrimmed.open(world / "library")
    with pytest.MonkeyPatch.context() as patch:  # until then only: other tests of this process load theirs
        patch.setattr(library_module, "load_encoder", load_toy)
        library.index(world / "videos")
    return library


@contextmanager
def served(library, folders=()):
    """The address of a service of a library, on a socket of this machine."""
    with on_a_socket(create_app(library, folders=folders, warm=True)) as at:
        yield f"{at}/"


@pytest.fixture(scope="session")
def address(library):
    """Where the service answers."""
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
def visit(browser, address, monkeypatch):
    """Open the page; what a page logs as an error, a refused script or style among them, fails the test.

    With `trouble`, files or the service are to be missed: the browser logs each of them. What a test has patched of the
    service is put back after its pages are closed, for a page may still be asking: hence `monkeypatch`, set up before.
    """
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
def chances(monkeypatch):
    """The toy encoder has been calibrated, so that hits have chances."""
    chance = Confidence(Calibration(10.0, 0.0), background_score=0.8)
    background = SimpleNamespace(corpus=FrameCorpus(), durations_s={}, confidence=lambda _: chance)
    monkeypatch.setattr(asking, "background_of", lambda _: background)


@pytest.fixture
def shot():
    """Keep a picture of the page where `UNTRIMMED_SCREENSHOTS` says, to be looked at."""

    def run(page, name):
        if folder := os.environ.get("UNTRIMMED_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=Path(folder) / f"{name}.png")

    return run
