"""Errors on the page: their messages, and recovery afterwards."""

import contextlib
import re

import pytest

import untrimmed
from tests.server.served_child import serving
from tests.toy import write_clip
from tests.web.browsing import TILE, ask, tile_names, until
from tests.web.conftest import VP9, load_toy, served
from untrimmed.search import library as library_module

pytestmark = pytest.mark.check


def test_an_answer_that_arrives_after_going_back_is_ignored(visit):
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
    with contextlib.suppress(Exception):  # a cancelled request cannot continue
        held[0].continue_()
    page.wait_for_timeout(500)
    assert " ms" not in page.text_content("[role=status]")


def test_a_stopped_service_is_reported_and_searched_again_later(visit, shot):
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


def test_a_search_is_repeated_once_a_killed_service_has_restarted(visit, world, library):
    page = visit(trouble=True)
    with serving(library.folder, world / "videos") as (process, address):
        page.goto(f"{address}/?q=white")
        page.wait_for_selector(TILE)
        process.kill()
        process.wait()
        page.fill("#q", "blue")
        page.press("#q", "Enter")
        until(page, "document.querySelector('[role=status]').textContent.includes('service does not respond')")
        assert page.locator(".hits.stale").locator(TILE).count() > 0, "earlier hits stay"
    with serving(library.folder, world / "videos", address.rpartition(":")[2]):
        until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
        assert tile_names(page)[0].startswith("sea.webm")


def test_a_search_is_repeated_once_the_library_has_videos(visit, tmp_path, monkeypatch):
    monkeypatch.setattr(library_module, "load_encoder", load_toy)
    (tmp_path / "videos").mkdir()
    write_clip(tmp_path / "videos" / "sea.webm", ["blue"], **VP9)
    library = untrimmed.open(tmp_path / "library")
    with served(library, (tmp_path / "videos",)) as at:
        page = visit("?q=blue", at=at, trouble=True)
        page.get_by_role("heading", name="Choose a folder with videos").wait_for()
        page.locator("header").get_by_role("button", name="Index").click()
        page.get_by_role("button", name="Find new videos").click()
        until(page, "document.querySelector('dialog strong')?.textContent === 'done'")
        assert str(tmp_path / "videos") in page.locator("dialog section").first.text_content()
        page.keyboard.press("Escape")
        until(page, "document.querySelector('[role=status]').textContent.includes('1 video in')")


@pytest.mark.parametrize("video_id", ["0123456789abcdef", "zzz"])
def test_an_unknown_video_in_the_address_is_reported_beside_the_hits(visit, video_id):
    page = visit(f"?q=white&sure=900&v={video_id}&s=1&e=3", trouble=True)
    page.get_by_text("is not in the library").wait_for()
    page.get_by_role("button", name="Reset").click()  # the confidence, which this encoder does not have
    ask(page, "blue")
    assert page.get_by_text("is not in the library").count() == 0, "the address has changed"


def test_a_search_that_the_browser_cannot_send_is_not_retried(visit):
    page, attempts = visit("?q=white", trouble=True), []
    page.wait_for_selector(TILE)
    page.route("**/api/search/lines", lambda route: attempts.append(route.abort()))
    page.fill("#q", "blue")
    page.press("#q", "Enter")
    page.get_by_text("could not send this search").wait_for()
    before = len(attempts)
    page.wait_for_timeout(2500)  # an unreachable service is tried again after two seconds
    assert len(attempts) == before


def test_pictures_of_a_closed_player_are_cancelled(visit):
    page, requests = visit("?q=white"), []
    page.wait_for_selector(TILE)
    page.wait_for_load_state("networkidle")
    page.route("**/thumbnail?*", lambda route: requests.append(route.request.url))  # never answered
    page.locator(f"{TILE}[aria-label^='flag.webm']").first.evaluate("tile => tile.click()")  # without hovering
    for _ in range(100):
        if len(requests) == 3:
            break
        page.wait_for_timeout(30)
    cancelled = {url.split("/")[5] for url in requests}
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.evaluate("tile => tile.click()")
    until(page, "document.querySelector('video')?.readyState > 1")
    page.wait_for_timeout(500)
    players = [url for url in requests if "start_s=" not in url]  # tiles request pictures of their moments
    assert [url.split("/")[5] in cancelled for url in players] == [True] * 3 + [False] * 3


def test_a_service_that_stops_before_playback_is_reported(visit):
    page = visit("?q=blue", trouble=True)
    page.wait_for_selector(TILE)
    page.context.set_offline(True)
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    page.locator(".screen").get_by_text("service does not respond").wait_for()
    page.context.set_offline(False)
    until(page, "document.querySelector('video')?.readyState > 1")
    until(page, "document.querySelector('output[aria-label=Timecode]').textContent.length === 11")
    page.get_by_role("slider", name="Time in the video, with relevance").wait_for()
    pictures = "[...document.querySelectorAll('.strip img')]"
    until(page, f"{pictures}.length > 0 && {pictures}.every(image => image.naturalWidth > 0)")


def test_a_problem_is_hidden_once_the_video_plays(visit):
    page = visit("?q=blue", trouble=True)
    page.wait_for_selector(TILE)
    held = []
    page.route("**/media*", lambda route: held.append(route))
    page.route(re.compile(r"/api/videos/[0-9a-f]+$"), lambda route: route.abort())
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    problem = page.locator(".screen").get_by_text("service does not respond")
    problem.wait_for()
    page.unroute("**/media*")
    for route in held:
        route.continue_()
    until(page, "document.querySelector('[role=toolbar] [role=status]').textContent === 'Playing'")
    problem.wait_for(state="hidden")


def test_a_missing_file_is_reported_and_played_once_it_is_back(visit, world, shot):
    page = visit("?q=blue", trouble=True)
    page.wait_for_selector(TILE)
    file = world / "videos" / "sea.webm"
    away = file.rename(world / "away.webm")
    try:
        page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
        page.locator(".screen").get_by_text("connect its drive").wait_for()
        until(page, "document.querySelector('.screen img').naturalWidth > 0")
        until(page, "[...document.querySelectorAll('.strip img')].every(image => image.naturalWidth > 0)")
        shot(page, "gone")
        assert page.get_by_role("button", name="Add to bin").is_enabled()
    finally:
        away.rename(file)
    page.get_by_role("button", name="Try again").click()
    until(page, "document.querySelector('video')?.readyState > 1")


def test_waiting_runs_use_one_connection_and_a_refusal_stays_visible(visit):
    page, subscriptions = visit(trouble=True), []
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
    page.route("**/api/jobs/*/events", lambda route: subscriptions.append(route.request.url))  # never answered
    refuse = {"status": 409, "json": {"detail": "20 indexing runs are open"}}
    page.route(
        "**/api/watches", lambda route: route.fulfill(**refuse) if route.request.method == "POST" else route.continue_()
    )
    page.get_by_role("button", name="Index").click()
    panel = page.get_by_role("dialog")
    panel.locator("section").nth(6).wait_for()
    panel.get_by_role("button", name="Watch").click()
    panel.get_by_text("20 indexing runs are open").wait_for()
    page.wait_for_timeout(2500)  # the panel refreshes every two seconds
    assert panel.get_by_role("alert").text_content() == "20 indexing runs are open"
    assert [url.rpartition("/jobs/")[2] for url in subscriptions] == [f"{6:016x}/events"], "the oldest"


def test_the_page_works_without_local_storage(visit):
    page = visit()
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied') }})")
    page.reload()
    page.wait_for_selector(TILE)
    page.get_by_role("button", name="Colours:").click()
    until(page, "document.documentElement.dataset.theme === 'light'")
