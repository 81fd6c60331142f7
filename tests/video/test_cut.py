"""A cut has the requested span, by the numbers in its frames and the length of its sound."""

import time
from fractions import Fraction
from pathlib import Path

import av
import pytest

from tests.media import constant_stamps, read_clock, varying_stamps, write_clip
from tests.refusals import refused
from tests.unusual_media import make_unusual
from untrimmed.errors import ConfigError, VideoError
from untrimmed.video.cut import SeekError, write_cut
from untrimmed.video.decode import open_video, read_packets
from untrimmed.video.decode_worker import Worker
from untrimmed.video.reader import Limits, Sampling, VideoReader, cut


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    stamps = constant_stamps(250)
    options = {"bf": "3", "g": "48"}
    return write_clip(tmp_path_factory.mktemp("cut") / "clip.mp4", stamps, options=options, has_sound=True)


def every_frame(path, fps=25.0):
    with VideoReader(sampling=Sampling(fps=fps)) as reader:
        stream = reader.read(path)
        return [read_clock(frame) for batch in stream for frame in batch.frames], stream


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_a_cut_holds_exactly_the_frames_of_its_span(clip, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    cut(clip, 6.0, 8.0, out)
    numbers, stream = every_frame(out)
    assert numbers == list(range(150, 200))
    assert stream.duration_s == pytest.approx(2.0, abs=0.002)
    with av.open(str(out)) as container:
        sound = container.streams.audio[0]
        frames = list(container.decode(sound))
        first_s = float(frames[0].pts * frames[0].time_base)
        last_s = float(frames[-1].pts * frames[-1].time_base) + frames[-1].samples / sound.rate
        assert first_s == pytest.approx(0.0, abs=0.07), "an AAC frame at 16 kHz lasts 64 ms"
        assert last_s == pytest.approx(2.0, abs=0.07)
        assert container.streams.video[0].codec.name == "h264"
    assert list(tmp_path.iterdir()) == [out], "no partial file is left"
    assert out.stat().st_mode & 0o400


@pytest.mark.parametrize(
    ("span_s", "expected"), [((1.01, 1.09), [25, 26]), ((1.03, 1.11), [26, 27]), ((1.01, 1.015), [25])]
)
def test_edges_between_two_frames_are_moved_to_the_nearest_frame(clip, tmp_path, span_s, expected):
    cut(clip, *span_s, tmp_path / "out.mp4")
    with av.open(str(tmp_path / "out.mp4")) as container:
        frames = list(container.decode(video=0))
    assert [read_clock(frame.to_ndarray(format="rgb24")) for frame in frames] == expected
    assert {round(frame.duration * frame.time_base, 4) for frame in frames} == {Fraction(1, 25)}


@pytest.mark.parametrize("span_s", [(16.0, 18.0), (115.0, 119.0)])
def test_edges_stay_if_frames_are_far_apart(tmp_path, span_s):
    path = write_clip(tmp_path / "slides.mp4", constant_stamps(12, fps=0.1))
    assert cut(path, *span_s, tmp_path / "out.mp4") == pytest.approx(span_s[1], abs=0.01)
    with VideoReader(sampling=Sampling(fps=1.0)) as reader:
        assert reader.read(tmp_path / "out.mp4").info.duration_s == pytest.approx(span_s[1] - span_s[0], abs=0.05)


def test_the_last_half_frame_can_be_cut(clip, tmp_path):
    cut(clip, 9.99, 10.0, tmp_path / "out.mp4")
    assert every_frame(tmp_path / "out.mp4")[0] == [249]


def test_edges_stay_if_frames_drift_from_the_usual_rate(tmp_path):
    stamps = [number / 30.007 for number in range(1510)]
    path = write_clip(tmp_path / "drift.mp4", stamps, size=(64, 48), ticks=90_000, options={"preset": "ultrafast"})
    cut(path, stamps[1500], stamps[1505], tmp_path / "out.mp4")
    with av.open(str(tmp_path / "out.mp4")) as container:
        numbers = [read_clock(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    assert numbers == [number % 1024 for number in range(1500, 1505)]


@pytest.mark.parametrize("rate", [24000 / 1001, 60000 / 1001])
def test_times_in_milliseconds_select_the_frames_of_exact_times(tmp_path, rate):
    clip = write_clip(tmp_path / "clip.mp4", [number / rate for number in range(200)], ticks=120_000)
    for first, stop in ((101, 102), (102, 190), (103, 104)):
        cut(clip, round(first / rate, 3), round(stop / rate, 3), tmp_path / "out.mp4", overwrite=True)
        with av.open(str(tmp_path / "out.mp4")) as container:
            frames = list(container.decode(video=0))
        assert [read_clock(frame.to_ndarray(format="rgb24")) for frame in frames] == list(range(first, stop))
        assert frames[0].time == 0


def test_the_first_and_the_last_moment_can_be_cut(clip, tmp_path):
    cut(clip, 0.0, 0.2, tmp_path / "first.mp4")
    assert every_frame(tmp_path / "first.mp4")[0] == [0, 1, 2, 3, 4]
    cut(clip, 9.8, 99.0, tmp_path / "last.mp4")
    assert every_frame(tmp_path / "last.mp4")[0] == [245, 246, 247, 248, 249]


@pytest.mark.parametrize("name", ["late.mkv", "late.ts", "turned.mov", "odd.mp4", "packed.avi"])
def test_cuts_of_odd_files_are_right(tmp_path, name):
    how = {
        "late.mkv": {"stamps": varying_stamps(60, start_s=50.0), "options": {"bf": "2"}},
        "late.ts": {"stamps": constant_stamps(200, start_s=9.0), "options": {"bf": "2"}},
        "turned.mov": {"stamps": constant_stamps(200), "rotation": 270},
        "odd.mp4": {"stamps": constant_stamps(200), "size": (161, 97), "pix_fmt": "yuv444p"},
        "packed.avi": {"stamps": constant_stamps(200), "codec": "mpeg4", "options": {"bf": "2"}},
    }[name]
    path = write_clip(tmp_path / name, **how)
    stamps = how["stamps"]
    cut(path, 5.0, 7.0, tmp_path / "out.mp4")
    numbers, stream = every_frame(tmp_path / "out.mp4", fps=400.0)
    begins = [stamp - stamps[0] for stamp in stamps]
    first = max(number for number, begin_s in enumerate(begins) if begin_s <= 5.0 + 1e-6)
    last = max(number for number, begin_s in enumerate(begins) if begin_s < 7.0 - 1e-6)
    assert sorted(set(numbers)) == list(range(first, last + 1))
    assert stream.duration_s == pytest.approx(2.0, abs=0.01)


def test_existing_files_are_overwritten_only_on_request(clip, tmp_path):
    out = tmp_path / "out.mp4"
    out.write_text("precious")
    with pytest.raises(ConfigError):
        cut(clip, 0.0, 1.0, out)
    assert out.read_text() == "precious"
    cut(clip, 0.0, 0.2, out, overwrite=True)
    assert every_frame(out)[0] == [0, 1, 2, 3, 4]


def test_a_span_after_the_end_is_refused_and_leaves_no_file(clip, tmp_path):
    with refused(VideoError, "50", "60"):
        cut(clip, 50.0, 60.0, tmp_path / "out.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("span", "name", "message"),
    [
        ((2.0, 2.0), "out.mp4", ("2",)),
        ((-1.0, 2.0), "out.mp4", ("-1",)),
        ((0.0, float("nan")), "out.mp4", ("nan",)),
        ((0.0, 1.0), "out.gif", (".gif",)),
        ((0.0, 1.0), "no/such/out.mp4", ("no/such",)),
    ],
)
def test_invalid_spans_and_suffixes_are_refused(clip, tmp_path, span, name, message):
    with refused(ConfigError, *message):
        cut(clip, *span, tmp_path / name)


@pytest.mark.parametrize("has_sound", [False, True])
def test_decoding_stops_after_the_span_and_reports_progress(tmp_path, has_sound):
    """Decoding past the span made cuts of large frames seem stuck."""
    path = write_clip(tmp_path / "clip.mkv", constant_stamps(225), has_sound=has_sound, options={"g": "10"})
    times_s = []
    with open_video(str(path), max_pixels=10**6, error_log=str) as video:
        write_cut(video, 0, (4.0, 5.0), str(tmp_path / "out.mp4"), "mp4", times_s.append, is_sought=True)
    assert times_s == sorted(times_s)
    assert 4.5 < times_s[-1] < 7.0
    assert every_frame(tmp_path / "out.mp4")[0] == list(range(100, 125))


@pytest.fixture(scope="module")
def without_index(tmp_path_factory):
    """A minute of pictures in a file without an index, which is always decoded from its beginning."""
    picture = write_clip(tmp_path_factory.mktemp("slow") / "one.mjpeg", [0.0], codec="mjpeg", pix_fmt="yuvj420p",
                         size=(1920, 1080)).read_bytes()  # fmt: skip
    path = tmp_path_factory.mktemp("slow") / "slow.mjpeg"
    path.write_bytes(picture * 1500)
    return path


def test_a_cut_reports_progress_while_it_seeks_its_start(without_index, tmp_path):
    times_s = []
    cut(without_index, 59.0, 59.2, tmp_path / "out.mp4", progress=times_s.append)
    assert times_s == sorted(times_s)
    assert any(0 < time_s < 59.0 for time_s in times_s)


def test_a_cut_that_takes_too_long_is_stopped_and_leaves_no_file(without_index, tmp_path, monkeypatch):
    monkeypatch.setattr("untrimmed.video.process._SLICE_S", 0.1)
    start = time.monotonic()
    with refused(VideoError, "slow.mjpeg", "1"):
        cut(without_index, 59.0, 59.2, tmp_path / "out.mp4", limits=Limits(total_s=1.0))
    assert time.monotonic() - start < 10
    assert list(tmp_path.iterdir()) == []


# 4:4:4 of x264 148, whose coding of blocks the decoder recognises by a version message. It is only in the first packet.
OLD_X264 = Path(__file__).with_name("x264_148_444.mp4")


def test_a_stream_that_needs_its_first_packet_is_cut_right(tmp_path):
    cut(OLD_X264, 2.0, 3.0, tmp_path / "out.mp4")
    assert every_frame(tmp_path / "out.mp4")[0] == list(range(50, 75))


def test_damaged_frames_after_a_seek_are_refused(tmp_path):
    with open_video(str(OLD_X264), max_pixels=10**6, error_log=str) as video, pytest.raises(SeekError):
        write_cut(video, 0, (2.0, 3.0), str(tmp_path / "out.mp4"), "mp4", lambda _: None, is_sought=True)


def test_frames_that_differ_from_those_of_search_are_decoded_from_the_start(tmp_path, monkeypatch):
    """Without the checks of single frames, the comparison with search alone repairs a stream with intra refresh."""
    path = make_unusual(tmp_path, "refreshed.mkv")
    monkeypatch.setattr("untrimmed.video.cut._check_sought", lambda *_, **__: None)
    answers = []
    monkeypatch.setattr(Worker, "_send", lambda _, message, pixels=None: answers.append(message["kind"]))
    request = {"start_s": 4.0, "end_s": 4.2, "out": str(tmp_path / "out.mp4"), "format": "mp4", "short_side": 64}
    monkeypatch.setattr(Worker, "_on_progress", lambda *_: None)  # it limits the time of this process
    Worker({"max_pixels": 10**6}).cut({"path": str(path), **request})
    assert answers == ["frames", "end"]
    assert every_frame(tmp_path / "out.mp4")[0] == list(range(100, 105))


@pytest.mark.parametrize("at_s", [1.0, 36.0])
def test_a_cut_reads_only_the_part_of_the_file_around_it(tmp_path, monkeypatch, at_s):
    path = write_clip(tmp_path / "clip.mp4", constant_stamps(1000), options={"g": "10", "bf": "2"})
    packets = []

    def read(video, streams, warnings):
        for packet in read_packets(video, streams, warnings):
            packets.append(packet.pts)
            yield packet

    for module in ("cut", "sampling"):
        monkeypatch.setattr(f"untrimmed.video.{module}.read_packets", read)
    monkeypatch.setattr("untrimmed.video.decode_worker._COMPARED_S", 2.0)
    monkeypatch.setattr(Worker, "_send", lambda *_: None)
    monkeypatch.setattr(Worker, "_on_progress", lambda *_: None)
    request = {"start_s": at_s, "end_s": at_s + 0.4, "out": str(tmp_path / "out.mp4"), "format": "mp4"}
    Worker({"max_pixels": 10**6}).cut({"path": str(path), "short_side": 64, **request})
    assert every_frame(tmp_path / "out.mp4")[0] == list(range(round(at_s * 25), round(at_s * 25) + 10))
    assert len(packets) < 500


def test_a_clip_that_shows_another_picture_is_removed(clip, tmp_path, monkeypatch):
    monkeypatch.setattr("untrimmed.video.reader._MAX_DIFFERENCE", -1.0)
    with refused(VideoError, "clip.mp4", "3.50"):
        cut(clip, 3.0, 4.0, tmp_path / "out.mp4")
    assert list(tmp_path.iterdir()) == []
