"""The inspector in Debian's Chromium: playback, timecodes, edges and the time axis."""

import re
import time

import av
import numpy as np
import pytest

import untrimmed
from tests.media import constant_stamps, read_clock, varying_stamps
from tests.media import write_clip as write_clock
from tests.web.browsing import TILE, ask, play_time, seconds_in, timecode, until, with_first_playing
from tests.web.conftest import VP9, load_toy, served
from untrimmed.search import library as library_module

pytestmark = pytest.mark.check

FRAME_S = 1 / 25
TIMECODE = "document.querySelector('output[aria-label=Timecode]').textContent"
VIDEO = "new URLSearchParams(location.search).get('v')"  # the id of the open video
PHONE = varying_stamps(40)  # when the frames of a clip appear
STATUS = "document.querySelector('[role=toolbar] [role=status]').textContent"


def open_sea(visit, **options):
    """A page on which the moment of `sea.webm` plays, whose edges are at the exact cuts."""
    page = visit("?q=white", **options)
    with page.expect_response(lambda response: "/edges?" in response.url):
        page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    until(page, "document.querySelector('video')?.readyState > 1")
    until(page, f"{TIMECODE}.length === 11")
    return page


def frame_number(code):
    """The number of a timecode at 25 frames per second."""
    hours, minutes, seconds, frames = map(int, code.split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * 25 + frames


def test_a_hit_plays_its_span_in_a_loop_and_seeks_to_a_tenth_of_a_second(visit, shot):
    page = visit("?q=green")
    page.locator(f"{TILE}[aria-label^='flag.webm']").first.click()
    start_s, end_s = (float(x) for x in re.search(r"s=([\d.]+)&e=([\d.]+)", page.url).groups())
    assert 3.5 < start_s < 4.5
    until(page, "document.querySelector('video')?.readyState > 1")
    page.evaluate("document.querySelector('video').pause()")
    for at_s in (start_s, 7.3, 10.04, 0.5):
        page.evaluate("at => { document.querySelector('video').currentTime = at }", at_s)
        until(page, "!document.querySelector('video').seeking")
        assert abs(play_time(page) - at_s) < 0.1
    shown = page.evaluate(
        "at => new Promise(done => { const v = document.querySelector('video');"
        " v.requestVideoFrameCallback((_, frame) => done(frame.mediaTime)); v.currentTime = at })",
        start_s + 0.5,
    )
    assert abs(shown - start_s - 0.5) < 0.1
    print(f"the frame shown is {1000 * abs(shown - start_s - 0.5):.0f} ms from the requested time")
    page.evaluate("end => { const v = document.querySelector('video'); v.currentTime = end - 0.3; v.play() }", end_s)
    until(page, "start => { const t = document.querySelector('video').currentTime; return t < start + 1 }", arg=start_s)
    assert play_time(page) >= start_s - 0.1
    shot(page, "player")


def test_a_span_at_the_end_of_its_video_loops_too(visit):
    page = visit("?q=white")
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    until(page, "document.querySelector('video')?.readyState > 1")
    page.evaluate("{ const v = document.querySelector('video'); v.currentTime = v.duration - 0.3; void v.play() }")
    until(page, "(v => !v.paused && v.currentTime < v.duration - 0.5)(document.querySelector('video'))")
    assert play_time(page) > 3.5


def test_the_time_axis_shows_the_picture_under_the_pointer(visit, shot):
    page = visit("?q=white")
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    axis = page.get_by_role("slider", name="Time in the video")
    addresses = []
    for part in (0.2, 0.8):
        box = axis.bounding_box()
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        preview = page.locator(".preview img")
        preview.wait_for()
        until(page, "document.querySelector('.preview img').naturalWidth > 0")
        addresses.append(preview.get_attribute("src"))
    shot(page, "preview")
    assert len(set(addresses)) == 2
    page.mouse.move(0, 0)
    assert page.locator(".preview").count() == 0


def test_space_pauses_while_a_tile_has_the_focus(visit):
    page = with_first_playing(visit)
    assert page.evaluate("document.activeElement.matches('.tile')")
    until(page, "!document.querySelector('video').paused")
    page.keyboard.press("Space")
    until(page, "document.querySelector('video').paused")


def test_a_click_in_the_curve_goes_to_its_time(visit):
    page = visit("?q=green")
    page.locator(f"{TILE}[aria-label^='flag.webm']").first.click()
    axis = page.get_by_role("slider", name="Time in the video, with relevance")
    axis.wait_for()
    box = page.locator("canvas").bounding_box()
    page.locator("canvas").click(position={"x": box["width"] * 0.75, "y": 30})
    until(page, "Math.abs(document.querySelector('video').currentTime - 9) < 1.2")
    inked = page.evaluate(
        "(() => { const c = document.querySelector('canvas'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0;"
        " return n })()"
    )
    assert inked > 500
    page.keyboard.press("s")
    until(page, "document.querySelector('#q').value === ''")
    axis.wait_for()  # of the search for the frame
    axis.press("ArrowRight")
    until(page, "Number(document.querySelector('.ruler').getAttribute('aria-valuenow')) > 9")


def test_a_proxy_plays_if_the_browser_cannot_decode_the_file(visit, shot):
    page = visit("?q=white", trouble=True)
    page.locator(f"{TILE}[aria-label^='old.avi']").first.click()
    page.get_by_text("Proxy", exact=True).wait_for()
    until(page, f"{STATUS} === 'Playing'")
    first = play_time(page)
    until(page, "before => document.querySelector('video').currentTime > before + 0.3", first)
    shot(page, "proxy")
    page.keyboard.press("k")
    page.keyboard.press("Home")  # before the part of the video that plays
    until(page, f"{STATUS} === 'Paused' && {TIMECODE} === '00:00:00:00'")
    until(page, "document.querySelector('video').readyState > 1")
    page.keyboard.press("m")  # sound does not start playback either
    page.wait_for_timeout(500)
    assert page.evaluate(STATUS) == "Paused"
    assert timecode(page) == "00:00:00:00"
    page.keyboard.press(".")
    until(page, f"{TIMECODE} === '00:00:00:03'")  # 10 frames per second, counted at 30 as in exports


def test_a_proxy_plays_from_the_peak(visit):
    def with_late_peak(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub(r'"peak_s": ?[\d.]+', '"peak_s":3.2', answer.text()))

    page = visit(trouble=True)
    page.route("**/api/search/lines", with_late_peak)
    ask(page, "white")
    page.evaluate(
        "window.times_s = []; addEventListener('timeupdate', event => times_s.push(event.target.currentTime), true)"
    )
    with page.expect_request(lambda request: "/proxy?" in request.url) as proxy:
        page.locator(f"{TILE}[aria-label^='old.avi']").first.click()
    start_s = seconds_in(proxy.value.url, "start_s")
    until(page, "start_s => times_s.some(at_s => start_s + at_s > 3.1)", arg=start_s)
    played_s = [start_s + at_s for at_s in page.evaluate("times_s")]
    assert not [at_s for at_s in played_s if start_s + 0.3 < at_s < 3.1], "nothing between its start and the peak"


def test_a_follow_up_is_shown_beside_the_moment_and_played(visit, shot):
    page = visit("?q=white&then=green")
    tile = page.locator(f"{TILE}[aria-label^='flag.webm']").first
    tile.locator("img").nth(1).wait_for()
    until(page, "[...document.querySelectorAll('button.tile img')].slice(0, 2).every(img => img.naturalWidth > 0)")
    with page.expect_response(lambda response: "/edges?" in response.url):  # the edges move to the exact cuts
        tile.click()
    player = page.get_by_role("article", name="Player")
    assert player.get_by_role("button", name="First ").get_attribute("aria-pressed") == "true"
    until(page, "document.querySelector('video')?.readyState > 1")
    start_s = seconds_in(page.url, "s")
    shot(page, "then")
    player.get_by_role("button", name="Then ").click()
    then_s = seconds_in(page.url, "s")
    assert then_s > start_s
    until(page, "at => Math.abs(document.querySelector('video').currentTime - at) < 1", arg=then_s)
    assert player.get_by_role("button", name="Then ").get_attribute("aria-pressed") == "true"
    player.get_by_role("button", name="First ").click()
    assert seconds_in(page.url, "s") == start_s


def test_j_k_l_play_stop_and_step(visit):
    page = open_sea(visit)
    until(page, f"{STATUS} === 'Playing'")
    page.keyboard.press("k")
    until(page, f"{STATUS} === 'Paused' && document.querySelector('video').paused")
    before = frame_number(timecode(page))
    page.keyboard.down("k")
    page.keyboard.press("l")
    page.wait_for_timeout(100)
    assert frame_number(timecode(page)) == before + 1
    for key, expected in (("j", before), (".", before + 1), (",", before), ("Shift+ArrowRight", before + 1)):
        if key != "j":
            page.keyboard.up("k")
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        assert frame_number(timecode(page)) == expected, key
    page.keyboard.press("l")
    page.keyboard.press("l")
    until(page, f"{STATUS} === '2× speed' && document.querySelector('video').playbackRate === 2")
    page.keyboard.press("v")  # play on, so that the loop does not interfere
    page.keyboard.press("End")
    page.keyboard.press("j")
    until(page, f"{STATUS} === '−1× speed'")
    at_s = play_time(page)
    until(page, "at => document.querySelector('video').currentTime < at - 0.3", at_s)
    page.keyboard.press("k")
    until(page, f"{STATUS} === 'Paused'")


def test_j_plays_backwards_at_normal_speed(visit):
    page = open_sea(visit)
    page.keyboard.press("v")
    page.keyboard.press("End")
    page.keyboard.press("j")
    until(page, f"{STATUS} === '−1× speed'")
    ratio = page.evaluate(
        """() => new Promise(done => {
          const at = () => [performance.now() / 1000, document.querySelector('video').currentTime]
          const [start, from_s] = at()
          setTimeout(() => {
            const [end, to_s] = at()
            done((from_s - to_s) / (end - start))
          }, 2500)
        })"""
    )
    assert ratio == pytest.approx(1, abs=0.25)


def test_the_picture_fills_the_screen_and_the_controls_are_at_its_bottom(visit, shot):
    page = open_sea(visit)
    page.keyboard.press("k")
    page.keyboard.press("f")
    until(page, "document.fullscreenElement?.querySelector('video')?.clientHeight === innerHeight")
    assert page.evaluate("document.querySelector('video').clientWidth === innerWidth")
    pause = page.get_by_role("button", name="Play", exact=True)
    shot(page, "full_screen")
    pause.click()
    until(page, f"{STATUS} === 'Playing'")
    shot(page, "full_screen_pointer")
    opacity = "getComputedStyle(document.querySelector('.side')).opacity"
    assert page.evaluate(opacity) == "1"
    page.mouse.move(600, 200)
    until(page, f"{opacity} === '0'")
    shot(page, "full_screen_playing")
    page.mouse.click(600, 200)
    until(page, f"{STATUS} === 'Paused' && {opacity} === '1'")
    page.keyboard.press("f")
    until(page, "!document.fullscreenElement && document.querySelector('video').clientHeight < innerHeight / 2")


@pytest.mark.parametrize("size", [(390, 844), (844, 390)], ids=["portrait", "landscape"])
def test_in_full_screen_on_a_phone_a_tap_shows_the_controls(visit, shot, size):
    width, height = size
    page = open_sea(visit, width=width, height=height, has_touch=True, is_mobile=True)
    page.get_by_role("button", name="Larger player").tap()
    page.get_by_role("button", name="Full screen").tap()
    until(page, "document.fullscreenElement !== null")
    until(page, f"{STATUS} === 'Playing'")
    page.touchscreen.tap(width / 2, height / 3)
    until(page, f"{STATUS} === 'Paused'")
    page.touchscreen.tap(width / 2, height / 3)
    until(page, f"{STATUS} === 'Playing' && getComputedStyle(document.querySelector('.side')).opacity === '0'")
    for name in ("Close", "Leave full screen"):
        box = page.get_by_role("button", name=name).bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        until(page, f"{STATUS} === 'Paused'")
        assert page.evaluate("document.fullscreenElement !== null"), "the tap reached no hidden button"
        shot(page, f"full_screen_phone_{width}")
        page.touchscreen.tap(width / 2, height / 3)
        until(page, f"{STATUS} === 'Playing'")
    page.touchscreen.tap(width / 2, height / 3)
    until(page, f"{STATUS} === 'Paused'")
    page.get_by_role("button", name="Leave full screen").tap()
    until(page, "document.fullscreenElement === null")
    page.get_by_role("button", name="Full screen", exact=True).wait_for()


def test_i_and_o_trim_to_the_frame_on_screen(visit):
    page = open_sea(visit)
    page.keyboard.press("k")
    page.keyboard.press("v")
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press(".")
    page.wait_for_timeout(100)
    assert timecode(page) == "00:00:00:03"
    page.keyboard.press("i")
    page.keyboard.press(">")
    page.wait_for_timeout(100)
    page.keyboard.press("o")
    shown = [page.text_content(f"output[aria-label={name}]") for name in ("Start", "End", "Length")]
    assert shown == ["00:00:00:03", "00:00:00:13", "00:00:00:11"]
    assert seconds_in(page.url, "s") == pytest.approx(3 * FRAME_S)
    assert seconds_in(page.url, "e") == pytest.approx(14 * FRAME_S)
    page.keyboard.press("]")
    page.keyboard.press("{")
    assert page.text_content("output[aria-label=Length]") == "00:00:00:11"
    page.keyboard.press("Shift+I")
    until(page, f"{TIMECODE} === '00:00:00:04'")
    page.keyboard.press("Shift+O")
    until(page, f"{TIMECODE} === '00:00:00:14'")


@pytest.fixture(scope="module")
def clocks(tmp_path_factory):
    """The address of a service with two videos whose frames show their number.

    The sound of `late.mp4` begins 0.48 s before its picture. `gap.mp4` has no frames from 0.4 to 0.48 s.
    """
    folder = tmp_path_factory.mktemp("clocks")
    stamps = constant_stamps(250, start_s=0.48)
    write_clock(folder / "late.mp4", stamps, codec="libvpx-vp9", options=VP9["options"], has_sound=True, sound_s=10.0)
    stamps = [stamp for number, stamp in enumerate(constant_stamps(100)) if number not in (10, 11)]
    write_clock(folder / "gap.mp4", stamps, codec="libvpx-vp9", options=VP9["options"])
    write_clock(folder / "phone.mp4", PHONE, codec="libvpx-vp9", options=VP9["options"])
    library = untrimmed.open(folder / "library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "load_encoder", load_toy)
        library.index(folder)
    with served(library) as address:
        yield address


def number_on_screen(page):
    """The number that the frame of the video element shows."""
    pixels = page.evaluate(
        """() => {
          const video = document.querySelector('video')
          const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight)
          const pen = canvas.getContext('2d')
          pen.drawImage(video, 0, 0)
          return [canvas.width, canvas.height, Array.from(pen.getImageData(0, 0, canvas.width, canvas.height).data)]
        }"""
    )
    width, height, values = pixels
    return read_clock(np.array(values, dtype=np.uint8).reshape(height, width, 4)[:, :, :3])


def paused_at_start(visit, clocks, name):
    """A page on which a video of `clocks` is paused at its first frame."""
    page = visit("?q=red", at=clocks)
    page.locator(f"{TILE}[aria-label^='{name}']").click()
    until(page, "document.querySelector('video')?.readyState > 1")
    for key in ("v", "k", "Home"):
        page.keyboard.press(key)
    return page


def test_each_frame_of_a_file_with_a_variable_rate_is_reached_and_cut(visit, clocks, tmp_path):
    page = paused_at_start(visit, clocks, "phone.mp4")
    page.get_by_text("timecodes are approximate").wait_for()
    for number in (*range(1, 13), 22, 21):
        page.keyboard.press("," if number == 21 else ">" if number == 22 else ".")
        deadline = time.monotonic() + 10
        while number_on_screen(page) != number:
            assert time.monotonic() < deadline, (number, number_on_screen(page))
            page.wait_for_timeout(50)
    page.keyboard.press("o")
    edge = "name => Number(new URLSearchParams(location.search).get(name))"
    until(page, f"end_s => Math.abs(({edge})('e') - end_s) < 0.002", PHONE[22])
    page.keyboard.press("}")
    until(page, f"end_s => Math.abs(({edge})('e') - end_s) < 0.002", PHONE[21])
    for _ in range(4):
        page.keyboard.press(",")
        page.wait_for_timeout(100)
    first = number_on_screen(page)
    page.keyboard.press("i")
    until(page, f"start_s => Math.abs(({edge})('s') - start_s) < 0.002", PHONE[first])
    query = {"start_s": seconds_in(page.url, "s"), "end_s": seconds_in(page.url, "e")}
    clip = page.request.get(f"{clocks}api/videos/{page.evaluate(VIDEO)}/clip", params=query)
    (tmp_path / "clip.mp4").write_bytes(clip.body())
    with av.open(str(tmp_path / "clip.mp4")) as file:
        numbers = [read_clock(frame.to_ndarray(format="rgb24")) for frame in file.decode(video=0)]
    assert numbers == list(range(first, 21))
    box = page.get_by_role("slider", name="Out", exact=True).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(page.locator(".axis").bounding_box()["x"], box["y"] + 20, steps=5)
    page.mouse.up()
    until(page, f"end_s => Math.abs(({edge})('e') - end_s) < 0.002", PHONE[first + 1])


def test_keys_run_in_order_while_the_frames_of_a_file_are_requested(visit, clocks):
    page = paused_at_start(visit, clocks, "phone.mp4")
    for key in (".", ".", ".", "i", ".", "o"):
        page.keyboard.press(key)
    edges = "['s', 'e'].map(name => Number(new URLSearchParams(location.search).get(name)))"
    until(page, f"wanted => {edges}.every((at_s, i) => Math.abs(at_s - wanted[i]) < 0.002)", [PHONE[3], PHONE[5]])
    page.route("**/frames?*", lambda route: (time.sleep(0.5), route.continue_()))
    page.reload()
    page.get_by_text("timecodes are approximate").wait_for()
    for key in ("Home", "Shift+O", ".", ".", "o"):
        page.keyboard.press(key)
    until(page, f"end_s => Math.abs({edges}[1] - end_s) < 0.002", PHONE[7])
    assert seconds_in(page.url, "s") == pytest.approx(PHONE[3], abs=0.002)


def test_the_timecode_is_that_of_the_frame_on_screen(visit, clocks):
    page = paused_at_start(visit, clocks, "late.mp4")
    for _ in range(3):
        page.keyboard.press(".")
    until(page, f"{TIMECODE} === '00:00:00:03'")
    page.wait_for_timeout(200)
    assert number_on_screen(page) == 3
    for _ in range(6):
        page.keyboard.press("l")
        page.wait_for_timeout(330)
        page.keyboard.press("k")
        page.wait_for_timeout(200)
        shown = number_on_screen(page)
        assert frame_number(timecode(page)) == shown
        page.keyboard.press(".")
        page.wait_for_timeout(200)
        assert number_on_screen(page) == shown + 1
    page.keyboard.press("i")
    assert seconds_in(page.url, "s") == pytest.approx((shown + 1) * FRAME_S)


def test_steps_pass_a_frame_that_is_held(visit, clocks):
    page = paused_at_start(visit, clocks, "gap.mp4")
    for frame in range(1, 16):
        page.keyboard.press(".")
        until(page, f"{TIMECODE} === '00:00:00:{frame:02}'")
        page.wait_for_timeout(50)


def test_edges_are_dragged_to_frames_and_moved_by_keys(visit, shot):
    page = open_sea(visit)
    edge = page.get_by_role("slider", name="In", exact=True)
    start_s = seconds_in(page.url, "s")
    assert page.get_by_text("at a shot change").count() > 0
    box = edge.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 31, y, steps=5)
    page.mouse.up()
    moved_s = seconds_in(page.url, "s")
    assert moved_s < start_s - 0.1
    assert moved_s / FRAME_S == pytest.approx(round(moved_s / FRAME_S), abs=0.02), "a whole number of frames"
    assert edge.get_attribute("aria-valuetext") == page.text_content("output[aria-label=Start]")
    shot(page, "trim")
    page.mouse.down()
    page.mouse.move(x - 62, y, steps=5)
    assert seconds_in(page.url, "s") < moved_s
    edge.dispatch_event("pointercancel", {"pointerId": 1})
    assert seconds_in(page.url, "s") == moved_s, "the system has cancelled the trim"
    page.mouse.up()
    edge.press("ArrowRight")
    assert seconds_in(page.url, "s") == pytest.approx(moved_s + FRAME_S, abs=0.001)
    edge.press("Shift+ArrowLeft")
    assert seconds_in(page.url, "s") == pytest.approx(moved_s - 9 * FRAME_S, abs=0.001)
    edge.press("End")
    assert seconds_in(page.url, "s") == pytest.approx(seconds_in(page.url, "e") - FRAME_S, abs=0.001)


def test_the_axis_zooms_around_the_pointer_pans_and_fits(visit, shot):
    page = open_sea(visit)
    page.keyboard.press("k")
    body = page.locator(".body")
    box = body.bounding_box()

    def labels():
        return [text for text in page.locator(".ruler span").all_text_contents() if text.strip()]

    whole = labels()
    axis = page.locator(".axis").bounding_box()
    for label in page.locator(".ruler span").all():
        place = label.bounding_box()
        assert place["x"] + place["width"] <= axis["x"] + axis["width"], "not cut off"
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    for _ in range(6):
        page.mouse.wheel(0, -200)
    until(page, "before => document.querySelector('.ruler').textContent !== before", "".join(whole))
    close = labels()
    frames = [frame_number(code) for code in close]
    assert max(frames) - min(frames) < 25, "less than a second"
    shot(page, "zoom")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 30, steps=5)
    page.mouse.up()
    until(page, "before => document.querySelector('.ruler').textContent !== before", "".join(close))
    assert min(map(frame_number, labels())) > min(frames), "panned, not sought"
    page.keyboard.press("z")  # the moment with its surroundings, which is all of this short video
    until(page, "before => document.querySelector('.ruler').textContent === before", "".join(whole))
    page.mouse.wheel(0, -500)
    until(page, "before => document.querySelector('.ruler').textContent !== before", "".join(whole))
    body.dblclick(position={"x": 100, "y": 30})
    until(page, "before => document.querySelector('.ruler').textContent === before", "".join(whole))


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_double_click_or_z_shows_the_moment_although_the_playhead_is_elsewhere(visit, is_paused):
    page = visit("?q=green")
    page.locator(f"{TILE}[aria-label^='flag.webm']").first.click()
    until(page, f"document.querySelector('video')?.readyState > 1 && {TIMECODE}.length === 11")
    if is_paused:
        page.keyboard.press("k")
    body = page.locator(".body")
    end = {"x": 0.9 * body.bounding_box()["width"], "y": 30}
    ruler = "document.querySelector('.ruler').textContent"
    whole = page.evaluate(ruler)
    body.dblclick(position=end)
    page.wait_for_timeout(500)
    assert play_time(page) > 10
    moment = page.evaluate(ruler)
    assert moment != whole
    body.dblclick(position=end)
    page.wait_for_timeout(500)
    assert page.evaluate(ruler) == whole
    page.keyboard.press("End")
    page.keyboard.press("z")
    page.wait_for_timeout(500)
    assert page.evaluate(ruler) == moment
    page.keyboard.press("Home")
    until(page, f"{ruler} !== before".replace("before", repr(moment)))  # the playhead is visible again


@pytest.mark.parametrize("is_variable", [True, False])
def test_timecodes_of_a_file_with_a_variable_rate_are_called_approximate(visit, is_variable):
    def with_rate(route):
        answer = route.fetch()
        body = answer.json()
        route.fulfill(response=answer, json=body | {"has_variable_rate": is_variable})

    page = visit("?q=white")
    page.wait_for_selector(TILE)
    page.route(re.compile(r"/api/videos/[0-9a-f]+$"), with_rate)
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    until(page, f"{TIMECODE}.length === 11")
    page.wait_for_timeout(100)
    assert page.get_by_text("timecodes are approximate").count() == is_variable


def test_the_end_of_a_file_shows_its_last_frame(visit):
    page = open_sea(visit)
    page.keyboard.press("k")
    page.keyboard.press("v")
    page.keyboard.press("End")
    until(page, f"{TIMECODE} === '00:00:05:24'")
    page.keyboard.press("l")
    until(page, "document.querySelector('video').ended")
    page.wait_for_timeout(100)
    assert timecode(page) == "00:00:05:24"
    page.keyboard.press(",")
    until(page, f"{TIMECODE} === '00:00:05:23'")


def test_the_state_is_that_of_the_video(visit):
    page = visit("?q=white", trouble=True)
    page.wait_for_selector(TILE)
    page.route("**/media", lambda route: None)  # never answered
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    until(page, f"{STATUS} === 'Loading'")
    page.wait_for_timeout(500)
    assert page.evaluate(STATUS) == "Loading", "nothing has arrived"
    page.unroute("**/media")
    page.reload()
    until(page, f"{STATUS} === 'Playing'")
    page.evaluate("document.querySelector('video').pause()")  # as a browser does, for example for a call
    until(page, f"{STATUS} === 'Paused'")


def test_arrow_keys_play_the_next_moment(visit):
    page = with_first_playing(visit)
    first = page.url
    page.keyboard.press("ArrowRight")
    until(page, "before => location.href !== before", first)
    chosen = page.locator("[data-chosen=true]").get_attribute("aria-label")
    until(page, "name => document.querySelector('video').ariaLabel === name", chosen.partition(",")[0])
    until(page, f"{STATUS} === 'Playing'")
    page.go_back()
    until(page, "!document.querySelector('video')")


def test_a_trim_is_undone_and_redone(visit):
    page = open_sea(visit)
    before_s = seconds_in(page.url, "s")
    page.keyboard.press("{")
    after_s = seconds_in(page.url, "s")
    assert after_s == pytest.approx(before_s + FRAME_S, abs=0.002)
    page.keyboard.press("Control+z")
    assert seconds_in(page.url, "s") == pytest.approx(before_s, abs=0.002)
    page.keyboard.press("Control+Shift+Z")
    assert seconds_in(page.url, "s") == pytest.approx(after_s, abs=0.002)


def test_a_trim_stays_while_another_moment_is_open_and_can_be_undone_afterwards(visit):
    page = open_sea(visit)
    first = page.evaluate(VIDEO)
    before_s = seconds_in(page.url, "s")
    page.keyboard.press("{")
    until(
        page,
        f"before_s => Math.abs(Number(new URLSearchParams(location.search).get('s')) - before_s - {FRAME_S}) < 0.002",
        before_s,
    )
    page.keyboard.press("ArrowRight")
    until(page, f"other => {VIDEO} !== other", first)
    page.keyboard.press("ArrowLeft")
    until(page, f"first => {VIDEO} === first", first)
    assert seconds_in(page.url, "s") == pytest.approx(before_s + FRAME_S, abs=0.002)
    page.keyboard.press("Control+z")
    assert seconds_in(page.url, "s") == pytest.approx(before_s, abs=0.002)


def test_a_drag_that_is_held_while_another_moment_opens_trims_only_its_own_moment(visit):
    page = open_sea(visit)
    first = page.evaluate(VIDEO)
    box = page.get_by_role("slider", name="Out", exact=True).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 40, y, steps=5)
    end_s = seconds_in(page.url, "e")
    with page.expect_response(lambda response: "/edges?" in response.url):
        page.keyboard.press("ArrowRight")
        until(page, f"other => {VIDEO} !== other", first)
    until(page, f"{TIMECODE}.length === 11")
    page.wait_for_timeout(300)
    other = page.url
    page.mouse.move(x - 80, y, steps=5)
    page.mouse.up()
    page.wait_for_timeout(300)
    assert page.url == other
    page.keyboard.press("ArrowLeft")
    until(page, f"first => {VIDEO} === first", first)
    assert seconds_in(page.url, "e") == end_s
    page.keyboard.press("Control+z")
    until(page, "end_s => Number(new URLSearchParams(location.search).get('e')) > end_s + 0.1", end_s)


def test_escape_cancels_a_drag_and_then_closes_the_player(visit):
    page = open_sea(visit)
    end_s = seconds_in(page.url, "e")
    box = page.get_by_role("slider", name="Out", exact=True).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 40, y, steps=5)
    assert seconds_in(page.url, "e") < end_s
    page.keyboard.press("Escape")
    assert seconds_in(page.url, "e") == end_s
    page.mouse.move(x - 80, y, steps=5)
    page.mouse.up()
    assert seconds_in(page.url, "e") == end_s
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('video')")


def test_a_trim_of_a_result_stays_after_back_and_a_reload(visit):
    page = open_sea(visit)
    page.keyboard.press("{")
    page.keyboard.press("}")
    page.wait_for_timeout(300)
    edges = [seconds_in(page.url, name) for name in "se"]
    page.keyboard.press("Escape")
    page.fill("#q", "green")
    page.press("#q", "Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    page.go_back()
    page.go_back()
    assert "q=white" in page.url
    page.reload()
    page.locator(f"{TILE}[aria-label^='sea.webm']").first.click()
    until(page, f"({VIDEO} ?? '') !== ''")
    assert [seconds_in(page.url, name) for name in "se"] == edges


def test_home_moves_the_playhead_after_an_edge_was_dragged(visit):
    page = open_sea(visit)
    box = page.get_by_role("slider", name="Out", exact=True).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.locator("#q").focus()
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 20, y, steps=5)
    page.mouse.up()
    end_s = seconds_in(page.url, "e")
    page.keyboard.press("Home")
    until(page, f"{TIMECODE} === '00:00:00:00'")
    assert seconds_in(page.url, "e") == end_s


def test_escape_in_a_drag_returns_to_the_frame_before_it(visit):
    page = open_sea(visit)
    page.keyboard.press("k")
    page.keyboard.press("Shift+I")
    page.keyboard.press(">")
    before = page.evaluate(TIMECODE)
    box = page.get_by_role("slider", name="Out", exact=True).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 20, y, steps=5)
    assert page.evaluate(TIMECODE) != before
    page.keyboard.press("Escape")
    until(page, f"{TIMECODE} === '{before}'")
    page.mouse.up()


def test_the_end_key_stays_at_the_last_frame_of_a_moment_that_loops(visit):
    page = open_sea(visit)
    page.keyboard.press("End")
    until(page, f"{TIMECODE} === '00:00:05:24'")
    page.wait_for_timeout(300)
    assert page.evaluate(TIMECODE) == "00:00:05:24"


def test_the_handles_of_a_moment_of_one_frame_are_apart_and_inside_the_axis(visit):
    page = open_sea(visit)
    page.keyboard.press("End")
    page.keyboard.press("i")
    page.keyboard.press("o")
    axis, start, end = (page.locator(place).bounding_box() for place in (".axis", ".edge.start_s", ".edge.end_s"))
    assert seconds_in(page.url, "e") - seconds_in(page.url, "s") == pytest.approx(FRAME_S, abs=0.002)
    assert axis["x"] <= start["x"] < start["x"] + start["width"] <= end["x"] + 0.5
    assert end["x"] + end["width"] <= axis["x"] + axis["width"] + 0.5
    at = page.evaluate("([x, y]) => document.elementFromPoint(x, y).ariaLabel", [start["x"] + 4, start["y"] + 30])
    assert at == "In"
