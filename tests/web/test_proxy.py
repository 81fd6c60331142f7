"""A proxy plays in a browser while it is rendered, and can be sought in when it is whole."""

import pytest

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
