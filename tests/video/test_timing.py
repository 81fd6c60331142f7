"""Frame rates, start timecodes and audio tracks are measured from the file."""

from fractions import Fraction

import av
import numpy as np
import pytest

from tests.media import constant_stamps, varying_stamps, write_clip
from untrimmed.video.reader import TimingReader, VideoReader
from untrimmed.video.timing import Timing, measure_rate

NTSC = Fraction(30000, 1001)


@pytest.fixture(scope="module")
def reader():
    with TimingReader() as reader:
        yield reader


@pytest.mark.parametrize("suffix", ["mov", "mp4", "mkv", "avi"])
@pytest.mark.parametrize(
    ("rate", "timecode"), [(10, ""), (10, "01:00:00:03"), (2 * NTSC, "10:00:00;02"), (NTSC, "01:00:00:00")]
)
def test_rate_and_timecode_are_read_from_each_container(reader, tmp_path, suffix, rate, timecode):
    path = write_timed(tmp_path / f"clip.{suffix}", rate, timecode)
    assert reader.read(path) == Timing(str(Fraction(rate)), False, timecode, 0)
    with VideoReader() as video_reader:
        assert video_reader.read(path).info.timing == reader.read(path)


def write_timed(path, rate, timecode="", num_frames=30):
    """A clip of constant rate with a start timecode."""
    with av.open(str(path), "w") as out:
        track = out.add_stream("mpeg4", rate=Fraction(rate))
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        if timecode:
            out.metadata["timecode"] = timecode
        for number in range(num_frames):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number, np.uint8))
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
    return path


def test_a_variable_rate_and_audio_tracks_are_reported(reader, tmp_path):
    timing = reader.read(write_clip(tmp_path / "clip.mp4", varying_stamps(40), has_sound=True))
    assert (timing.has_variable_rate, timing.num_audio_tracks) == (True, 1)
    assert not reader.read(write_clip(tmp_path / "steady.mkv", constant_stamps(40))).has_variable_rate


@pytest.mark.parametrize("rate", [10, 24000 / 1001, 24, 25, 30000 / 1001, 30, 50, 60000 / 1001])
def test_stamps_in_milliseconds_have_the_rate_that_was_meant(rate):
    stamps = [round(1000 * number / rate) for number in range(300)]
    measured = Fraction(round(1000 * rate), 1000)
    assert measure_rate(stamps, Fraction(1, 1000), [measured])[0] == Fraction(rate).limit_denominator(1001)
    assert not measure_rate(stamps, Fraction(1, 1000), [measured])[1]


def test_left_out_frames_are_no_variable_rate():
    stamps = [number for number in range(300) if number % 7]
    assert measure_rate(stamps, Fraction(1, 30), [Fraction(30 * 6, 7), Fraction(30)]) == (30, False)


def test_an_unusual_constant_rate_stays():
    assert measure_rate(range(0, 90000, 384), Fraction(1, 11456), [Fraction(179, 6)]) == (Fraction(179, 6), False)
