"""The times of sampled frames match the numbers drawn into them."""

import gc

import av
import numpy as np
import pytest
from av import VideoFrame

from tests.media import constant_stamps, read_clock, varying_stamps, write_clip
from tests.refusals import require_named
from untrimmed.errors import ConfigError, VideoError
from untrimmed.video.decode import open_video, read_packets
from untrimmed.video.reader import FrameReader, Sampling, VideoReader, frame_at
from untrimmed.video.sampling import FrameSampler
from untrimmed.video.timeline import FramesFrom, SampleTimes

B_FRAMES = {"bf": "3", "g": "24"}
REALTIME = {"deadline": "realtime", "cpu-used": "8"}
# name: stamps and options of the clip
CLIPS = {
    "h264 constant.mp4": (constant_stamps(60), {"options": B_FRAMES}),
    "h264 varying.mp4": (varying_stamps(60), {"options": B_FRAMES}),
    "h264 late.mp4": (constant_stamps(60, start_s=7.3), {"options": B_FRAMES}),
    "h264 ntsc.mov": (constant_stamps(90, fps=30000 / 1001), {"options": B_FRAMES, "ticks": 30000}),
    "h264 varying.mkv": (varying_stamps(60, start_s=12.5), {"options": B_FRAMES}),
    "h264 late.ts": (constant_stamps(60, start_s=3.0), {"options": B_FRAMES}),
    "h264 varying.flv": (varying_stamps(60), {"options": B_FRAMES}),
    "mpeg4.avi": (constant_stamps(60), {"codec": "mpeg4", "options": {"bf": "2"}}),
    "mpeg2.ts": (constant_stamps(60), {"codec": "mpeg2video", "options": {"bf": "2"}}),
    "mpeg2.mpg": (constant_stamps(60), {"codec": "mpeg2video", "options": {"bf": "2"}}),
    "mpeg2.mxf": (constant_stamps(60), {"codec": "mpeg2video", "options": {"bf": "2"}}),
    "vp8 varying.webm": (varying_stamps(60), {"codec": "libvpx", "options": REALTIME}),
    "vp9 late.webm": (constant_stamps(60, start_s=2.0), {"codec": "libvpx-vp9", "options": REALTIME}),
    "hevc varying.mp4": (varying_stamps(60), {"codec": "libx265", "options": {"x265-params": "log-level=none"}}),
    "motion jpeg varying.mov": (varying_stamps(60), {"codec": "mjpeg", "pix_fmt": "yuvj420p"}),
    "slow.mp4": (constant_stamps(20, fps=0.5), {"options": B_FRAMES}),
    "fast.mkv": (constant_stamps(240, fps=120), {"options": B_FRAMES}),
    "fragments.mp4": (varying_stamps(60), {"muxer_options": {"movflags": "frag_keyframe+empty_moov"}}),
}


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clocks")
    return {name: write_clip(folder / name, stamps, **how) for name, (stamps, how) in CLIPS.items()}


def read_all(path, **sampling):
    """(time, number) of every sample, and the exhausted stream."""
    with VideoReader(sampling=Sampling(**sampling)) as reader:
        stream = reader.read(path)
        samples = [
            (float(t), read_clock(f)) for batch in stream for t, f in zip(batch.times_s, batch.frames, strict=True)
        ]
    return samples, stream


def on_screen(stamps, time_s):
    """The numbers that may be on screen at a time, if the container's times are exact to a millisecond."""
    starts = np.array(stamps) - stamps[0]
    first, last = np.searchsorted(starts, [time_s - 1.1e-3, time_s + 1.1e-3], side="right") - 1
    return range(max(0, first), last + 1)


@pytest.mark.parametrize("fps", [2.0, 7.3, 0.4])
@pytest.mark.parametrize("name", CLIPS)
def test_each_sample_is_the_frame_on_screen_at_its_time(clips, name, fps):
    stamps = CLIPS[name][0]
    samples, stream = read_all(clips[name], fps=fps)
    length_s = stamps[-1] - stamps[0]
    assert stream.duration_s == pytest.approx(length_s + 0.04, abs=2.1)
    assert [time for time, _ in samples] == pytest.approx(np.arange(len(samples)) / fps)
    assert len(samples) >= np.floor(length_s * fps + 1e-6) + 1 - 1e-6
    for time_s, number in samples:
        assert number in on_screen(stamps, time_s)
    assert stream.warnings == ()


@pytest.mark.parametrize("name", CLIPS)
def test_key_frames_have_their_own_times(clips, name):
    stamps = CLIPS[name][0]
    samples, _ = read_all(clips[name], fps=1000.0, keyframes_only=True)
    assert samples[0] == (pytest.approx(0.0, abs=1.1e-3), 0)
    for time_s, number in samples:
        assert time_s == pytest.approx(stamps[number] - stamps[0], abs=1.1e-3)
    with av.open(str(clips[name])) as container:
        num_key_frames = sum(packet.is_keyframe for packet in container.demux(video=0) if packet.size)
    assert len(samples) == num_key_frames


@pytest.mark.parametrize("suffix", [".mp4", ".mov"])
def test_frames_hidden_by_an_edit_list_are_not_counted(tmp_path, suffix):
    """Stamps below 0 become an edit list. A player begins at frame 32, between two key frames."""
    path = write_clip(
        tmp_path / f"edited{suffix}",
        constant_stamps(60, start_s=-1.28),
        options={"bf": "0", "g": "24", "sc_threshold": "0"},
    )
    samples, stream = read_all(path, fps=2.0)
    assert samples == [(0.0, 32), (0.5, 44), (1.0, 57)]
    assert stream.duration_s == pytest.approx(28 / 25, abs=2e-3)
    samples, _ = read_all(path, fps=2.0, keyframes_only=True)
    assert samples == [(pytest.approx(16 / 25, abs=2e-3), 48)]


def test_key_frames_are_thinned_to_the_requested_rate(clips):
    samples, _ = read_all(clips["motion jpeg varying.mov"], fps=2.0, keyframes_only=True)
    times = np.array([time for time, _ in samples])
    assert 5 < len(samples) < 60
    assert (np.diff(times) >= 0.5 - 1e-6).all()


@pytest.mark.parametrize("name", CLIPS)
def test_frame_at_returns_the_frame_on_screen(clips, name):
    stamps = CLIPS[name][0]
    time_s = 0.7 * (stamps[-1] - stamps[0])
    assert read_clock(frame_at(clips[name], time_s)) in on_screen(stamps, time_s)


def test_one_reader_serves_many_files_and_continues_after_a_bad_one(clips, tmp_path):
    (tmp_path / "bad.mp4").write_text("no video")
    with FrameReader() as reader:
        for name, (stamps, *_) in CLIPS.items():
            frame = reader.frame_at(clips[name], 0.0, short_side=48)
            assert read_clock(frame) in on_screen(stamps, 0.0)
            assert min(frame.shape[:2]) == 48
            with pytest.raises(VideoError):
                reader.frame_at(tmp_path / "bad.mp4", 0.0)


def test_frame_at_after_the_end_returns_the_last_frame(clips):
    assert read_clock(frame_at(clips["h264 constant.mp4"], 99.0)) == 59


@pytest.mark.parametrize("time_s", [-1.0, float("nan"), float("inf")])
def test_frame_at_refuses_invalid_times(clips, time_s):
    with pytest.raises(ConfigError):
        frame_at(clips["slow.mp4"], time_s)


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_rotated_video_is_returned_upright(tmp_path, rotation):
    path = write_clip(tmp_path / "turned.mp4", constant_stamps(10), rotation=rotation)
    samples, stream = read_all(path, fps=5.0)
    assert [number for _, number in samples] == [0, 5]
    assert (stream.info.width, stream.info.height) == ((160, 96) if rotation == 180 else (96, 160))


def test_decoded_frames_are_freed_without_garbage_collection(tmp_path):
    path = write_clip(tmp_path / "turned.mp4", constant_stamps(30), rotation=90)
    gc.collect()
    gc.disable()
    try:
        with open_video(str(path), max_pixels=10**6, error_log=str) as video:
            for frame in video.container.decode(video.stream):
                assert video.orientation(frame).transpose
            alive = sum(type(item) is VideoFrame for item in gc.get_objects())
    finally:
        gc.enable()
    assert alive <= 3, "each decoded frame keeps its pixels"


def test_the_frames_of_earlier_files_are_freed_without_automatic_garbage_collection(tmp_path):
    path = write_clip(tmp_path / "turned.mp4", constant_stamps(5), rotation=90)
    gc.disable()
    try:
        for _ in range(10):
            with open_video(str(path), max_pixels=10**6, error_log=str) as video:
                assert video.orientation(next(video.container.decode(video.stream))).transpose
        alive = sum(type(item) is VideoFrame for item in gc.get_objects())
    finally:
        gc.enable()
    assert alive <= 3, "a child process that is used again would fill up"


@pytest.mark.parametrize(("fps", "expected"), [(0.0, "0.0"), (-2.0, "-2.0"), (float("nan"), "nan"), (1e6, "1000000.0")])
def test_sampling_refuses_invalid_rates(fps, expected):
    with pytest.raises(ConfigError, match=f"fps is {expected}"):
        Sampling(fps=fps)


def test_a_rate_above_that_of_a_video_samples_each_frame_once_if_frames_are_not_repeated(clips):
    def read(name, fps):
        with VideoReader(sampling=Sampling(fps=fps), repeats_frames=False) as reader:
            stream = reader.read(clips[name])
            samples = [
                (float(time_s), read_clock(frame))
                for batch in stream
                for time_s, frame in zip(batch.times_s, batch.frames, strict=True)
            ]
        return samples, stream

    samples, stream = read("h264 ntsc.mov", 100.0)
    assert [number for _, number in samples] == list(range(90))
    assert [time_s for time_s, _ in samples] == pytest.approx([number * 1001 / 30000 for number in range(90)], abs=1e-4)
    require_named(stream.warnings[0], "29.97", "100")
    assert read("h264 ntsc.mov", 7.3)[0] == read_all(clips["h264 ntsc.mov"], fps=7.3)[0]
    assert read("motion jpeg varying.mov", 100.0)[0] == read_all(clips["motion jpeg varying.mov"], fps=100.0)[0]


@pytest.mark.parametrize("grid", [FramesFrom(7.01), SampleTimes(7.01)])
def test_frames_that_no_other_needs_are_skipped_also_in_a_long_group(tmp_path, grid):
    options = {"bf": "3", "g": "250", "keyint_min": "250", "x264-params": "scenecut=0:b-adapt=0", "preset": "ultrafast"}
    path = write_clip(tmp_path / "long.mp4", constant_stamps(200), options=options)
    decoded_s = []
    with open_video(str(path), max_pixels=1 << 20, error_log=str) as video:
        sampler = FrameSampler(video, decoded_s.append, origin=0)
        sample = next(iter(sampler.sample(grid)))
    assert read_clock(sample.frame.to_ndarray(format="rgb24")) == 175
    assert len(decoded_s) < 110, "of 176 frames; without those that are only shown, 44 and a few near the sample"


def test_the_end_is_decoded_if_a_frame_is_wrongly_marked_as_a_key_frame(tmp_path):
    path = str(tmp_path / "cuts.mp4")
    shots = [np.random.default_rng(n).integers(0, 128, (96, 160, 3)).astype(np.uint8) for n in range(3)]
    with av.open(path, "w") as out:
        options = {"preset": "superfast", "tune": "zerolatency", "g": "30"}
        track = out.add_stream("libx264", rate=25, options=options)
        track.width, track.height, track.pix_fmt = 160, 96, "yuv420p"
        for number in range(75):
            shot = shots[(number >= 71) + (number >= 73)]
            frame = av.VideoFrame.from_ndarray(shot + np.uint8(number), format="rgb24")
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
    with open_video(path, max_pixels=1 << 20, error_log=str) as video:
        keys = [packet for packet in read_packets(video, [video.stream], []) if packet.is_keyframe]
    assert bytes(keys[-1])[4] & 31 == 1, "no IDR frame, so a decoder that starts here returns nothing"
    with open_video(path, max_pixels=1 << 20, error_log=str) as video:
        sampler = FrameSampler(video, lambda _: None)
        samples = list(sampler.sample(SampleTimes(0.02, 1.5, 2.98)))
    assert [sample.times_s for sample in samples] == [[0.02], [1.5], [2.98]]
    shown = samples[-1].frame.to_ndarray(format="rgb24").mean(axis=2)
    expected = [(shot + np.uint8(74)).mean(axis=2) for shot in shots]
    differences = [np.abs(shown - picture).mean() for picture in expected]
    assert differences.index(min(differences)) == 2
    assert sampler.duration_s == pytest.approx(3.0)
    with open_video(path, max_pixels=1 << 20, error_log=str) as video:
        times_s = [s.times_s[0] for s in FrameSampler(video, lambda _: None).sample(FramesFrom(1.0))]
    assert times_s == sorted(times_s), "no frame is returned twice"


@pytest.mark.parametrize(("group", "times_s", "most"), [(1, (1.0, 3.0, 5.0, 7.0), 100), (25, (1.0, 7.0), 100)])
def test_dropped_key_frames_do_not_cause_a_second_pass(tmp_path, group, times_s, most):
    options = {"g": str(group), "keyint_min": str(group), "bf": "0", "x264-params": "scenecut=0"}
    path = write_clip(tmp_path / "short groups.mp4", constant_stamps(200), options=options)
    decoded_s = []
    with open_video(str(path), max_pixels=1 << 20, error_log=str) as video:
        samples = list(FrameSampler(video, decoded_s.append).sample(SampleTimes(*times_s)))
    assert [sample.times_s[0] for sample in samples] == list(times_s)
    assert len(decoded_s) < most, "of 200 frames"
