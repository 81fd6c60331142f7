"""The page where something goes wrong: what it says, and that it goes on afterwards."""

import contextlib

import pytest

import untrimmed
from tests.server.served_child import serving
from tests.toy import write_clip
from tests.web.browsing import TILE, ask, tile_names, until
from tests.web.conftest import VP9, load_toy, served
from untrimmed.search import library as library_module

pytestmark = pytest.mark.check


def test_an_answer_that_comes_after_going_back_is_dropped(visit):
    page, held = visit(), []
    page.wait_for_selector(TILE)
    page.route("**/api/search/lines", lambda route: held.append(route))
    page.fill("#q", "white")
    page.press("#q", "Enter")
    until(page, "location.search === '?q=white'")
    while not held:
        page.wait_for_timeout(30)
    page.evaluate("history.back()")
    until(page, "location.search === ''")
    with contextlib.suppress(Exception):  # what is given up cannot go on
        held[0].continue_()
    page.wait_for_timeout(500)
    assert " ms" not in page.text_content("[role=status]")


def test_a_service_that_has_stopped_is_named_and_found_again(visit, shot):
    page = visit("?q=white", trouble=True)
    page.wait_for_selector(TILE)
    page.context.set_offline(True)
    page.fill("#q", "blue")
    page.press("#q", "Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes('service does not respond')")
    page.get_by_role("button", name="Index").click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    shot(page, "stopped")
    page.keyboard.press("Escape")
    page.context.set_offline(False)
    ask(page, "blue")
    assert page.locator(TILE).first.get_attribute("aria-label").startswith("sea.webm")


def test_a_service_whose_process_ends_is_named_and_found_again_once_another_has_begun(visit, world, library):
    page = visit(trouble=True)
    with serving(library.folder, world / "videos") as (process, address):
        page.goto(f"{address}/?q=white")
        page.wait_for_selector(TILE)
        process.kill()
        process.wait()
        page.fill("#q", "blue")
        page.press("#q", "Enter")
        until(page, "document.querySelector('[role=status]').textContent.includes('service does not respond')")
        assert page.locator("ol.stale").locator(TILE).count() > 0, "what was found before stays"
    with serving(library.folder, world / "videos", address.rpartition(":")[2]):
        until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
        assert tile_names(page)[0].startswith("sea.webm")


def test_a_library_that_is_filled_is_asked_once_more(visit, tmp_path, monkeypatch):
    monkeypatch.setattr(library_module, "load_encoder", load_toy)
    (tmp_path / "videos").mkdir()
    write_clip(tmp_path / "videos" / "sea.webm", ["blue"], **VP9)
    library = untrimmed.open(tmp_path / "library")
    with served(library, (tmp_path / "videos",)) as at:
        page = visit("?q=blue", at=at, trouble=True)
        page.get_by_text("no library here").wait_for()
        page.get_by_role("button", name="Index").click()
        page.get_by_role("button", name="Find new videos").click()
        until(page, "document.querySelector('dialog strong')?.textContent === 'done'")
        assert str(tmp_path / "videos") in page.locator("dialog section").first.text_content()
        page.keyboard.press("Escape")
        until(page, "document.querySelector('[role=status]').textContent.includes('1 video in')")


@pytest.mark.parametrize("video_id", ["0123456789abcdef", "zzz"])
def test_an_address_of_no_video_is_told_beside_the_hits(visit, video_id):
    page = visit(f"?q=white&sure=900&v={video_id}&s=1&e=3", trouble=True)
    page.get_by_text("is not in the library").wait_for()
    page.get_by_label("Minimum confidence").fill("0")
    ask(page, "blue")
    assert page.get_by_text("is not in the library").count() == 0, "the address is another"


def test_a_question_that_cannot_be_sent_is_not_sent_for_ever(visit):
    page, tried = visit("?q=white", trouble=True), []
    page.wait_for_selector(TILE)
    page.route("**/api/search/lines", lambda route: tried.append(route.abort()))
    page.fill("#q", "blue")
    page.press("#q", "Enter")
    page.get_by_text("could not send this search").wait_for()
    before = len(tried)
    page.wait_for_timeout(2500)  # a service that was silent is asked again after two seconds
    assert len(tried) == before


def test_pictures_of_a_player_that_was_left_are_given_up(visit):
    page, asked = visit("?q=white"), []
    page.wait_for_selector(TILE)
    page.wait_for_load_state("networkidle")
    page.route("**/frame?*short_side=90", lambda route: asked.append(route.request.url))  # answered by nobody
    page.locator(f"{TILE}[aria-label^='flag.webm']").first.click()
    for _ in range(100):
        if len(asked) == 3:
            break
        page.wait_for_timeout(30)
    left = {url.split("/")[5] for url in asked}
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    until(page, "document.querySelector('video')?.readyState > 1")
    page.wait_for_timeout(500)
    assert [url.split("/")[5] in left for url in asked] == [True] * 3 + [False] * 3


def test_a_service_that_stops_while_a_video_is_shown(visit):
    page = visit("?q=yellow", trouble=True)
    page.locator(f"{TILE}[aria-label^='old.avi']").first.click()
    page.locator(".screen img").wait_for()
    page.context.set_offline(True)
    page.locator(".screen").get_by_text("service does not respond").wait_for()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    page.locator(".screen img").wait_for()


def test_a_file_that_is_gone_is_named_and_played_once_it_is_back(visit, world, shot):
    page = visit("?q=blue", trouble=True)
    page.wait_for_selector(TILE)
    file = world / "videos" / "sea.webm"
    away = file.rename(world / "away.webm")
    try:
        page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
        page.locator(".screen").get_by_text("cannot be opened").wait_for()
        shot(page, "gone")
        assert page.get_by_role("button", name="Add to bin").is_enabled()
    finally:
        away.rename(file)
    page.get_by_role("button", name="Try again").click()
    until(page, "document.querySelector('video')?.readyState > 1")


def test_runs_that_wait_take_no_connections_and_a_refusal_stays_to_be_read(visit):
    page, heard = visit(trouble=True), []
    job = {
        "state": "waiting",
        "paths": [],
        "notice": None,
        "started_at": None,
        "position": 0,
        "total": 0,
        "num_done": 0,
        "num_skipped": 0,
        "num_failed": 0,
        "failed": [],
    }
    waiting = [{**job, "job_id": f"{number:016x}"} for number in range(7)]
    page.route("**/api/jobs", lambda route: route.fulfill(json=waiting))
    page.route("**/api/jobs/*/events", lambda route: heard.append(route.request.url))  # answered by nobody
    refuse = {"status": 409, "json": {"detail": "20 indexing runs are open"}}
    page.route(
        "**/api/watches", lambda route: route.fulfill(**refuse) if route.request.method == "POST" else route.continue_()
    )
    page.get_by_role("button", name="Index").click()
    panel = page.get_by_role("dialog")
    panel.locator("section").nth(6).wait_for()
    panel.get_by_role("button", name="Watch").click()
    panel.get_by_text("20 indexing runs are open").wait_for()
    page.wait_for_timeout(2500)  # the panel looks every two seconds
    assert panel.get_by_role("alert").text_content() == "20 indexing runs are open"
    assert [url.rpartition("/jobs/")[2] for url in heard] == [f"{6:016x}/events"], "the oldest: a browser has six"


def test_a_browser_that_may_remember_nothing_shows_the_page_all_the_same(visit):
    page = visit()
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied') }})")
    page.reload()
    page.wait_for_selector(TILE)
    page.get_by_role("button", name="Colours:").click()
    until(page, "document.documentElement.dataset.theme === 'light'")
