"""Back and Forward in the browser: steps are searches and opened moments, not letters."""

import pytest

from tests.web.browsing import TILE, until

pytestmark = pytest.mark.check

PAUSE_MS = 500  # while typing; the page searches meanwhile


def length(page):
    return page.evaluate("history.length")


def type_slowly(page, text):
    page.focus("#q")
    page.keyboard.type(text)
    page.wait_for_timeout(PAUSE_MS)


def wait_until_shown(page, text):
    """Wait until page and address show a sentence, or the library if the sentence is empty."""
    until(
        page,
        "text => document.getElementById('q').value === text && location.search === (text && `?q=${text}`)"
        " && document.querySelector('[role=status]').textContent.includes(text ? ' ms' : 'in the library')",
        text,
    )


def test_back_from_a_typed_sentence_shows_the_previous_view(visit):
    page = visit()
    wait_until_shown(page, "")
    before = length(page)
    type_slowly(page, "wh")
    type_slowly(page, "ite")
    wait_until_shown(page, "white")
    assert length(page) == before + 1, "typing makes one entry"
    page.keyboard.press("Enter")
    wait_until_shown(page, "white")
    assert length(page) == before + 1
    page.go_back()
    wait_until_shown(page, "")
    page.go_forward()
    wait_until_shown(page, "white")


def test_back_and_forward_move_between_searches(visit):
    page = visit()
    wait_until_shown(page, "")
    for text in ("white", "blue", "red"):
        page.fill("#q", "")
        type_slowly(page, text)
        page.keyboard.press("Enter")
        wait_until_shown(page, text)
        page.reload()
        wait_until_shown(page, text)
    page.go_back()
    wait_until_shown(page, "blue")
    page.reload()
    wait_until_shown(page, "blue")
    page.go_back()
    wait_until_shown(page, "white")
    page.go_forward()
    wait_until_shown(page, "blue")
    page.fill("#q", "")
    type_slowly(page, "green")
    page.go_back()
    wait_until_shown(page, "blue")


def test_back_from_a_moment_returns_to_the_typed_sentence(visit):
    page = visit()
    wait_until_shown(page, "")
    type_slowly(page, "white")
    page.reload()
    wait_until_shown(page, "white")
    page.locator(TILE).first.click()
    page.wait_for_selector("video")
    page.go_back()
    until(page, "!document.querySelector('video')")
    wait_until_shown(page, "white")
    page.focus("#q")
    page.keyboard.press("End")
    type_slowly(page, " red")
    page.go_back()
    wait_until_shown(page, "white")
    page.go_back()
    wait_until_shown(page, "")
