import numpy as np
import pytest

from tests.media import write_clip as write_clock
from tests.toy import write_clip
from untrimmed.search.edges import ExactEdges
from untrimmed.span import Evidence, Moment
from untrimmed.video import shot_changes
from untrimmed.video.reader import FrameBatch, FrameReader


def batch(*levels):
    frames = np.stack([np.full((4, 6, 3), level, np.uint8) for level in levels])
    return FrameBatch(np.arange(len(levels)) / 10, frames)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((10, 11, 10, 90, 91, 90), 0.3),
        ((10, 30, 50, 70, 90, 110), None),  # a fade or a moving camera
        ((10, 11, 10, 18, 18, 19), None),  # too similar
        ((10,), None),
    ],
)
def test_a_shot_change_is_one_difference_that_is_much_larger_than_the_others(levels, expected):
    assert shot_changes.shot_change_s(batch(*levels)) == expected


@pytest.fixture
def clip(tmp_path):
    """A clip of 2 s red, 6 s blue and 2 s green."""
    path = tmp_path / "clip.mp4"
    write_clip(path, ["red", "blue", "blue", "blue", "green"], seconds_each=2)
    return path


def test_a_key_frame_that_is_on_screen_at_the_start_has_its_own_time(tmp_path):
    slides = write_clock(tmp_path / "slides.mkv", [0, 0.04, 5, 15, 25], codec="mjpeg", pix_fmt="yuvj420p")
    with FrameReader() as reader:
        assert reader.frames_between(slides, 16, 24, short_side=8).times_s.tolist() == [15]
        assert reader.frames_between(slides, 12.5, 20.5, short_side=8).times_s.tolist() == [5, 15]


@pytest.mark.parametrize("still_s", [6.0, 40.0])
def test_a_still_picture_before_a_key_frame_is_found_although_a_seek_lands_after_it(tmp_path, still_s):
    times_s = [part * (1.0 + still_s) + number / 24 for part in range(3) for number in range(25)]
    options = {"bf": "3", "g": "25", "sc_threshold": "0"}
    recording = write_clock(tmp_path / "recording.mp4", times_s, codec="libx264", options=options)
    with FrameReader() as reader:
        for start_s in (1.0 + still_s / 2, 2.0 + still_s * 1.5, 2.0 + still_s * 1.9):
            frames = reader.frames_between(recording, start_s, start_s + 0.5, short_side=8)
            assert frames.times_s == pytest.approx([max(time_s for time_s in times_s if time_s <= start_s)], abs=1e-3)


def test_all_frames_between_two_times_are_read_also_after_a_seek(clip):
    with FrameReader() as reader:
        early, late = (reader.frames_between(clip, start, start + 1, short_side=16) for start in (1.5, 7.5))
    for frames, start_s, colours in ((early, 1.5, (0, 2)), (late, 7.5, (2, 1))):
        gaps_s = np.diff(frames.times_s)
        assert np.allclose(gaps_s, gaps_s[0])
        assert frames.times_s[0] <= start_s
        assert frames.times_s[-1] > start_s + 1 - gaps_s[0]
        assert tuple(frames.frames[i].mean(axis=(0, 1)).argmax() for i in (0, -1)) == colours


def test_edges_move_to_the_shot_changes(clip):
    edges = ExactEdges()
    exact = edges.moment(clip, Moment(1.75, 8.25, 0.5, 1.9), duration_s=10.0)
    assert (exact.start_s, exact.end_s) == pytest.approx((2.0, 8.0), abs=0.01)
    assert exact.peak_s == exact.start_s
    assert edges.moment(clip, Moment(3.5, 6.0), duration_s=10.0) == Moment(3.5, 6.0), "no shot change is near"
    assert edges.moment(clip, Moment(0.0, 10.0), duration_s=10.0) == Moment(0.0, 10.0)
    short = Moment(1.6, 2.4)
    assert edges.moment(clip, short, duration_s=10.0, min_s=1.0) == short
    edges.close()


def test_the_edges_of_a_moment_with_words_do_not_move_inwards(clip):
    edges = ExactEdges()
    said = Moment(1.75, 7.75, evidence=(Evidence("said", 1.75, 7.75, "politics"),))
    exact = edges.moment(clip, said, duration_s=10.0)
    assert (exact.start_s, exact.end_s) == (1.75, pytest.approx(8.0, abs=0.01)), "only the end is extended"
    seen = Moment(1.75, 7.75, evidence=(Evidence("seen", 1.75, 7.75),))
    assert edges.moment(clip, seen, duration_s=10.0).start_s == pytest.approx(2.0, abs=0.01)
    assert edges.moment(clip, Moment(1.75, 7.75), duration_s=10.0, extend_only=True) == exact
    edges.close()


def test_edges_are_cached_and_those_of_unreadable_files_stay(clip):
    edges = ExactEdges()
    first = edges.moment(clip, Moment(1.75, 8.25), duration_s=10.0)
    clip.unlink()
    assert edges.moment(clip, Moment(1.75, 8.25), duration_s=10.0) == first
    assert edges.moment(clip, Moment(1.5, 8.5), duration_s=10.0) == Moment(1.5, 8.5)
    edges.close()
