"""Folders of numbered pictures as videos."""

import numpy as np
import pytest
from PIL import Image

from tests.media import clock_frame, read_clock, write_clip, write_pictures
from tests.refusals import refused
from untrimmed.errors import ConfigError, VideoError
from untrimmed.video.pictures import read_pictures
from untrimmed.video.reader import FrameReader, Limits, Sampling, VideoReader
from untrimmed.video.timeline import check_fps


def write_clocks(folder, numbers, **options):
    """A folder in which the picture with the i-th number shows the clock at i."""
    return write_pictures(folder, map(clock_frame, range(len(numbers))), numbers, **options)


def read(path, fps, pictures_fps=None, limits=Limits()):
    with VideoReader(sampling=Sampling(fps=fps), limits=limits) as reader:
        stream = reader.read(path, pictures_fps=pictures_fps)
        batches = list(stream)
    frames = np.concatenate([batch.frames for batch in batches])
    return stream, np.concatenate([batch.times_s for batch in batches]), frames


@pytest.mark.parametrize("fps", [1.0, 3.0, 25.0])
def test_a_folder_gives_the_frames_of_the_lossless_video_of_its_pictures(fps, tmp_path):
    stamps = [index / 3 for index in range(20)]
    folder = write_clocks(tmp_path / "frames", range(1, 21))
    video = write_clip(tmp_path / "video.mov", stamps, codec="png", pix_fmt="rgb24", rate=3, ticks=3)
    of_folder, folder_times_s, folder_frames = read(folder, fps, 3.0)
    of_video, video_times_s, video_frames = read(video, fps)
    assert np.array_equal(folder_times_s, video_times_s)
    assert np.array_equal(folder_frames, video_frames)
    assert of_folder.duration_s == pytest.approx(of_video.duration_s, abs=1e-6)
    assert (of_folder.info.width, of_folder.info.height, of_folder.info.timing.frame_rate) == (160, 96, "3")
    assert of_folder.warnings == ()


def test_pictures_are_ordered_by_number_and_stay_where_a_number_is_missing(tmp_path):
    folder = write_clocks(tmp_path / "frames", [8, 9, 10, 12], name="frame-{}.png")
    (folder / "notes.txt").write_text("not a picture")
    stream, times_s, frames = read(folder, 2.0, 2.0)
    assert times_s.tolist() == [0, 0.5, 1, 1.5, 2]
    assert [read_clock(frame) for frame in frames] == [0, 1, 2, 2, 3]
    assert stream.duration_s == 2.5


@pytest.mark.parametrize("numbers", [[0, 1, 10**12], [0, 1, 2, 3], [0, 10**12]])
def test_a_folder_of_pictures_that_is_too_long_is_refused_because_its_rate_would_be_lost(numbers, tmp_path):
    folder = write_clocks(tmp_path / "frames", numbers)
    with refused(VideoError, str(folder), "--pictures-fps"):
        read(folder, 1.0, 1.0, Limits(max_duration_s=3))


def test_a_frame_of_the_longest_folder_of_pictures_is_found_by_its_duration(tmp_path):
    folder = write_clocks(tmp_path / "frames", range(6))
    stream, times_s, _ = read(folder, 1.0, 2.0, Limits(max_duration_s=3))
    assert times_s.tolist() == [0, 1, 2]
    with FrameReader() as reader:
        frame = reader.frame_at(folder, 1.6, pictures_s=stream.duration_s)
    assert read_clock(frame) == 3


@pytest.mark.parametrize(
    "names", [["1.png"], ["1.png", "a.png"], ["a1.png", "b2.png"], ["1.png", "2.jpg"], ["1.png", "01.png"]]
)
def test_other_pictures_are_no_video(names, tmp_path):
    for name in names:
        Image.fromarray(clock_frame(0)).save(tmp_path / name)
    assert read_pictures(tmp_path, 3.0) is None
    with refused(VideoError, str(tmp_path)):
        read(tmp_path, 1.0, 3.0)


def test_a_folder_is_no_video_without_a_rate(tmp_path):
    with refused(VideoError, str(tmp_path), "folder"):
        read(write_clocks(tmp_path / "frames", range(3)), 1.0)


def test_a_damaged_picture_is_replaced_by_the_one_before_it(tmp_path):
    folder = write_clocks(tmp_path / "frames", range(5))
    (folder / "00002.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    stream, _, frames = read(folder, 1.0, 1.0)
    assert [read_clock(frame) for frame in frames] == [0, 1, 1, 3, 4]
    (warning,) = stream.warnings
    assert "00002.png" in warning
    for path in folder.iterdir():
        path.write_bytes(b"no picture")
    with refused(VideoError, str(folder)):
        read(folder, 1.0, 1.0)


def test_a_picture_that_is_no_regular_file_is_not_opened(tmp_path):
    import os

    folder = write_clocks(tmp_path / "frames", range(3))
    os.mkfifo(folder / "00003.png")  # reading it would block
    assert len(read_pictures(folder, 1.0).names) == 3


def test_a_single_frame_is_found_by_the_duration(tmp_path):
    folder = write_clocks(tmp_path / "frames", range(1, 31))  # 10 s at 3 pictures per second
    with FrameReader() as reader:
        clocks = [read_clock(reader.frame_at(folder, t, pictures_s=10.0)) for t in (0, 1 / 3, 5.1, 9.99, 50)]
        with refused(VideoError, str(folder)):
            reader.frame_at(folder, 1.0)
    assert clocks == [0, 1, 15, 29, 29]


@pytest.mark.parametrize("fps", [0.0, -3.0, float("nan"), 1e6])
def test_an_impossible_rate_is_refused(fps):
    with refused(ConfigError, "pictures_fps", str(fps)):
        check_fps(fps, "pictures_fps", "pictures")
