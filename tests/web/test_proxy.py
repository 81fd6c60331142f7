"""A proxy plays in a browser while it is rendered, and can be sought in when it is whole."""

import pytest

import untrimmed
from tests.toy import write_clip
from tests.web.browsing import TILE, until
from tests.web.conftest import load_toy, served
from untrimmed.search import library as library_module

pytestmark = pytest.mark.check

PLAY = """address => new Promise((done, fail) => {
  const video = document.createElement('video')
  video.muted = true
  video.onerror = () => fail(new Error(video.error.message))
  video.onplaying = () => {
    const values = [video.duration, video.videoWidth, video.videoHeight, video.seekable.end(0)]
    video.onseeked = () => { done([...values, video.currentTime]); video.remove() }
    video.currentTime = 1.5
  }
  document.body.append(video)
  video.src = address
  video.play()
})"""


def test_a_browser_plays_a_proxy_of_a_file_that_it_cannot_decode(visit, library):
    page = visit()
    (video_id,) = [record.video_id for record in library.videos() if record.path.endswith("old.avi")]
    address = f"/api/videos/{video_id}/proxy?start_s=1&end_s=3"
    assert page.evaluate(PLAY, address)[:3] == [pytest.approx(2.0, abs=0.1), 320, 180]
    page.wait_for_timeout(500)  # until the proxy has its final name
    duration_s, *_, seekable_s, sought_s = page.evaluate(PLAY, address)
    assert (seekable_s, sought_s) == (pytest.approx(duration_s), pytest.approx(1.5, abs=0.3))


@pytest.fixture(scope="module")
def movies(tmp_path_factory):
    """The address of a library of two QuickTime files: one that browsers play, and one that they cannot decode."""
    folder = tmp_path_factory.mktemp("movies")
    write_clip(folder / "h264.mov", ["red", "white"], codec="libx264", size=(320, 180), fps=25)
    write_clip(folder / "mpeg4.mov", ["blue", "white"], size=(320, 180), fps=25)
    library = untrimmed.open(folder / "library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "load_encoder", load_toy)
        library.index(folder)
    with served(library) as address:
        yield address


def test_a_quicktime_file_plays_without_a_proxy_if_the_browser_can_decode_it(visit, movies):
    page = visit("?q=white", at=movies, trouble=True)
    for name, is_proxy in (("h264.mov", False), ("mpeg4.mov", True)):
        page.locator(f"{TILE}[aria-label^='{name}']").click()
        until(page, "name => document.querySelector('video')?.ariaLabel === name", name)
        until(page, "(video => video.videoWidth > 0 && video.currentTime > 0.5)(document.querySelector('video'))")
        assert page.get_by_text("Proxy", exact=True).count() == is_proxy, name
        until(page, "document.querySelector('[role=toolbar] [role=status]').textContent === 'Playing'")
