"""The page with the demo's library and `builtin`: the picture of the README, and figures of docs/service.md.

untrimmed demo && untrimmed serve --library demo/library
UNTRIMMED_DEMO_PAGE=http://127.0.0.1:8765/ UNTRIMMED_SCREENSHOTS=docs pytest -s tests/web/test_demo_page.py
"""

import os

import pytest

from tests.web.browsing import NAME, TILE, ask, painted_ms, until
from untrimmed.demo.queries import QUERIES

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(
        "UNTRIMMED_DEMO_PAGE" not in os.environ,
        reason="set UNTRIMMED_DEMO_PAGE to the address of a service of the demo's library",
    ),
]


@pytest.fixture
def demo(browser):
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(os.environ["UNTRIMMED_DEMO_PAGE"])
    page.wait_for_selector(TILE)
    ask(page, "the first search loads the encoder")
    yield page
    page.context.close()


def test_the_picture_of_the_readme(demo, shot):
    ask(demo, "a cup of espresso on a wooden table")
    demo.locator(TILE).first.click()
    demo.wait_for_selector("[role=slider][aria-label*='relevance']")
    demo.get_by_role("button", name="Add to bin").click()
    demo.evaluate("document.activeElement.blur()")
    until(demo, "document.querySelector('output[aria-label=Timecode]').textContent > '00:00:31:00'")
    shot(demo, "page")
    assert demo.locator(NAME).first.text_content() == "reel_07.mp4"


def test_first_hits_of_sentences_are_painted_within_300_ms(demo):
    spent_ms = sorted(painted_ms(demo, text) for text in QUERIES.values())
    print(f"Enter to first picture: median {spent_ms[len(spent_ms) // 2]:.0f}, worst {spent_ms[-1]:.0f} ms")
    assert spent_ms[len(spent_ms) // 2] < 300
