"""The bin in Debian's Chromium, and whole sessions by keyboard and by touch."""

import csv
import io
import json
import time
from pathlib import Path

import pytest

from tests.web.browsing import TILE, seconds_in, tile_names, until
from untrimmed.search.store.records import checksum

pytestmark = pytest.mark.check

STATUS = "document.querySelector('[role=toolbar] [role=status]').textContent"
ITEMS = "section[aria-label=Bin] .item"
FILE_STARTS = {  # by name of the format in the menu
    "Clips ZIP": b"PK", "Table CSV": b"video,", "Table JSON": b'{\n  "moments"', "Subtitles SRT": b"1\n00:00:",
    "Chapters FFmpeg": b";FFMETADATA1", "DaVinci Resolve, Avid EDL": b"TITLE:", "OpenTimelineIO OTIO": b'{\n    "OTIO',
    "Subtitles VTT": b"WEBVTT", "Premiere Pro XML": b"<?xml",
    "DaVinci Resolve, Final Cut Pro FCPXML": b"<?xml", "Kdenlive project": b"<?xml",
}  # fmt: skip


def stored_bins(page):
    """The bins of the service, as {name: starts of moments}. Errors do not enter the browser's log."""
    address = page.url.split("?")[0] + "api/bins"
    bins = [page.request.get(f"{address}/{item['bin_id']}") for item in page.request.get(address).json()["bins"]]
    # a bin may be deleted between the two requests
    return {
        item["name"]: [moment["start_s"] for moment in item["moments"]]
        for item in (answer.json() for answer in bins if answer.ok)
    }


def until_stored(page, expected):
    deadline = time.monotonic() + 20
    while (stored := stored_bins(page)) != expected:
        assert time.monotonic() < deadline, (stored, expected)
        page.wait_for_timeout(50)


def until_saved(page):
    until(page, "document.querySelector('section[aria-label=Bin]').ariaBusy === 'false'")


def names(page):
    return page.locator(ITEMS).evaluate_all("items => items.map(item => item.ariaLabel.replace(/^\\d+: /, ''))")


def with_three(visit, **options):
    """A page whose bin has the first three moments of a sentence."""
    page = visit("?q=white", **options)
    page.locator(TILE).nth(2).wait_for()
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    for number in range(3):
        with page.expect_response(lambda response: "/edges?" in response.url):
            page.locator(TILE).nth(number).click()
        page.wait_for_timeout(100)
        page.keyboard.press("b")
        until(page, f"document.querySelectorAll('{ITEMS}').length === {number + 1}")
    return page


def test_the_bin_survives_a_reload_and_exports_all_formats(visit, tmp_path):
    page = visit("?q=white")
    with page.expect_response(lambda response: "/edges?" in response.url):  # the answer may move the moment
        page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()  # the browser can play it
    page.get_by_role("button", name="Add to bin").click()
    page.get_by_label("Note", exact=True).fill('a, "note"')
    page.get_by_label("Note", exact=True).press("Enter")
    until(page, f"document.querySelector('{ITEMS}').title.includes('note')")
    until_saved(page)
    page.reload()
    page.wait_for_selector(ITEMS)
    for form, start in FILE_STARTS.items():
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=form, exact=True).click()
        file = tmp_path / form
        download.value.save_as(file)
        archive = file.read_bytes().startswith(b"PK")  # archives of several formats have different names
        assert download.value.suggested_filename.startswith("Bin_" if archive else "Bin."), "the name of the bin"
        assert file.read_bytes().startswith(start), form
        page.wait_for_timeout(300)  # Chromium ignores the eleventh download of a page within a second
    rows = list(csv.reader(io.StringIO((tmp_path / "Table CSV").read_text(), newline="")))
    assert rows[1][3] == 'a, "note"'
    page.keyboard.press("e")
    default = "document.querySelector('footer option[value=\"\"]')"
    until(page, f"/\\b25\\b/.test({default}.textContent)")  # the rate of the file
    page.get_by_label("Frame rate").select_option("29.97df")
    with page.expect_download() as download:
        page.get_by_role("button", name="Table CSV").click()
    assert "30000/1001" in download.value.path().read_text()


def test_an_export_leaves_out_moments_of_removed_videos(visit, library):
    page = visit("?q=white", trouble=True)  # the removed video has no picture
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    page.get_by_role("button", name="Add to bin").click()
    page.wait_for_selector(ITEMS)
    until_saved(page)
    (file,) = (library.folder / "bins").glob("*.json")
    stored = json.loads(file.read_text())
    del stored["checksum"]
    stored["moments"].append(stored["moments"][0] | {"video_id": "0" * 16, "path": "/gone/away.webm"})
    file.write_text(json.dumps(stored | {"checksum": checksum(stored)}))
    page.reload()
    page.locator(f"{ITEMS}.missing").wait_for()
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Table CSV").click()
    assert len(download.value.path().read_text().splitlines()) == 2
    page.get_by_text("without 1 moment").wait_for()


def test_a_note_is_stored_if_play_all_opens_the_next_moment(visit):
    page = visit("?q=white")
    for number, name in enumerate(("flag.webm", "sea.webm"), start=1):
        page.locator(f"{TILE}[aria-label^='{name}']").first.click()
        page.keyboard.press("b")
        until(page, f"document.querySelectorAll('{ITEMS}').length === {number}")
    page.keyboard.press("Shift+P")
    until(page, "document.querySelector('video')?.ariaLabel === 'flag.webm'")
    page.get_by_label("Note", exact=True).click()
    page.keyboard.type("x")
    until(page, "document.querySelector('video')?.ariaLabel === 'sea.webm'")
    notes = f"[...document.querySelectorAll('{ITEMS}')].map(item => item.title)"
    until(page, f"{notes}[0].includes('x') && !{notes}[1].includes('x')")


def test_moments_are_reordered_by_dragging_and_keys_and_each_change_is_undone(visit, shot):
    page = with_three(visit)
    before = names(page)
    first, last = (page.locator(ITEMS).nth(number).bounding_box() for number in (0, 2))
    page.mouse.move(first["x"] + 50, first["y"] + 20)
    page.mouse.down()
    page.mouse.move(last["x"] + 70, last["y"] + 20, steps=8)
    shot(page, "bin_drag")
    page.mouse.up()
    assert names(page) == [before[1], before[2], before[0]]
    page.locator(ITEMS).nth(2).focus()
    page.keyboard.press("Shift+ArrowLeft")
    assert names(page) == [before[1], before[0], before[2]]
    until(page, f"document.activeElement === document.querySelectorAll('{ITEMS}')[1]")
    page.keyboard.press("Delete")
    assert names(page) == [before[1], before[2]]
    page.get_by_role("button", name="Undo").click()
    assert names(page) == [before[1], before[0], before[2]]
    page.get_by_role("button", name="Redo").click()
    assert names(page) == [before[1], before[2]]
    page.keyboard.press("Control+z")
    assert names(page) == [before[1], before[0], before[2]]
    for expected in ([before[1], before[2], before[0]], before, before[:2]):
        page.keyboard.press("Control+z")
        assert names(page) == expected
    until_saved(page)
    page.reload()
    page.wait_for_selector(ITEMS)
    assert names(page) == before[:2]


def moments_in_bin(page):
    (item,) = page.request.get(page.url.split("?")[0] + "api/bins").json()["bins"]
    return page.request.get(f"{page.url.split('?')[0]}api/bins/{item['bin_id']}").json()["moments"]


def test_a_note_is_stored_if_the_page_is_reloaded_while_it_is_typed(visit):
    page = with_three(visit)
    until_saved(page)
    page.get_by_label("Note", exact=True).fill("waves at dusk")
    page.reload()
    until(page, f"document.querySelectorAll('{ITEMS}').length === 3")
    assert moments_in_bin(page)[2]["note"] == "waves at dusk"
    until(page, f"document.querySelectorAll('{ITEMS}')[2].title.includes('waves')")


def test_a_moment_that_cannot_be_opened_is_reported_next_to_the_bin(visit):
    page = with_three(visit, trouble=True)
    page.route("**/api/videos/*", lambda route: route.abort())
    page.locator(ITEMS).first.click()
    page.locator(".notice").get_by_text("does not respond").wait_for()


def test_a_moment_of_the_bin_is_trimmed_in_place_and_the_trim_is_undone_and_redone(visit):
    page = with_three(visit)
    before = names(page)
    page.locator(ITEMS).nth(1).click()
    until(page, f"document.querySelectorAll('{ITEMS}')[1].classList.contains('open')")
    until_saved(page)
    first_s = seconds_in(page.url, "e")
    page.keyboard.press("}")
    page.keyboard.press("}")
    last_s = seconds_in(page.url, "e")
    assert last_s < first_s
    for key, expected_s in (
        ("Control+z", None),
        ("Control+z", first_s),
        ("Control+y", None),
        ("Control+Shift+Z", last_s),
    ):
        page.keyboard.press(key)
        page.get_by_text("Undone: Trim" if key == "Control+z" else "Redone: Trim").wait_for()
        until(page, f"document.querySelectorAll('{ITEMS}')[1].classList.contains('open')")
        if expected_s:
            assert seconds_in(page.url, "e") == pytest.approx(expected_s, abs=0.001)
    until_saved(page)
    assert moments_in_bin(page)[1]["end_s"] == pytest.approx(last_s, abs=0.001)
    assert [names(page)[0], names(page)[2]] == [before[0], before[2]]


def test_undo_reaches_a_moment_of_the_bin_that_was_opened_again(visit):
    page = with_three(visit)

    def open_item(number):
        page.locator(ITEMS).nth(number).click()
        until(page, f"document.querySelectorAll('{ITEMS}')[{number}].classList.contains('open')")
        until(page, "document.querySelector('output[aria-label=Timecode]').textContent.length === 11")

    open_item(1)
    before_s = seconds_in(page.url, "e")
    page.keyboard.press("}")
    step_s = before_s - seconds_in(page.url, "e")
    open_item(2)
    open_item(1)
    page.keyboard.press("Control+z")
    until(page, f"document.querySelectorAll('{ITEMS}')[1].classList.contains('open')")
    assert seconds_in(page.url, "e") == pytest.approx(before_s, abs=0.001)
    assert page.get_by_label("Note", exact=True).is_visible()
    page.keyboard.press("}")
    page.keyboard.press("}")
    page.keyboard.press("}")
    until_saved(page)
    assert seconds_in(page.url, "e") == pytest.approx(before_s - 3 * step_s, abs=0.001)
    assert moments_in_bin(page)[1]["end_s"] == pytest.approx(before_s - 3 * step_s, abs=0.001)


def test_the_bin_keeps_a_moment_as_it_was_added_until_it_is_opened_there(visit):
    page = visit("?q=white")
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    is_known = "document.querySelector('output[aria-label=Timecode]').textContent.length === 11"
    until(page, is_known)
    page.get_by_role("button", name="Add to bin").click()
    until(page, f"document.querySelectorAll('{ITEMS}').length === 1")
    end_s = seconds_in(page.url, "e")
    page.keyboard.press("}")
    page.get_by_text("keeps the moment as it was added").wait_for()
    page.keyboard.press("b")
    until(page, f"document.querySelectorAll('{ITEMS}').length === 2")
    until_saved(page)
    assert [moment["end_s"] for moment in moments_in_bin(page)] == pytest.approx([end_s, end_s - 1 / 25], abs=0.001)
    page.keyboard.press("Control+z")
    until(page, f"document.querySelectorAll('{ITEMS}').length === 1")
    page.keyboard.press("Control+z")
    until_saved(page)
    reopen(page)
    page.keyboard.press("}")
    page.get_by_text("keeps the moment as it was added").wait_for()
    page.keyboard.press("]")
    page.locator(ITEMS).click()
    until(page, is_known)
    reopen(page)
    page.keyboard.press("}")
    until_stored_end(page, end_s - 1 / 25)


def reopen(page):
    page.reload()
    until(page, f"document.querySelector('{ITEMS}')?.classList.contains('open')")
    until(page, "document.querySelector('output[aria-label=Timecode]')?.textContent.length === 11")


def until_stored_end(page, end_s):
    deadline = time.monotonic() + 20
    while (stored := moments_in_bin(page)[0]["end_s"]) != pytest.approx(end_s, abs=0.001):
        assert time.monotonic() < deadline, (stored, end_s)
        page.wait_for_timeout(50)


def test_of_two_equal_moments_the_opened_one_is_edited(visit):
    page = with_three(visit)
    until_saved(page)
    stored = moments_in_bin(page)
    (item,) = page.request.get(page.url.split("?")[0] + "api/bins").json()["bins"]
    equal = [stored[0], stored[1], stored[1]]
    keys = ("video_id", "start_s", "end_s", "note", "sentence")
    moments = [{key: moment[key] for key in keys} for moment in equal]
    changed = {"name": "Bin", "moments": moments, "version": item["version"]}
    answer = page.request.put(f"{page.url.split('?')[0]}api/bins/{item['bin_id']}", data=changed)
    assert answer.ok, answer.text()
    page.reload()
    until(page, f"document.querySelectorAll('{ITEMS}').length === 3")
    page.locator(ITEMS).nth(2).click()
    until(page, f"document.querySelectorAll('{ITEMS}')[2].classList.contains('open')")
    page.get_by_label("Note", exact=True).fill("third")
    page.get_by_label("Note", exact=True).press("Enter")
    until(page, f"document.querySelectorAll('{ITEMS}')[2].title.includes('third')")
    until_saved(page)
    assert [moment["note"] == "third" for moment in moments_in_bin(page)] == [False, False, True]


def test_a_frame_rate_is_chosen_for_one_bin_and_an_edit_list_needs_the_rate_of_the_clips(visit):
    page = visit("?q=white")
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()  # 25 frames per second
    page.get_by_role("button", name="Add to bin").click()
    page.wait_for_selector(ITEMS)
    until_saved(page)
    list_is_off = (
        "[...document.querySelectorAll('footer button')].find(button => /EDL/.test(button.textContent)).disabled"
    )
    page.keyboard.press("e")
    until(page, "/25/.test(document.querySelector('footer option[value=\"\"]').textContent)")
    assert not page.evaluate(list_is_off)
    page.get_by_label("Frame rate").select_option("29.97df")
    until(page, list_is_off)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Bin Bin").click()
    page.get_by_role("button", name="New bin").click()
    until(page, "document.activeElement.ariaLabel === 'Name of the bin'")
    page.keyboard.press("Enter")
    page.keyboard.press("b")
    until(page, f"document.querySelectorAll('{ITEMS}').length === 1")
    page.keyboard.press("e")
    assert page.get_by_label("Frame rate").input_value() == ""
    until(page, f"!{list_is_off}")


def test_the_first_arrow_key_after_a_search_plays_and_its_moment_gets_the_new_sentence(visit):
    page = visit("?q=white")
    page.locator(TILE).nth(1).click()
    page.wait_for_selector("video")
    played = page.url
    page.locator("#q").fill("green")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    with page.expect_response(lambda response: "/edges?" in response.url):
        page.keyboard.press("ArrowDown")  # out of the search box
    assert seconds_in(page.url, "s") != seconds_in(played, "s") or page.url.split("v=")[1] != played.split("v=")[1]
    page.keyboard.press("b")
    page.wait_for_selector(ITEMS)
    until_saved(page)
    (moment,) = moments_in_bin(page)
    assert moment["sentence"] == moment["note"] == "green"


def test_a_library_has_several_bins(visit, shot):
    page = with_three(visit)
    until(page, "document.querySelector('section[aria-label=Bin] h2').textContent === 'Bin'")
    until_saved(page)
    starts = stored_bins(page)["Bin"]
    assert len(starts) == 3
    page.get_by_role("button", name="Bin Bin").click()
    shot(page, "bins")
    page.get_by_role("button", name="New bin").click()
    until(page, "document.activeElement.ariaLabel === 'Name of the bin'")
    page.keyboard.type("Trailer")  # replaces the suggested name
    page.keyboard.press("Enter")
    page.keyboard.press("b")
    until(page, f"document.querySelectorAll('{ITEMS}').length === 1")
    until_stored(page, {"Bin": starts, "Trailer": starts[2:]})
    page.get_by_role("button", name="Bin Trailer").click()
    page.get_by_role("button", name="Bin 3").click()
    until(page, f"document.querySelectorAll('{ITEMS}').length === 3")
    page.get_by_role("button", name="Bin Bin").click()
    page.get_by_role("button", name="Delete this bin").click()
    until_stored(page, {"Trailer": starts[2:]})
    page.get_by_role("button", name="Undo").click()
    until_stored(page, {"Bin": starts, "Trailer": starts[2:]})


def test_a_change_by_another_page_is_not_overwritten(visit):
    page = with_three(visit, trouble=True)  # the refused change is in the log
    until_saved(page)
    other = visit("?q=white")
    until(other, f"document.querySelectorAll('{ITEMS}').length === 3")
    other.locator(ITEMS).first.press("Delete")
    until(other, f"document.querySelectorAll('{ITEMS}').length === 2")
    until_saved(other)
    kept = names(other)
    with page.expect_response(lambda response: response.status == 412):
        page.locator(ITEMS).last.press("Delete")
    page.get_by_text("changed in another window").wait_for()
    assert names(page) == kept
    page.get_by_role("button", name="Undo").click()
    assert len(names(page)) == 2
    assert names(page) != kept


def test_an_export_has_the_moments_that_another_page_trimmed(visit):
    page = with_three(visit)
    until_saved(page)
    other = visit("?q=white")
    until(other, f"document.querySelectorAll('{ITEMS}').length === 3")
    other.locator(ITEMS).first.click()
    until(other, "document.querySelector('output[aria-label=Timecode]')?.textContent.length === 11")
    other.keyboard.press("}")
    until_saved(other)
    trimmed = moments_in_bin(other)
    page.keyboard.press("e")
    with page.expect_download() as download:
        page.get_by_role("button", name="Table JSON").click()
    exported = json.loads(Path(download.value.path()).read_text())["moments"]
    assert [moment["end_s"] for moment in exported] == pytest.approx([moment["end_s"] for moment in trimmed], abs=1e-6)


def test_a_bin_that_the_browser_kept_is_stored_once(visit):
    page = visit("?q=blue")
    page.locator(TILE).first.click()
    page.wait_for_selector("video")
    video_id = page.url.partition("v=")[2][:16]
    moment = {"video_id": video_id, "video": "/gone/sea.webm", "start_s": 0.5, "end_s": 1.5, "note": "waves"}
    page.evaluate("old => localStorage.setItem('untrimmed-basket', old)", json.dumps([moment]))
    for _ in range(2):
        page.reload()
        page.wait_for_selector(ITEMS)
        assert page.locator(ITEMS).first.get_attribute("title") == "sea.webm: waves"
    assert stored_bins(page) == {"Bin": [0.5]}


def test_all_moments_play_one_after_another_across_files(visit):
    page = visit("?q=white")
    for number, name in enumerate(("flag.webm", "sea.webm"), start=1):
        page.locator(f"{TILE}[aria-label^='{name}']").first.click()
        page.keyboard.press("b")
        until(page, f"document.querySelectorAll('{ITEMS}').length === {number}")
    page.keyboard.press("Shift+P")
    for number, name in enumerate(("flag.webm", "sea.webm"), start=1):
        until(page, "name => document.querySelector('video')?.ariaLabel === name", name)
        until(page, f"{STATUS} === 'Playing {number} of 2'")
    until(page, f"{STATUS} === 'Paused'")
    page.wait_for_timeout(500)
    assert page.evaluate(STATUS) == "Paused", "no loop"
    assert page.evaluate("document.querySelector('video').ariaLabel") == "sea.webm"


def test_a_whole_session_by_keyboard(visit, tmp_path):
    page = visit()
    page.keyboard.type("blue")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    with page.expect_response(lambda response: "/edges?" in response.url):
        page.keyboard.press("ArrowDown")  # from the sentence to the results
    until(page, "document.activeElement.dataset.chosen === 'true'")
    page.keyboard.press("Enter")
    until(page, f"{STATUS} === 'Playing'")
    page.keyboard.press("k")
    page.keyboard.press("Shift+I")
    page.wait_for_timeout(150)
    for _ in range(5):
        page.keyboard.press(".")
    page.wait_for_timeout(150)
    page.keyboard.press("i")
    page.keyboard.press(">")
    page.wait_for_timeout(150)
    page.keyboard.press("o")
    assert page.text_content("output[aria-label=Length]") == "00:00:00:11"
    page.keyboard.press("b")
    until(page, f"document.querySelectorAll('{ITEMS}').length === 1")
    trimmed = names(page)[0]
    page.keyboard.press("ArrowRight")
    until(page, f"{STATUS} === 'Playing'")
    page.keyboard.press("b")
    until(page, f"document.querySelectorAll('{ITEMS}').length === 2")
    page.locator(ITEMS).first.focus()
    page.keyboard.press("Shift+ArrowRight")
    assert names(page)[1] == trimmed
    page.keyboard.press("e")
    until(page, "document.activeElement.matches('select')")
    for _ in range(2):  # past FCPXML
        page.keyboard.press("Tab")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "Bin.xml"
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] dl")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('video')")
    page.keyboard.press("q")
    assert page.evaluate("document.activeElement.id") == "q"


def swipe(page, selector, from_x, to_x, rest_ms=0):
    """Move a finger over an element, with positions as parts of its width. It rests at first for `rest_ms`."""
    box = page.locator(selector).bounding_box()
    touch = page.context.new_cdp_session(page)
    y = box["y"] + box["height"] / 2
    xs = [box["x"] + box["width"] * (from_x + (to_x - from_x) * step / 6) for step in range(7)]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": xs[0], "y": y}]})
    page.wait_for_timeout(rest_ms)
    for x in xs[1:]:
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y}]})
        page.wait_for_timeout(20)
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(600)  # Chromium takes a tap right after a swipe as the end of its momentum


def test_a_whole_session_by_touch(visit, shot):
    page = visit("?q=white", width=390, height=844, has_touch=True, is_mobile=True, device_scale_factor=2)
    page.wait_for_selector(TILE)
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    with page.expect_response(lambda response: "/edges?" in response.url):
        page.locator(f"{TILE}[aria-label^='sea.webm']").first.tap()
    until(page, "document.querySelector('video')?.readyState > 1")
    playing = "!document.querySelector('video').paused"
    until(page, playing)
    page.get_by_role("button", name="Add to bin").tap()
    until(page, f"document.querySelectorAll('{ITEMS}').length === 1")
    page.locator(".screen").tap()
    until(page, "document.querySelector('video').paused")
    before = page.evaluate("document.querySelector('video').currentTime")
    swipe(page, ".screen", 0.5, 0.2, rest_ms=600)
    until(page, "before => Math.abs(document.querySelector('video').currentTime - before) > 0.1", before)
    opened = page.url
    swipe(page, ".screen", 0.8, 0.2)
    until(page, "before => location.href !== before", opened)
    until(page, playing)
    page.get_by_role("button", name="Larger player").tap()
    edge = page.get_by_role("slider", name="Out", exact=True)
    edge.wait_for()
    end_s = seconds_in(page.url, "e")
    box = edge.bounding_box()
    assert box is not None
    swipe(page, ".edge.end_s", 0.5, -3)
    until(page, "before => Number(new URLSearchParams(location.search).get('e')) < before", end_s)
    page.get_by_role("button", name="Add to bin").tap()
    until(page, f"document.querySelectorAll('{ITEMS}').length === 2")
    shot(page, "phone_session")
    covered = page.evaluate(
        """() => {
          const notice = document.querySelector('.notice span').getBoundingClientRect()
          return [...document.querySelectorAll('aside button, footer button')]
            .map(button => button.getBoundingClientRect())
            .filter(box => box.width && box.bottom > notice.top && box.top < notice.bottom).length
        }"""
    )
    assert covered == 0
    small = page.evaluate(
        """() => [...document.querySelectorAll('aside button, footer button:not(.remove)')]
          .filter(button => button.offsetParent && button.getBoundingClientRect().height < 44)
          .map(button => button.ariaLabel ?? button.textContent)"""
    )
    assert small == []
    page.get_by_role("button", name="Export").tap()
    with page.expect_download() as download:
        page.get_by_role("button", name="Final Cut Pro FCPXML").tap()
    assert download.value.suggested_filename.endswith(".fcpxml")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert len(tile_names(page)) > 0


def test_the_problem_of_an_export_is_hidden_by_the_next_action_in_the_bin(visit):
    page = with_three(visit, trouble=True)
    page.route("**/api/export", lambda route: route.fulfill(status=404, json={"detail": "the drive is missing"}))
    alert = page.locator("footer").get_by_role("alert")
    for act in (
        lambda: page.locator(ITEMS).first.click(),
        lambda: page.locator(ITEMS).last.press("Delete"),
        lambda: page.get_by_role("button", name="Undo").click(),
    ):
        page.get_by_role("button", name="Export").click()
        page.get_by_role("button", name="Table CSV").click()
        alert.wait_for()
        assert "the drive is missing" in alert.text_content()
        act()
        alert.wait_for(state="detached")


def test_a_new_order_is_undone_by_touch(visit, shot):
    page = with_three(visit, width=390, height=844, has_touch=True, is_mobile=True)
    before = names(page)
    undo = page.locator(".notice").get_by_role("button", name="Undo")
    page.locator(".notice").filter(has_text="Added").wait_for(state="detached")
    swipe(
        page, "section[aria-label=Bin] li:first-child .item", 0.5, 0.1, rest_ms=600
    )  # not far enough for another order
    assert undo.count() == 0
    swipe(page, "section[aria-label=Bin] li:first-child .item", 0.5, 2.9, rest_ms=600)
    undo.wait_for()
    shot(page, "phone_bin_moved")
    assert names(page) == [before[1], before[2], before[0]]
    undo.tap()
    assert names(page) == before
