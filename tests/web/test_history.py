"""Back and Forward in the browser: steps are searches and opened moments, not letters."""

import pytest
from PIL import Image

from tests.web.browsing import PARTS, TILE, ask, tile_names, until

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
    page.locator("button[popovertarget]:visible").first.click()
    until(page, "document.querySelector(':popover-open')")
    page.go_back()
    until(page, "!document.querySelector('video')")
    until(page, "!document.querySelector(':popover-open')")
    wait_until_shown(page, "white")
    page.focus("#q")
    page.keyboard.press("End")
    type_slowly(page, " red")
    page.go_back()
    wait_until_shown(page, "white")
    page.go_back()
    wait_until_shown(page, "")


def choose_picture(page, folder, name, colour):
    """Search by a picture of one colour, and wait for the hits."""
    before = length(page)
    Image.new("RGB", (64, 48), colour).save(folder / name)
    page.get_by_label("Similar to a picture").set_input_files(folder / name)
    wait_for_hits(page, name)
    assert length(page) == before + 1


def wait_for_hits(page, *parts):
    """Wait until the query has exactly these parts and its hits are shown."""
    until(
        page,
        "([list, parts]) => {"
        "  const chips = [...document.querySelectorAll(`${list} li`)].map((chip) => chip.textContent);"
        "  return chips.length === parts.length && parts.every((part, i) => chips[i].includes(part))"
        "    && document.querySelector('[role=status]').textContent.includes(' ms')"
        "}",
        [PARTS, parts],
    )


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_back_restores_the_picture_of_a_search(visit, tmp_path, is_reloaded):
    page = visit()
    wait_until_shown(page, "")
    choose_picture(page, tmp_path, "sea.png", (0, 0, 255))
    assert "sea.webm" in tile_names(page)[0]
    choose_picture(page, tmp_path, "sun.png", (255, 255, 0))
    first_hit = tile_names(page)[0]
    assert "sea.webm" not in first_hit
    page.locator(TILE).first.click()
    page.wait_for_selector("video")
    if is_reloaded:
        until(page, "Object.keys(sessionStorage).filter((key) => key.startsWith('untrimmed.picture')).length === 2")
        page.reload()
        wait_for_hits(page, "sun.png")
        page.wait_for_selector("video")
    page.go_back()
    until(page, "!document.querySelector('video')")
    wait_for_hits(page, "sun.png")
    assert tile_names(page)[0].split(",")[0] == first_hit.split(",")[0]  # its edges may be at exact cuts now
    page.go_back()
    wait_for_hits(page, "sea.png")
    assert "sea.webm" in tile_names(page)[0]
    page.go_back()
    wait_until_shown(page, "")
    page.go_forward()
    wait_for_hits(page, "sea.png")


def test_back_from_a_sentence_restores_the_search_by_a_picture_alone(visit, tmp_path):
    page = visit()
    wait_until_shown(page, "")
    choose_picture(page, tmp_path, "sea.png", (0, 0, 255))
    type_slowly(page, "yellow")
    wait_until_shown(page, "yellow")
    page.go_back()
    until(page, "document.getElementById('q').value === ''")
    wait_for_hits(page, "sea.png")
    assert "sea.webm" in tile_names(page)[0]


def test_many_pictures_leave_room_for_the_last_ones(visit, tmp_path):
    page = visit()
    ask(page, "white")
    for number in range(10):
        choose_picture(page, tmp_path, f"{number}.png", (0, 0, 25 * number))
        until(page, "name => Object.values(sessionStorage).some((text) => text.includes(name))", f"{number}.png")
    assert page.evaluate("Object.keys(sessionStorage).filter(key => key.startsWith('untrimmed.picture')).length") == 8
    page.reload()
    wait_for_hits(page, "9.png")
    page.go_back()
    wait_for_hits(page, "8.png")
