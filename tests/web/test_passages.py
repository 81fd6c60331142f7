"""What is said in a video, on the page: evidence of moments, and the modes of a search."""

import html
import re

import pytest

import untrimmed
from tests.toy import write_clip
from tests.web.browsing import TILE, play_time, until, video_names
from tests.web.conftest import VP9, load_toy, served
from untrimmed.search import library as library_module

pytestmark = pytest.mark.check

HOSTILE = "<script>document.title='broken'</script> Budget cuts <img src=x onerror=document.title='broken'> & more"
# Tags are removed when subtitles are read, unless they are escaped.
SUBTITLES = f"""1
00:00:01,000 --> 00:00:02,500
The red whale sings.

2
00:00:03,000 --> 00:00:05,000
{html.escape(HOSTILE, quote=False)}
"""


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """The address of a service whose library has a video with subtitles, and one without."""
    folder = tmp_path_factory.mktemp("spoken")
    videos = folder / "videos"
    videos.mkdir()
    write_clip(videos / "talk.webm", ["blue", "red", "green", "white"], **VP9)
    write_clip(videos / "mute.webm", ["red", "blue"], **VP9)
    (videos / "talk.en.srt").write_text(SUBTITLES)
    library = untrimmed.open(folder / "library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "load_encoder", load_toy)
        library.index(videos)
    with served(library) as address:
        yield address


def chip(page, name):
    return page.get_by_role("group", name="Search in").get_by_role("button", name=name, exact=True)


def test_a_moment_shows_what_is_said_as_text_and_its_time_goes_there(visit, spoken, shot):
    page = visit("?q=budget+cuts", at=spoken)
    snippet = page.locator(".card .passage").first
    snippet.wait_for()
    assert HOSTILE in snippet.get_attribute("title")
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    evidence = page.get_by_role("list", name="Evidence")
    evidence.wait_for()
    assert HOSTILE in evidence.text_content()
    assert "Said" in evidence.text_content()
    assert evidence.locator("mark").all_text_contents() == ["Budget", "cuts"]
    assert evidence.locator("script, img").count() == 0
    assert page.locator(".card .passage :is(script, img)").count() == 0
    assert page.title() != "broken"
    until(page, "document.querySelector('video')?.readyState > 1")
    page.keyboard.press("k")
    page.keyboard.press("Home")
    evidence.get_by_role("button").first.click()
    until(page, "document.querySelector('video').currentTime > 2.9")
    assert abs(play_time(page) - 3) < 0.2
    shot(page, "passages")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Larger player").click()
    evidence.scroll_into_view_if_needed()
    shot(page, "passages-phone")


def test_the_second_moment_of_a_pair_shows_why_it_matches(visit, spoken):
    page = visit("?q=blue&then=red+whale", at=spoken)
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    evidence = page.get_by_role("list", name="Evidence of the second moment")
    evidence.wait_for()
    assert "Then Seen" in evidence.text_content()
    assert evidence.locator("mark").all_text_contents() == ["red", "whale"]
    evidence.get_by_role("button").first.click()
    until(page, "Math.abs(document.querySelector('video').currentTime - 2) < 1")


def test_the_transcript_marks_words_follows_playback_and_goes_to_a_line(visit, spoken, shot):
    page = visit("?q=budget+cuts", at=spoken)
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    lines = page.get_by_role("region", name="Transcript").get_by_role("button").filter(has=page.locator("time"))
    lines.first.wait_for()
    assert [HOSTILE in text for text in lines.all_text_contents()] == [False, True]
    assert lines.locator("mark").all_text_contents() == ["Budget", "cuts"]
    assert lines.locator("script, img").count() == 0
    until(page, "document.querySelector('video')?.readyState > 1")
    page.keyboard.press("k")
    lines.first.click()
    until(page, "Math.abs(document.querySelector('video').currentTime - 1) < 0.2")
    until(page, "document.querySelector('[aria-current=time]').textContent.includes('whale')")
    shot(page, "transcript")
    page.get_by_role("button", name="Next of 1 match").click()
    until(page, "Math.abs(document.querySelector('video').currentTime - 3) < 0.2")
    until(page, "document.querySelector('[aria-current=time]').textContent.includes('Budget')")
    assert page.title() != "broken"


def test_the_transcript_opens_at_the_language_that_matches_and_shows_one_text(visit, spoken, shot):
    page = visit("?q=budget+cuts", at=spoken)
    line = {"mode": "said", "source": "subtitle", "start_s": 0, "end_s": 60, "strength": 0}
    languages = {"de": ("Ausgaben", []), "en": ("budget cuts", [{"start": 0, "end": 6}]), "fr": ("dépenses", [])}
    lines = [line | {"language": code, "text": text, "words": words} for code, (text, words) in languages.items()]
    page.route("**/transcript?*", lambda route: route.fulfill(json=lines))
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    page.get_by_role("region", name="Transcript").wait_for()
    until(page, "document.querySelector('[aria-current=time]').textContent.includes('budget')")
    assert page.locator("[aria-current=time] time").inner_text().split()[-1] == "en"
    page.get_by_role("combobox", name="Text").select_option("Said · de")
    until(page, "document.querySelector('[aria-current=time]').textContent.includes('Ausgaben')")
    region = page.get_by_role("region", name="Transcript")
    assert region.locator("li time").count() == 1
    region.scroll_into_view_if_needed()
    shot(page, "transcript-tracks")


def test_a_long_transcript_has_few_lines_in_the_page(visit, spoken):
    page = visit(at=spoken)
    number = 20_000
    line = {"mode": "said", "source": "subtitle", "language": "en", "words": [], "strength": 0}
    lines = [line | {"start_s": i / 4000, "end_s": (i + 1) / 4000, "text": f"line {i}"} for i in range(number)]
    page.route("**/transcript?*", lambda route: route.fulfill(json=lines))
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    region = page.get_by_role("region", name="Transcript")
    region.wait_for()
    assert region.locator("li").count() < 40
    page.keyboard.press("k")
    page.keyboard.press("End")
    until(page, f"document.querySelector('[aria-current=time]')?.ariaPosInSet > {number // 2}")
    assert region.locator("li").count() < 40


def test_a_press_on_a_line_does_not_scroll_the_transcript_away(visit, spoken):
    page = visit(at=spoken)
    line = {"mode": "said", "source": "subtitle", "language": "en", "words": [], "strength": 0}
    lines = [line | {"start_s": i / 10, "end_s": (i + 1) / 10, "text": f"line {i}"} for i in range(40)]
    page.route("**/transcript?*", lambda route: route.fulfill(json=lines))
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    region = page.get_by_role("region", name="Transcript")
    region.wait_for()
    page.keyboard.press("k")
    region.get_by_role("button").filter(has_text=re.compile("line 1$")).click()
    page.mouse.wheel(0, 600)
    shown = region.get_by_role("button").filter(has_text=re.compile("line 1[4-9]$")).first
    shown.wait_for()
    page.wait_for_timeout(300)  # the list has stopped scrolling
    number = int(shown.inner_text().split()[-1])
    box = shown.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.wait_for_timeout(100)
    page.mouse.up()
    until(page, f"Math.abs(document.querySelector('video').currentTime - {number / 10}) < 0.1")


def test_a_video_without_transcript_follows_one_whose_transcript_scrolls(visit, spoken):
    page = visit(at=spoken)
    line = {"mode": "said", "source": "subtitle", "language": "en", "words": [], "strength": 0}
    lines = [line | {"start_s": i, "end_s": i + 1, "text": f"line {i}"} for i in range(100)]
    page.route("**/transcript?*", lambda route: route.fulfill(json=lines))
    page.locator(f"{TILE}[aria-label^='talk.webm']").first.click()
    region = page.get_by_role("region", name="Transcript")
    region.wait_for()
    page.unroute("**/transcript?*")
    page.evaluate(
        """tile => {
          document.querySelector('section[aria-label=Transcript] ol').scrollTop = 2000
          document.querySelector(tile).click()
        }""",
        f"{TILE}[aria-label^='mute.webm']",
    )
    until(page, "document.querySelector('video')?.ariaLabel === 'mute.webm'")
    page.wait_for_timeout(300)  # an error in the page fails the test
    assert region.count() == 0


def test_the_modes_of_a_search_are_in_the_address_until_they_are_reset(visit, spoken):
    page = visit("?q=red", at=spoken)
    until(page, "document.querySelectorAll('button.tile').length === 2")
    chip(page, "Said").click()
    until(page, "document.querySelectorAll('button.tile').length === 1")
    assert video_names(page) == ["talk.webm"]
    assert "modes=said" in page.url
    assert chip(page, "Written").count() == 0  # no text on the screen was read
    page.reload()
    until(page, "document.querySelectorAll('button.tile').length === 1")
    assert chip(page, "Said").get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Reset").click()
    until(page, "document.querySelectorAll('button.tile').length === 2")
    assert "modes" not in page.url


def test_pictures_cannot_be_left_out_of_a_search_with_then(visit, spoken):
    page = visit("?q=red&then=blue", at=spoken)
    until(page, "document.querySelectorAll('button.tile').length > 0")
    assert chip(page, "Said").is_disabled()
    chip(page, "Seen").click()
    until(page, "location.search.includes('modes=seen')")
    assert chip(page, "Seen").get_attribute("aria-pressed") == "true"


def test_a_library_without_passages_offers_no_modes(visit):
    page = visit("?q=red")
    page.locator(TILE).first.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.get_by_role("group", name="Search in").count() == 0
