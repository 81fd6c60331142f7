"""Helpers for tests of the page."""

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
