"""The page where something goes wrong: what it says, and that it goes on afterwards."""

import contextlib

from tests.web.browsing import TILE, ask, until


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
    until(page, "document.querySelector('[role=status]').textContent.includes('service does not answer')")
    page.get_by_role("button", name="Index").click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    shot(page, "stopped")
    page.keyboard.press("Escape")
    page.context.set_offline(False)
    ask(page, "blue")
    assert page.locator(TILE).first.get_attribute("aria-label").startswith("sea.webm")


def test_a_service_that_stops_while_a_video_is_shown(visit):
    page = visit("?q=yellow", trouble=True)
    page.locator(f"{TILE}[aria-label^='old.avi']").first.click()
    page.locator(".screen img").wait_for()
    page.context.set_offline(True)
    page.locator(".screen").get_by_text("service does not answer").wait_for()
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
        assert page.get_by_role("button", name="Into the basket").is_enabled()
    finally:
        away.rename(file)
    page.get_by_role("button", name="Try again").click()
    until(page, "document.querySelector('video')?.readyState > 1")
