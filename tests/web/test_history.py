"""Back and Forward in the browser: between what was asked and opened, not between letters."""

import pytest

from tests.web.browsing import TILE, until

pytestmark = pytest.mark.check

PAUSE_MS = 500  # of who types: what stands there is asked meanwhile


def length(page):
    return page.evaluate("history.length")


def type_slowly(page, text):
    page.focus("#q")
    page.keyboard.type(text)
    page.wait_for_timeout(PAUSE_MS)


def is_shown(page, text):
    """Wait until a sentence, or with none the library, is what the page shows and what its address says."""
    until(
        page,
        "text => document.getElementById('q').value === text && location.search === (text && `?q=${text}`)"
        " && document.querySelector('[role=status]').textContent.includes(text ? ' ms' : 'in the library')",
        text,
    )


def test_back_from_a_sentence_that_was_typed_shows_what_was_there_before(visit):
    page = visit()
    is_shown(page, "")
    before = length(page)
    type_slowly(page, "wh")
    type_slowly(page, "ite")
    is_shown(page, "white")
    assert length(page) == before + 1, "typing makes one entry"
    page.keyboard.press("Enter")
    is_shown(page, "white")
    assert length(page) == before + 1
    page.go_back()
    is_shown(page, "")
    page.go_forward()
    is_shown(page, "white")


def test_back_and_forward_lead_between_sentences_that_were_asked(visit):
    page = visit()
    is_shown(page, "")
    for text in ("white", "blue", "red"):
        page.fill("#q", "")
        type_slowly(page, text)
        page.keyboard.press("Enter")
        is_shown(page, text)
        page.reload()
        is_shown(page, text)
    page.go_back()
    is_shown(page, "blue")
    page.reload()
    is_shown(page, "blue")
    page.go_back()
    is_shown(page, "white")
    page.go_forward()
    is_shown(page, "blue")
    page.fill("#q", "")
    type_slowly(page, "green")
    page.go_back()
    is_shown(page, "blue")


def test_what_was_typed_stays_to_go_back_to_once_a_moment_was_opened(visit):
    page = visit()
    is_shown(page, "")
    type_slowly(page, "white")
    page.reload()
    is_shown(page, "white")
    page.locator(TILE).first.click()
    page.wait_for_selector("video")
    page.go_back()
    until(page, "!document.querySelector('video')")
    is_shown(page, "white")
    page.focus("#q")
    page.keyboard.press("End")
    type_slowly(page, " red")
    page.go_back()
    is_shown(page, "white")
    page.go_back()
    is_shown(page, "")
