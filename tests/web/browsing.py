"""Helpers for tests of the page."""

import re
import time

TILE = "button.tile"
NAME = ".card .name span"  # the name of a video below its picture
PARTS = "form ul"  # the chips of a query


def until(page, expression, arg=None, patience_s=20):
    """Wait until an expression is true in the page. Playwright's own function needs a policy that allows `eval`."""
    deadline = time.monotonic() + patience_s
    while not page.evaluate(expression, arg):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(30)


def ask(page, text):
    page.fill("#q", text)
    page.press("#q", "Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")


def video_names(page):
    """Names of the videos in the grid."""
    return page.locator(NAME).all_text_contents()


def tile_names(page):
    return page.locator(TILE).evaluate_all("tiles => tiles.map(tile => tile.getAttribute('aria-label'))")


def play_time(page):
    return page.evaluate("document.querySelector('video').currentTime")


def timecode(page):
    """The timecode of the inspector."""
    return page.text_content("output[aria-label=Timecode]")


def seconds_in(address, name):
    return float(re.search(rf"[?&]{name}=([\d.]+)", address).group(1))


def with_first_playing(visit):
    """A page on which keys have opened a sentence's first moment, whose edges are at the exact cuts."""
    page = visit()
    page.keyboard.type("blue")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    with page.expect_response(lambda response: "/edges?" in response.url) as edges:
        page.keyboard.press("ArrowDown")
    until(page, "document.activeElement.dataset.chosen === 'true'")
    page.wait_for_selector("video")
    end = "Number(new URLSearchParams(location.search).get('e'))"
    until(page, f"end_s => Math.abs({end} - end_s) < 1e-6", edges.value.json()["end_s"])
    return page


_PAINTED = """text => new Promise(done => {
  const box = document.getElementById('q'), list = document.querySelector('.hits')
  box.value = text
  box.dispatchEvent(new Event('input', {bubbles: true}))
  const before = list.textContent, start = performance.now()
  const look = () => {
    const image = list.querySelector('img'), isNew = list.textContent !== before && !list.classList.contains('stale')
    if (!isNew || !image?.complete || !image.naturalWidth) return requestAnimationFrame(look)
    setTimeout(() => done(performance.now() - start))
  }
  box.form.requestSubmit()
  look()
})"""


def painted_ms(page, text):
    """Milliseconds from Enter until the first picture of a sentence's hits is painted."""
    return page.evaluate(_PAINTED, text)
