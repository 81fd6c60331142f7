"""The page in Debian's Chromium, used as a person would."""

import json
import math
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import untrimmed
from tests.toy import write_clip
from tests.web.browsing import (
    NAME,
    PARTS,
    TILE,
    ask,
    painted_ms,
    tile_names,
    until,
    video_names,
    with_first_playing,
)
from tests.web.conftest import CLIPS, HOSTILE, VP9, load_toy, served
from untrimmed.search import library as library_module

pytestmark = pytest.mark.check

PAINT = """new Promise(done => {
  const seen = () => performance.getEntriesByName('first-contentful-paint')[0]
  const look = () => seen() && done(seen().startTime)
  look() || new PerformanceObserver(look).observe({type: 'paint', buffered: true})
})"""


@pytest.mark.parametrize("most_ms", [math.inf, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_page_opens_at_once_with_the_search_box_focused(visit, most_ms):
    page, paints_ms = visit(), []
    for _ in range(3):  # a busy machine may be late once
        paints_ms.append(page.evaluate(PAINT))
        assert page.evaluate("document.activeElement.id") == "q"
        page.wait_for_selector(TILE)
        page.reload()
    assert min(paints_ms) < most_ms
    print(f"first paint {min(paints_ms):.0f} ms")


def processor_s(browser):
    """Processor time of page, service and test so far. Wall time would fail the test on a busy machine."""
    metrics = {metric["name"]: metric["value"] for metric in browser.send("Performance.getMetrics")["metrics"]}
    return metrics["ProcessTime"] + time.process_time()


def test_a_search_groups_moments_by_video_and_is_quick(visit, shot):
    page = visit("?view=video")
    ask(page, "white")
    names = tile_names(page)
    assert sum(name.startswith("flag.webm, ") for name in names) >= 2
    spent_s = []
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})
    for text in ("red", "green", "blue"):
        before_s = processor_s(browser)
        page.fill("#q", text)
        page.press("#q", "Enter")
        first = next(name for name, colours in CLIPS.items() if colours[0] == text).split(" ")[0]
        until(page, "first => document.querySelector('button.tile')?.ariaLabel.startsWith(first)", first)
        spent_s.append(processor_s(browser) - before_s)
    print(f"from Enter to hits {1000 * min(spent_s):.0f} ms of processor time")
    assert min(spent_s) < 0.3
    shot(page, "search")


@pytest.mark.parametrize("most_ms", [math.inf, pytest.param(300, marks=pytest.mark.slow)])
def test_first_hits_are_painted_at_once(visit, most_ms):
    page = visit("?q=white")
    page.wait_for_selector(TILE)
    spent_ms = [
        painted_ms(page, text) for text in ("red", "green", "blue", "yellow")
    ]  # a busy machine may be late once
    print(f"from Enter to first picture painted {sorted(round(ms) for ms in spent_ms)} ms")
    assert min(spent_ms) < most_ms


def test_the_first_video_is_shown_before_the_others_are_known(visit, library, monkeypatch):
    go_on = threading.Event()
    search_all = library.search

    def search(*values, on_hit=None, **options):
        def report(hit):
            on_hit(hit)
            assert go_on.wait(20)

        return search_all(*values, on_hit=on_hit and report, **options)

    page = visit()
    page.wait_for_selector(TILE)
    monkeypatch.setattr(library, "search", search)
    page.fill("#q", "green")
    page.press("#q", "Enter")
    until(page, "location.search === '?q=green' && document.querySelectorAll('.card').length === 1")
    assert page.text_content("[role=status]").strip() == "Searching …"
    page.locator(TILE).first.click()
    page.wait_for_selector("video")
    go_on.set()
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert page.locator(NAME).count() > 1
    assert page.locator("video").count() == 1


def test_a_repeated_warning_is_shown_twice(visit):
    """For example, the same word is unknown in two `without` sentences."""
    answer = {"hits": [], "partial": False, "took_s": 0.1, "warnings": ["without: no word is known"] * 2}
    page = visit()
    page.route("**/api/search/lines", lambda route: route.fulfill(body=json.dumps({"answer": answer}) + "\n"))
    page.fill("#q", "white")
    page.press("#q", "Enter")
    page.locator("p.warning").nth(1).wait_for()


def test_recent_searches_can_be_repeated_and_cleared(visit):
    page = visit()
    for text in ("white", "blue", "white"):
        ask(page, text)
    page.goto(page.url.partition("?")[0])
    earlier = page.locator("button.earlier")
    earlier.first.wait_for()
    assert earlier.all_text_contents() == ["white", "blue", "Clear"]
    page.get_by_role("button", name="blue").click()
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert page.input_value("#q") == "blue"
    page.goto(page.url.partition("?")[0])
    page.get_by_role("button", name="Clear").click()
    assert earlier.count() == 0


def test_loading_pictures_are_transparent_and_from_the_middle_of_a_moment(visit):
    page, requests = visit(), []
    page.route("**/thumbnail?*", lambda route: requests.append(route.request.url))  # never answered
    page.reload(wait_until="commit")
    page.wait_for_selector(f"{TILE} img")
    assert (
        page.locator(f"{TILE} img").first.evaluate("img => getComputedStyle(img).backgroundColor") == "rgba(0, 0, 0, 0)"
    )
    while not requests:
        page.wait_for_timeout(30)
    times_s = [float(re.search(r"time_s=([\d.]+)", url).group(1)) for url in requests]
    assert min(times_s) > 1.5, "not the start: the first frame of many videos is black"


def test_three_pictures_load_at_a_time_so_that_a_video_can_start(visit):
    page, held = visit("?q=white&view=moments"), []
    page.wait_for_load_state("networkidle")
    page.route("**/thumbnail?*", lambda route: held.append(route.request))
    page.on("requestfailed", lambda request: request in held and held.remove(request))  # cancelled
    page.reload(wait_until="commit")
    page.locator(TILE).nth(5).wait_for()
    while len(held) < 3:
        page.wait_for_timeout(30)
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.evaluate("tile => tile.click()")  # without hovering
    until(page, "document.querySelector('video')?.currentTime > 0")
    assert len(held) == 3, "a browser has six connections"


def test_enter_presses_the_focused_button(visit):
    page = with_first_playing(visit)
    playing = page.url
    page.get_by_role("button", name="Add to bin").press("Enter")
    page.wait_for_selector("section[aria-label=Bin] li")
    page.get_by_role("button", name="Help: keys").press("Enter")
    page.wait_for_selector("dialog[open] dl")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Folder").press("Enter")
    page.get_by_role("button", name="All folders").wait_for()
    page.keyboard.press("Escape")
    assert page.url == playing
    other = page.locator(f"{TILE}[data-chosen=false]").last
    file, _, _ = other.get_attribute("aria-label").partition(",")  # the times move to the exact cuts
    other.press("Enter")
    until(page, "before => location.href !== before", arg=playing)
    until(page, "file => document.querySelector('[data-chosen=true]').ariaLabel.startsWith(file)", arg=file)
    page.get_by_role("button", name="Close").press("Enter")
    until(page, "!document.querySelector('video')")
    until(page, "document.activeElement.dataset.chosen === 'true'")


def test_the_focus_moves_from_removed_elements_to_the_selected_moment(visit):
    page = with_first_playing(visit)
    page.keyboard.press("b")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("b")
    until(page, "document.querySelectorAll('section[aria-label=Bin] li').length === 2")
    page.get_by_label("from the bin").first.press("Enter")
    until(page, "document.activeElement.matches('section[aria-label=Bin] .item')")
    page.keyboard.press("Delete")
    until(page, "document.activeElement.dataset.chosen === 'true'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("p")
    page.wait_for_selector(f"{PARTS} li")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    until(page, "document.activeElement.dataset.chosen === 'true'")
    page.locator(f"{PARTS} button").press("Enter")
    until(page, f"!document.querySelector('{PARTS}')")
    until(page, "document.activeElement.dataset.chosen === 'true'")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_follow_the_system_until_a_theme_is_chosen(visit, dark, shot):
    def paper():
        return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")

    light, night = "rgb(255, 255, 255)", "rgb(17, 19, 23)"
    page = visit("?q=red", dark=dark)
    page.locator(TILE).first.click()
    page.wait_for_selector("[role=slider][aria-label*='relevance']")
    seen = [paper()]
    for name in ("system", "light", "dark"):
        page.get_by_role("button", name=f"Colours: {name}").click()
        seen.append(paper())
    assert seen == [night if dark else light, light, night, night if dark else light]
    page.get_by_role("button", name="Colours: system").click()
    if not dark:
        page.get_by_role("button", name="Colours: light").click()
    page.reload()
    page.wait_for_selector("[role=slider][aria-label*='relevance']")
    assert paper() == (light if dark else night), "remembered"
    shot(page, f"chosen_{'light' if dark else 'dark'}")


def test_a_shared_address_shows_the_same_after_a_reload(visit, browser):
    page = visit("?q=white")
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    page.wait_for_selector("video")
    page.keyboard.press("}")
    address = page.url
    shared = visit(address.partition("/?")[2] and "?" + address.partition("/?")[2])
    shared.wait_for_selector("video")
    assert shared.url == address
    assert shared.input_value("#q") == "white"
    for one in (page, shared):  # seconds become a timecode when the frame rate is known
        until(one, "document.querySelector('output[aria-label=End]').textContent.length === 11")
    assert shared.text_content("output[aria-label=End]") == page.text_content("output[aria-label=End]")
    page.go_back()
    until(page, "!document.querySelector('video')")
    assert page.input_value("#q") == "white"


def test_an_empty_library_explains_how_to_index(visit, tmp_path):
    folder = tmp_path / "my library"
    with served(untrimmed.open(folder)) as at:
        page = visit(at=at, trouble=True)  # without the token, folders are not listed
        page.get_by_text("Use the command line instead").click()
        page.get_by_text(f"untrimmed index FOLDER --library '{folder}'").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_are_shaded_by_weight_and_an_ambiguous_sentence_is_reported(visit, dark, shot):
    def weigh(route):
        *hits, last = route.fetch().text().splitlines()
        words = [{"word": word, "weight": weight} for word, weight in (("a", 0.0), ("<b>", 0.2), ("sea", 0.8))]
        extra = {"words": words, "warnings": ["the model finds the sentence ambiguous: 0.6"]}
        route.fulfill(body="\n".join([*hits, json.dumps({"answer": {**json.loads(last)["answer"], **extra}}), ""]))

    page = visit(dark=dark)
    page.route("**/api/search/lines", weigh)
    ask(page, "a <b> sea")
    assert page.locator(".word").all_text_contents() == ["a", "<b>", "sea"]
    colours = page.locator(".word").evaluate_all("all => all.map(word => getComputedStyle(word).backgroundColor)")
    shades = [float(re.search(r"([\d.]+)\)$", colour).group(1)) for colour in colours]
    assert shades == pytest.approx([0, 0.1125, 0.45], abs=0.01)
    assert page.locator(".word").last.get_attribute("title") == "80 %"
    page.get_by_text("finds the sentence ambiguous").wait_for()
    shot(page, f"words_{'dark' if dark else 'light'}")
    page.unroute("**/api/search/lines")
    ask(page, "blue")
    assert page.locator(".word").count() == 0


def test_hostile_names_are_text(visit):
    page = visit("?q=green")
    page.wait_for_selector(".name[title*='onerror']")
    shown = re.sub("[\u202e\n]", "\ufffd", HOSTILE) + ".webm"
    assert page.locator(".name[title*='onerror'] span").text_content() == shown
    assert page.locator(".name[title*='onerror']").get_attribute("title").endswith("/" + shown)
    page.locator(f"{TILE}[aria-label*='onerror']").first.click()
    page.get_by_role("button", name="Add to bin").click()
    page.wait_for_selector("section[aria-label=Bin] li")
    assert page.title() == "untrimmed"


def test_a_dropped_picture_is_searched_for(visit):
    page = visit()
    page.wait_for_selector(TILE)
    page.evaluate(
        """async () => {
          const canvas = new OffscreenCanvas(64, 48), pen = canvas.getContext('2d')
          pen.fillStyle = 'rgb(0,0,255)'; pen.fillRect(0, 0, 64, 48)
          const data = new DataTransfer()
          data.items.add(new File([await canvas.convertToBlob()], 'sea.png', {type: 'image/png'}))
          window.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))
        }"""
    )
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert "sea.webm" in tile_names(page)[0]
    page.locator(TILE).first.click()
    page.get_by_role("slider", name="Time in the video, with relevance").wait_for()
    page.keyboard.press("Escape")
    page.locator(".row").get_by_role("button", name="More").click()
    page.get_by_label("Minimum score").fill("2")
    page.get_by_label("Minimum score").press("Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes('No results')")


def test_a_dropped_video_is_searched_for_by_its_middle_and_survives_a_reload(visit, world, tmp_path):
    page = visit()
    page.wait_for_selector(TILE)
    page.get_by_label("Similar to a picture").set_input_files(world / "videos" / "sea.webm")
    page.get_by_text("looks like sea.webm at").wait_for()
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    names = tile_names(page)
    assert "sea.webm" in names[0]
    page.reload()
    page.get_by_text("looks like sea.webm at").wait_for()
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert tile_names(page) == names
    page.get_by_role("button", name="Remove the picture").click()
    page.reload()
    page.wait_for_selector("h1")
    assert page.get_by_text("looks like").count() == 0
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    page.get_by_label("Similar to a picture").set_input_files(tmp_path / "broken.mp4")
    page.get_by_text("cannot play broken.mp4").wait_for()


def test_a_file_that_is_no_picture_is_refused_and_the_query_kept(visit, tmp_path, shot):
    page = visit("?q=blue")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    names = tile_names(page)
    (tmp_path / "notes.jpg").write_text("no picture")
    page.get_by_label("Similar to a picture").set_input_files(tmp_path / "notes.jpg")
    page.get_by_text("notes.jpg is not a picture").wait_for()
    shot(page, "no_picture")
    assert page.locator(PARTS).count() == 0
    assert tile_names(page) == names
    assert page.input_value("#q") == "blue"


def test_the_last_of_two_dropped_pictures_is_searched_for(visit):
    page = visit()
    page.wait_for_selector(TILE)
    num_open = page.evaluate(
        """async () => {
          let isFirst = true, numOpen = 0
          const decode = window.createImageBitmap, close = ImageBitmap.prototype.close
          ImageBitmap.prototype.close = function () { numOpen--; close.call(this) }
          const finished = []
          window.createImageBitmap = (file) => {
            const wait_ms = isFirst ? 500 : 0
            isFirst = false
            const result = new Promise((wake) => setTimeout(wake, wait_ms)).then(() => (numOpen++, decode(file)))
            finished.push(result)
            return result
          }
          const canvas = new OffscreenCanvas(64, 48), pen = canvas.getContext('2d')
          for (const [name, colour] of [['sun.png', 'yellow'], ['sea.png', 'rgb(0,0,255)']]) {
            pen.fillStyle = colour; pen.fillRect(0, 0, 64, 48)
            const data = new DataTransfer()
            data.items.add(new File([await canvas.convertToBlob()], name, {type: 'image/png'}))
            window.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))
          }
          await Promise.all(finished)
          await new Promise((wake) => setTimeout(wake, 50))
          return numOpen
        }"""
    )
    assert num_open == 0
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert page.get_by_text("looks like sea.png").count() == 1
    assert "sea.webm" in tile_names(page)[0]


def test_a_large_picture_survives_a_reload(visit, tmp_path):
    noise = np.random.default_rng(0).integers(0, 60, (1500, 2000, 3), np.uint8)
    noise[..., 2] += 195  # mostly blue
    Image.fromarray(noise).save(tmp_path / "sea.png")
    assert (tmp_path / "sea.png").stat().st_size > 5e6
    page = visit()
    page.get_by_label("Similar to a picture").set_input_files(tmp_path / "sea.png")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    until(page, "Object.keys(sessionStorage).some((key) => key.startsWith('untrimmed.picture'))")
    page.reload()
    page.get_by_text("looks like sea.png").wait_for()
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert "sea.webm" in tile_names(page)[0]


def test_a_picture_can_be_chosen_on_a_phone(visit, tmp_path):
    Image.new("RGB", (64, 48), (0, 0, 255)).save(tmp_path / "sea.png")
    page = visit(width=390, height=844)
    page.get_by_label("Similar to a picture").set_input_files(tmp_path / "sea.png")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    assert "sea.webm" in tile_names(page)[0]
    page.get_by_role("button", name="Remove the picture").click()
    until(page, f"!document.querySelector('{PARTS}')")


def test_a_phone_held_sideways_shows_results_the_picture_and_its_buttons(visit, shot):
    page = visit("?q=white", width=844, height=390, has_touch=True, is_mobile=True)
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.tap()
    until(page, "document.querySelector('video')?.readyState > 1")
    names = ("Pause", "Add to bin", "Close")
    buttons = [page.locator("aside").get_by_role("button", name=name, exact=True) for name in names]
    boxes = [one.bounding_box() for one in (page.locator("video"), *buttons)]
    assert [box["y"] >= 0 and box["y"] + box["height"] <= 390 for box in boxes] == [True] * 4
    assert page.locator("video").bounding_box()["height"] > 200
    assert page.locator("main").bounding_box()["height"] > 100  # a bin may take the rest
    assert page.evaluate("document.documentElement.scrollWidth") <= 844
    shot(page, "phone_sideways")


def test_parts_are_added_to_a_query_on_a_phone(visit):
    page = visit("?q=white", width=390, height=844, has_touch=True, is_mobile=True)
    page.wait_for_selector(TILE)
    searches = []
    page.on("request", lambda request: searches.append(request.url) if "/api/search" in request.url else None)
    page.get_by_role("button", name="Add to the query").tap()
    page.get_by_role("button", name="Then, later in the video").tap()
    until(page, "document.activeElement.dataset.part === 'then'")
    assert searches == []
    page.keyboard.type("green")
    page.keyboard.press("Enter")
    page.wait_for_url("**then=green*")


@pytest.fixture
def folder(world, library):
    """The folder of the videos. Videos that a test adds are removed afterwards, because other tests count the hits."""
    before = set((world / "videos").iterdir())
    yield world / "videos"
    added = set((world / "videos").iterdir()) - before
    library.remove([record.path for record in library.videos() if Path(record.path) in added])
    for file in added:
        file.unlink()


def test_new_videos_are_indexed_from_the_page(visit, folder, shot, monkeypatch):
    monkeypatch.setattr(library_module, "load_encoder", load_toy)
    page = visit()
    page.wait_for_selector(TILE)
    write_clip(folder / "new.webm", ["white"], **VP9)
    (folder / "broken.webm").write_text("no video")
    page.get_by_role("button", name="Index").click()
    page.get_by_role("button", name="Find new videos").click()
    until(page, "document.querySelector('dialog strong')?.textContent === 'done'")
    assert "1 new, 5 already indexed, 1 failed" in page.text_content("dialog[open]")
    shot(page, "indexing")
    page.get_by_role("button", name="Retry failed files").wait_for()
    page.keyboard.press("Escape")
    ask(page, "white")
    assert any(name.startswith("new.webm") for name in tile_names(page))


def test_a_folder_is_watched_from_the_page(visit, folder, shot, monkeypatch):
    monkeypatch.setattr(library_module, "load_encoder", load_toy)
    page = visit("?q=red")
    page.wait_for_selector(TILE)
    page.get_by_role("button", name="Index").click()
    watch = page.get_by_role("button", name="Watch")
    watch.click()
    until(page, "document.querySelector('dialog li button[aria-pressed=true]')")
    count = page.locator("dialog[open] li .quiet").first.text_content()
    try:
        write_clip(folder / "later.webm", ["red"], **VP9)
        counted = "before => document.querySelector('dialog[open] li .quiet').textContent !== before"
        until(page, counted, count, patience_s=60)
        shot(page, "watching")
    finally:
        watch.click()
        until(page, "document.querySelector('dialog li button[aria-pressed=false]')")
    page.keyboard.press("Escape")
    ask(page, "red")
    assert any(name.startswith("later.webm") for name in tile_names(page))


def test_a_follow_up_is_searched_within_some_seconds(visit):
    page = visit("?q=white")
    page.get_by_role("button", name="then …").click()
    page.get_by_label("Then, later in the video").fill("green")
    page.get_by_label("Then, later in the video").press("Enter")
    until(page, "document.querySelector('button.tile')?.ariaLabel.includes(', then ')")
    assert tile_names(page)[0].startswith("flag.webm, ")
    assert "then=green" in page.url
    page.get_by_role("button", name="without …").click()
    page.keyboard.type("white; red")
    assert page.locator("input[data-part=without]").count() == 2
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Gap").click()
    gap = page.get_by_label("Longest gap")
    assert gap.get_attribute("placeholder") == "60"
    gap.fill("1.5")
    with page.expect_request("**/api/search/lines") as request:
        gap.press("Enter")
    query = request.value.post_data_json
    assert (query["within_s"], query["without"]) == (1.5, ["white", "red"])


@pytest.mark.parametrize("is_pasted", [False, True])
def test_each_excluded_sentence_has_one_chip(visit, is_pasted):
    page = visit("?q=white")
    page.get_by_role("button", name="without …").click()
    if is_pasted:
        page.locator("input[data-part=without]").fill("green; red")
    else:
        page.keyboard.type("green; red")
    page.locator("input[data-part=without]").nth(1).wait_for()
    values = "[...document.querySelectorAll('input[data-part=without]')].map((input) => input.value.trim()).join()"
    until(page, f"{values} === 'green,red'")
    page.keyboard.press("Enter")
    until(page, "new URLSearchParams(location.search).get('not') === 'green; red'")
    page.wait_for_timeout(100)
    assert page.evaluate(values) == "green,red"


def test_the_number_of_hits_is_in_the_address_and_invalid_numbers_are_marked(visit):
    page = visit("?q=white&view=video&limit=2&moments=1")
    until(page, "document.querySelectorAll('.video').length === 2")
    assert page.locator(TILE).count() == 2
    page.locator(".row").get_by_role("button", name="More").click()
    hits = page.get_by_label("Hits")
    hits.fill("2.5")
    hits.press("Enter")
    assert not hits.evaluate("box => box.checkValidity()")
    assert "limit=2&" in page.url
    page.keyboard.press("Escape")
    page.fill("#q", "red")
    page.press("#q", "Enter")  # without the invalid number
    until(page, "document.querySelectorAll('.video').length > 2")
    assert "limit=" not in page.url


def test_more_and_less_like_this(visit, shot):
    def rank():
        until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
        return video_names(page).index("sun.webm")

    page = visit("?q=white")
    before = rank()
    page.locator(f"{TILE}[aria-label^='sun.webm']").first.click()
    page.wait_for_selector("video")
    page.keyboard.press("p")
    until(page, f"document.querySelector('{PARTS} li')?.textContent.includes('like sun.webm')")
    liked = rank()
    assert liked < before
    page.get_by_role("button", name="More like this", pressed=True).wait_for()
    shot(page, "feedback")
    page.keyboard.press("n")
    until(page, f"document.querySelector('{PARTS} li')?.textContent.includes('unlike sun.webm')")
    assert rank() > liked
    page.get_by_role("button", name="Remove sun.webm").click()
    until(page, f"!document.querySelector('{PARTS}')")
    assert "like=" not in page.url
    assert rank() == before


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(visit, dark, shot):
    from axe_playwright_python.sync_playwright import Axe

    page = visit("?q=white", dark=dark)
    page.locator(TILE).first.click()
    page.get_by_role("button", name="Add to bin").click()
    page.wait_for_selector("[role=slider][aria-label*='relevance']")
    shot(page, "dark" if dark else "light")
    violations = [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    page.get_by_role("button", name="Index").click()
    page.get_by_role("button", name="Find new videos").wait_for()
    violations += [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] dl")
    violations += [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [node["html"][:200] for node in v["nodes"]]) for v in violations] == []


def test_a_search_hides_the_keyboard_of_a_phone(visit):
    page = visit(width=390, height=844, has_touch=True, is_mobile=True)
    box = page.locator("#q")
    box.tap()
    box.fill("white")
    box.press("Enter")
    page.wait_for_selector(TILE)
    assert not box.evaluate("box => box === document.activeElement")


def test_the_page_fits_a_phone_without_scrolling_sideways(visit, calibrated, shot):
    page = visit("?q=white", width=390, height=844, has_touch=True, is_mobile=True, device_scale_factor=2)
    page.wait_for_selector(TILE)
    shot(page, "phone_results")
    page.locator(TILE).last.tap()
    page.wait_for_selector("video")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shot(page, "phone_player")
    page.get_by_role("button", name="Larger player").tap()
    page.get_by_role("slider", name="In", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("video").bounding_box()["width"] > 300
    shot(page, "phone_large_player")
    page.get_by_role("button", name="Filters").tap()
    page.get_by_role("dialog", name="Filters").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shot(page, "phone_filters")
