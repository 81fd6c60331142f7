"""Cuts of damaged and unusual files begin and end with the right frames, or are refused."""

import numpy as np
import pytest
from PIL import Image

from tests.unusual_media import CLIPS, MAKERS, make_unusual
from untrimmed.errors import VideoError
from untrimmed.video.reader import Sampling, VideoReader, cut

FPS = 50.0
QUICK = ["open groups.mkv", "refreshed.mp4", "zeroed.mp4", "clock breaks.mkv"]


def small_frames(path):
    """The picture at every 1 / FPS s, in 20 x 12 colours."""
    with VideoReader(sampling=Sampling(fps=FPS)) as reader:
        pictures = [Image.fromarray(frame) for batch in reader.read(path) for frame in batch.frames]
    return [np.asarray(picture.resize((20, 12), Image.Resampling.BOX)).astype(int) for picture in pictures]


def check_cuts(path, out):
    """Cut the beginning, two spans inside, and the end of a file."""
    try:
        frames = small_frames(path)
    except VideoError:
        with pytest.raises(VideoError):
            cut(path, 0.0, 1.0, out)
        return
    length = min(int(FPS), len(frames) // 3)
    for first in (0, len(frames) // 4, len(frames) * 11 // 20, len(frames) - length):
        cut(path, first / FPS, (first + length) / FPS, out, overwrite=True)
        written = small_frames(out)
        assert len(written) == pytest.approx(length, abs=1)
        middle = len(written) // 2
        for picture, number in (
            (written[0], first),
            (written[middle], first + middle),
            (written[-1], first + length - 1),
        ):
            # An edge between two frames is moved by up to half a frame: one picture, at 25 frames per second.
            near = frames[max(0, number - 1) : number + 2]
            assert min(np.abs(picture - frame).max() for frame in near) < 40


@pytest.mark.parametrize("name", QUICK)
def test_a_cut_of_an_unusual_file_has_the_right_frames(tmp_path, name):
    check_cuts(make_unusual(tmp_path, name), tmp_path / "out.mp4")


@pytest.mark.check
@pytest.mark.parametrize("name", [name for name in (*CLIPS, *MAKERS) if name not in QUICK])
def test_a_cut_of_any_unusual_file_has_the_right_frames_or_is_refused(tmp_path, name):
    check_cuts(make_unusual(tmp_path, name), tmp_path / "out.mp4")


@pytest.mark.slow
@pytest.mark.shared
def test_cuts_of_real_videos_have_the_right_frames(shared, tmp_path):
    for path in sorted((shared / "videos").glob("*.m[po][4v]")):
        check_cuts(path, tmp_path / "out.mp4")
