"""From an empty library to the first hit without a terminal: choose a folder, watch the progress, search meanwhile."""

import re
import threading

import pytest

import untrimmed
from tests.served import served
from tests.toy import ToyEncoder, write_clip
from tests.web.browsing import TILE, tile_names, until
from tests.web.conftest import VP9
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.server.access import Access, make_pass
from untrimmed.server.app import create_app

pytestmark = pytest.mark.check


class WaitingEncoder(ToyEncoder):
    """An encoder that waits for permission after the first video."""

    def __init__(self):
        super().__init__()
        self.may = threading.Event()

    def encode_frames(self, frames):
        assert self.num_encoded == 0 or self.may.wait(60)
        return super().encode_frames(frames)


@pytest.fixture
def encoder(monkeypatch):
    encoder = WaitingEncoder()
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(encoder, None))
    yield encoder
    encoder.may.set()


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    for folder in ("Desktop", "Films/Holiday 2025", "Films/Rushes", "Music", ".cache"):
        (home / folder).mkdir(parents=True)
    write_clip(home / "Films" / "Holiday 2025" / "beach.webm", ["red"], **VP9)
    write_clip(home / "Films" / "Rushes" / "day 2.webm", ["red", "blue"], **VP9)
    (home / "Films" / "Rushes" / "notes.mp4").write_text("no video")
    return home


@pytest.fixture
def address(encoder, home, tmp_path):
    """The address that `untrimmed` opens in the browser. It works once."""
    access = Access()
    with served(create_app(untrimmed.open(tmp_path / "library"), roots=(home,), access=access)) as at:
        yield f"{at}/?token={make_pass(access.own_token)}"


def drop(page, name):
    page.evaluate(
        """name => {
          const data = new DataTransfer()
          data.items.add(new File(['x'], name))
          const zone = document.querySelector('[aria-label=Folders]')
          zone.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))
        }""",
        name,
    )


def test_a_user_chooses_a_folder_and_finds_a_moment_while_it_is_indexed(visit, address, encoder, shot):
    page = visit(at=address)
    page.get_by_role("heading", name="Choose a folder with videos").wait_for()
    shot(page, "first_run_light")
    page.get_by_role("button", name="Films", exact=True).click()
    page.get_by_role("button", name="Holiday 2025", exact=True).wait_for()
    assert page.get_by_text("1 video", exact=True).count() == 1
    assert page.get_by_text("2 videos", exact=True).count() == 1, "a suffix counts; the content is read later"
    page.get_by_role("button", name="Index this folder").click()
    page.wait_for_selector(TILE)  # the first video, while the second one is encoded
    assert [name.partition(".")[0] for name in tile_names(page)] == ["beach"]
    page.locator("#q").click()
    page.keyboard.insert_text("red")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert len(tile_names(page)) == 1
    page.get_by_role("button", name="Indexing 1/3").click()
    panel = page.get_by_role("dialog")
    panel.get_by_role("button", name="Pause").click()
    panel.get_by_role("button", name="Continue").click()
    shot(page, "indexing_light")
    encoder.may.set()
    panel.get_by_text("2 new, 0 already indexed, 1 failed").wait_for()
    panel.get_by_text("1 file could not be read").click()
    panel.get_by_text("notes.mp4").wait_for()
    shot(page, "indexed_light")
    panel.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Search again").click()
    until(page, f"document.querySelectorAll('{TILE}').length > 1")
    page.locator(TILE).first.click()
    until(page, "document.querySelector('video')?.readyState > 1")


def test_a_run_is_cancelled_and_a_folder_is_removed_after_a_question(visit, address, encoder):
    page = visit(at=address)
    page.get_by_role("button", name="Index Films").click()
    page.wait_for_selector(TILE)
    page.get_by_role("button", name="Indexing").click()
    panel = page.get_by_role("dialog")
    panel.get_by_role("button", name="Cancel", exact=True).click()
    encoder.may.set()
    panel.locator("strong", has_text="cancelled").wait_for()
    panel.get_by_role("button", name=re.compile("^Remove .*Films")).click()
    question = panel.get_by_text(re.compile(r"Remove (1 video|2 videos) from the library\?"))
    question.wait_for()  # the second video may be finished when the run stops
    panel.get_by_role("button", name="Keep").click()
    panel.get_by_role("button", name=re.compile("^Remove .*Films")).click()
    panel.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("heading", name="Choose a folder with videos", include_hidden=True).wait_for(state="attached")


def test_a_search_in_an_empty_library_still_offers_folders(visit, address):
    page = visit(at=address)
    page.get_by_role("heading", name="Choose a folder with videos").wait_for()
    page.locator("#q").fill("red")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('q=red')")
    page.get_by_role("heading", name="Choose a folder with videos").wait_for()


def test_the_service_is_stopped_after_a_question(visit, address):
    page = visit(at=address)
    page.route("**/api/stop", lambda route: route.fulfill(status=202, json={"is_stopping": True}))
    page.get_by_role("button", name="Index", exact=True).last.wait_for()
    page.locator("header").get_by_role("button", name="Index", exact=True).first.click()
    panel = page.get_by_role("dialog")
    panel.get_by_role("button", name="Stop untrimmed").click()
    panel.get_by_role("button", name="Stop", exact=True).click()
    panel.get_by_text("The service has stopped").wait_for()


def test_a_dropped_folder_or_video_is_found_by_its_name(visit, address, encoder):
    encoder.may.set()
    page = visit(at=address)
    page.get_by_role("button", name="Films", exact=True).wait_for()
    drop(page, "nowhere.mp4")
    page.get_by_text("No folder or video here is called “nowhere.mp4”").wait_for()
    drop(page, "day 2.webm")
    page.get_by_role("button", name="Index Rushes").click()
    page.wait_for_selector(TILE)
    assert [name.partition(".")[0] for name in tile_names(page)] == ["day 2"]


def test_without_the_token_the_page_explains_how_to_open_it(visit, address, home):
    page = visit(at=address.partition("?")[0], trouble=True)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "`untrimmed`" in alert.text_content()
    assert page.get_by_role("button", name="Films").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_view_fits_and_axe_finds_nothing_serious(visit, address, dark, width, shot):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(at=address, dark=dark, width=width, height=844 if width == 390 else 800)
    page.get_by_role("button", name="Films", exact=True).click()
    page.get_by_role("button", name="Rushes", exact=True).wait_for()
    shot(page, f"first_run_{width}_{'dark' if dark else 'light'}")
    violations = [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    page.get_by_role("button", name="Index this folder").click()
    page.wait_for_selector(TILE)
    if width == 390:
        page.get_by_role("button", name="Menu").click()
    page.get_by_role("button", name="Indexing").click()
    page.get_by_role("dialog").get_by_role("progressbar").wait_for()
    shot(page, f"indexing_{width}_{'dark' if dark else 'light'}")
    violations += [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
