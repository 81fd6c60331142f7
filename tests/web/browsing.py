"""Helpers for tests of the page."""

import re
import time

TILE = "button.tile"


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


def tile_names(page):
    return page.locator(TILE).evaluate_all("tiles => tiles.map(tile => tile.getAttribute('aria-label'))")


def play_time(page):
    return page.evaluate("document.querySelector('video').currentTime")


def timecode(page):
    """The timecode of the inspector."""
    return page.text_content("output[aria-label=Timecode]")


def seconds_in(address, name):
    return float(re.search(rf"[?&]{name}=([\d.]+)", address).group(1))


def with_first_selected(visit):
    """A page on which keys have selected a sentence's first moment."""
    page = visit()
    page.keyboard.type("blue")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[role=status]').textContent.includes(' ms')")
    page.keyboard.press("ArrowDown")
    until(page, "document.activeElement.dataset.chosen === 'true'")
    return page


def with_first_playing(visit):
    """A page on which keys have opened a sentence's first moment, whose edges are at the exact cuts."""
    page = with_first_selected(visit)
    with page.expect_response(lambda response: "/edges?" in response.url):
        page.keyboard.press("Enter")
    page.wait_for_selector("video")
    return page


_PAINTED = """text => new Promise(done => {
  const box = document.getElementById('q'), list = document.querySelector('ol')
  box.value = text
  box.dispatchEvent(new Event('input', {bubbles: true}))
  const before = list.textContent, start = performance.now()
  const watch = new MutationObserver(() => {
    if (list.textContent === before || list.classList.contains('stale')) return
    watch.disconnect()
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)))
  })
  watch.observe(document.querySelector('main'), {subtree: true, childList: true, characterData: true, attributes: true})
  box.form.requestSubmit()
})"""


def painted_ms(page, text):
    """Milliseconds from Enter until the first hits of a sentence are painted, without pictures."""
    return page.evaluate(_PAINTED, text)
