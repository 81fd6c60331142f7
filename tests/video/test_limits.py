"""Limits for one file: a child that dies, hangs or exceeds a limit is one error, and the next file is read."""

import os
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import psutil
import pytest

from tests.media import clock_frame, constant_stamps, read_clock, write_clip
from tests.refusals import refused, require_named
from untrimmed.errors import ConfigError, VideoError
from untrimmed.video.reader import Limits, Sampling, VideoReader


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("limits") / "clip.mp4")


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory):
    """Some minutes of very large pictures: one JPEG repeated, which is quick to write."""
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 3840, 2160, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(clock_frame(1, 3840, 2160)).reformat(format="yuvj420p")
    frame.pts = 0
    picture = b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
    path = tmp_path_factory.mktemp("long") / "long.mjpeg"
    path.write_bytes(picture * 600)
    return path


def read_numbers(reader, path):
    return [read_clock(frame) for batch in reader.read(path) for frame in batch.frames]


def check_still_reads(reader, clip):
    seen = read_numbers(reader, clip)
    assert seen == ([0, 12, 25, 37] if reader.sampling.fps == 2.0 else list(range(50)))


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "SIGKILL"),
        (signal.SIGSEGV, "SIGSEGV"),
        (signal.SIGXCPU, "processor"),
    ],
)
def test_the_death_of_the_child_is_one_error(long_clip, clip, number, reason):
    with VideoReader(sampling=Sampling(fps=25), batch_size=1) as reader:
        stream = reader.read(long_clip)
        child = reader.child_pid
        os.kill(child, number)
        with pytest.raises(VideoError) as caught:
            list(stream)
        assert str(caught.value).startswith(f"{long_clip}: ")
        assert reason in str(caught.value)
        assert list(stream) == [], "a stream that failed is over"
        assert reader.read(clip).info.codec == "h264"
        assert reader.child_pid not in (None, child)
    assert not psutil.pid_exists(child), "collected, no zombie"


def test_a_silent_child_is_stopped(long_clip, clip):
    with VideoReader(sampling=Sampling(fps=25), limits=Limits(stall_s=2.0), batch_size=64) as reader:
        stream = reader.read(long_clip)
        child = reader.child_pid
        os.kill(child, signal.SIGSTOP)
        start = time.monotonic()
        with refused(VideoError, "2"):
            list(stream)
        assert time.monotonic() - start < 10
        assert not psutil.pid_exists(child)
        check_still_reads(reader, clip)


def test_processor_time_is_limited(long_clip, clip):
    with VideoReader(sampling=Sampling(fps=25), limits=Limits(cpu_s=0.1, cpu_s_per_video_s=0.001)) as reader:
        with refused(VideoError, "0.1"):
            list(reader.read(long_clip))
        check_still_reads(reader, clip)


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_memory_is_limited(tmp_path, clip):
    path = write_clip(tmp_path / "wide.mkv", [0.0], codec="mjpeg", pix_fmt="yuvj444p", size=(6500, 6500))
    with VideoReader(limits=Limits(memory_bytes=180 << 20)) as reader:
        with pytest.raises(VideoError, match=r"Limits\.memory_bytes"):
            list(reader.read(path))
        check_still_reads(reader, clip)


def test_pictures_above_the_size_limit_are_refused(clip):
    reason = "160 x 96.* 10,000 "
    with VideoReader(limits=Limits(max_pixels=100 * 100)) as reader, pytest.raises(VideoError, match=reason):
        reader.read(clip)


def test_a_gigantic_declared_duration_is_ignored(tmp_path):
    """A stamp a million seconds late counts as a break and not as a picture of 280 hours."""
    path = write_clip(tmp_path / "jump.mkv", [*constant_stamps(25), *constant_stamps(25, start_s=1e6)])
    with VideoReader() as reader:
        stream = reader.read(path)
        seen = [read_clock(frame) for batch in stream for frame in batch.frames]
    assert seen == [0, 12, 25, 37]
    assert stream.duration_s == pytest.approx(2.0, abs=0.05)
    assert stream.warnings[0].endswith(" 1")


def test_video_after_the_maximum_duration_is_left_out(clip):
    with VideoReader(limits=Limits(max_duration_s=1.2)) as reader:
        stream = reader.read(clip)
        assert [read_clock(frame) for batch in stream for frame in batch.frames] == [0, 12, 25]
        require_named(*stream.warnings, "1.2 s", "Limits.max_duration_s")
        assert stream.duration_s == 1.5
        check_reads = [read_clock(frame) for batch in reader.read(clip) for frame in batch.frames]
        assert check_reads == [0, 12, 25], "the child goes on with the next file"


def test_a_held_picture_is_sampled_while_it_is_shown(tmp_path):
    path = write_clip(tmp_path / "slides.mkv", [0.0, 60.0, 61.0])
    with VideoReader(sampling=Sampling(fps=0.5)) as reader:
        assert read_numbers(reader, path) == [0] * 30 + [1]


def test_one_child_serves_many_files(clip):
    with VideoReader() as reader:
        pids = set()
        for _ in range(5):
            check_still_reads(reader, clip)
            pids.add(reader.child_pid)
        assert len(pids) == 1


def test_an_unfinished_stream_does_not_disturb_the_next(long_clip, clip):
    with VideoReader(sampling=Sampling(fps=25), batch_size=2) as reader:
        next(iter(reader.read(long_clip)))
        assert read_numbers(reader, clip) == list(range(50))


def test_the_child_ends_with_its_parent(long_clip):
    code = (
        "import sys, time; from pathlib import Path; from untrimmed.video.reader import VideoReader, Sampling\n"
        f"reader = VideoReader(sampling=Sampling(fps=25)); stream = reader.read(Path({str(long_clip)!r}))\n"
        "print(reader.child_pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(timeout=5)


def test_the_child_imports_no_torch_and_dumps_no_core(clip):
    with VideoReader() as reader:
        check_still_reads(reader, clip)
        child = psutil.Process(reader.child_pid)
        if sys.platform == "linux":
            assert child.rlimit(psutil.RLIMIT_CORE) == (0, 0)
            assert child.rlimit(psutil.RLIMIT_AS)[0] == Limits().memory_bytes
            maps = Path(f"/proc/{child.pid}/maps").read_text()
            assert "libav" in maps
            assert "torch" not in maps


def test_every_thread_can_have_a_reader(clip):
    seen = []

    def work():
        with VideoReader() as reader:
            seen.append(read_numbers(reader, clip))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[0, 12, 25, 37]] * 3


def test_frames_are_scaled_down_to_the_short_side_and_never_up(tmp_path):
    large = write_clip(tmp_path / "large.mp4", [0.0, 0.04], size=(640, 360))
    strip = write_clip(tmp_path / "strip.mkv", [0.0, 0.04], size=(4000, 64), codec="mjpeg", pix_fmt="yuvj420p")
    with VideoReader(short_side=100) as reader:
        assert next(iter(reader.read(large))).frames.shape == (1, 100, 178, 3)
        assert next(iter(reader.read(strip))).frames.shape == (1, 6, 400, 3)
    with VideoReader(short_side=1000) as reader:
        assert next(iter(reader.read(large))).frames.shape == (1, 360, 640, 3)


@pytest.mark.parametrize(
    ("space", "size", "is_709"),
    [(1, (64, 64), True), (6, (64, 64), False), (2, (64, 64), False), (2, (1280, 720), True), (6, (1280, 720), False)],
)
def test_colours_follow_the_tag_of_the_file_or_the_convention(tmp_path, space, size, is_709):
    """Colour spaces by their numbers in ITU-T H.273: 1 BT.709, 6 BT.601, 2 unspecified."""
    path = tmp_path / "red.mp4"
    with av.open(str(path), "w") as out:
        track = out.add_stream("libx264", rate=25, options={"qp": "0"})
        track.width, track.height, track.pix_fmt = *size, "yuv420p"
        track.codec_context.colorspace = space
        frame = av.VideoFrame(*size, "yuv420p")
        red = (63, 102, 240) if is_709 else (81, 90, 240)  # in limited range
        for plane, value in zip(frame.planes, red, strict=True):
            plane.update(bytes([value]) * plane.buffer_size)
        out.mux(track.encode(frame))
        out.mux(track.encode(None))
    with VideoReader() as reader:
        (batch,) = reader.read(path)
    np.testing.assert_allclose(batch.frames[0, 32, 32], [255, 0, 0], atol=4)


@pytest.mark.parametrize("change", [{"memory_bytes": 0}, {"stall_s": -1.0}, {"cpu_s": float("nan")}])
def test_limits_of_zero_are_refused(change):
    with pytest.raises(ConfigError):
        Limits(**change)


@pytest.mark.parametrize("change", [{"short_side": 0}, {"batch_size": 0}])
def test_a_reader_refuses_sizes_below_one(change):
    with pytest.raises(ConfigError):
        VideoReader(**change)


def test_a_child_that_is_suspended_and_resumed_loses_no_data(tmp_path):
    """Like Ctrl-Z and `fg`: a write that waits for a full pipe returns early."""
    path = write_clip(tmp_path / "clip.mp4", constant_stamps(250), size=(320, 240))
    with VideoReader(sampling=Sampling(fps=25), short_side=240, batch_size=64) as reader:
        expected = [batch.frames for batch in reader.read(path)]
        stream = reader.read(path)
        received = []
        for batch in stream:
            time.sleep(0.05)  # the child fills the pipe and waits
            for _ in range(20):
                os.kill(reader.child_pid, signal.SIGSTOP)
                os.kill(reader.child_pid, signal.SIGCONT)
            received.append(batch.frames)
    assert np.array_equal(np.concatenate(received), np.concatenate(expected))
