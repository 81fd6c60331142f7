"""A proxy shows the frames of its span from its first byte on, small, with sound, in a form that browsers play."""

import io
import struct
from dataclasses import replace

import av
import numpy as np
import pytest
from PIL import Image

from tests.media import constant_stamps, read_clock, write_clip
from tests.unusual_media import make_unusual
from tests.video.test_unusual_cuts import small_frames
from untrimmed.errors import VideoError
from untrimmed.video.decode import MediaProblemError, open_video
from untrimmed.video.process import Limits
from untrimmed.video.proxy import MP4, WEBM, check_proxy, write_proxy
from untrimmed.video.reader import ProxyWriter, frame_at

FPS = 50.0


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("proxy") / "clip.mp4"
    options = {"bf": "3", "g": "48", "preset": "ultrafast"}
    return write_clip(path, constant_stamps(200), options=options, has_sound=True, size=(1280, 720))


def write(path, start_s, end_s, out, **options):
    with ProxyWriter(**options) as writer:
        return writer.write(path, start_s, end_s, out)


def boxes(path):
    """The names of the boxes of an MP4 file, in order."""
    data = path.read_bytes()
    names, place = [], 0
    while place < len(data):
        names.append(data[place + 4 : place + 8].decode())
        place += int.from_bytes(data[place : place + 4])
    return names


def test_a_proxy_has_the_frames_and_the_sound_of_its_span(clip, tmp_path):
    out = tmp_path / "out"
    assert write(clip, 5.02, 7.1, out) == pytest.approx(7.1)
    with av.open(str(out)) as container:
        frames = list(container.decode(video=0))
        assert (frames[0].width, frames[0].height, container.streams.video[0].codec.name) == (960, 540, "h264")
        assert [read_clock(frame.to_ndarray(format="rgb24")) for frame in frames] == list(range(125, 178))
        times_s = [frame.time for frame in frames]
        assert times_s[:2] == pytest.approx([0.0, 0.02], abs=0.001), "frame 125 is on screen for half of its time"
        assert times_s[-1] == pytest.approx(2.06, abs=0.001)
        assert container.duration / 1e6 == pytest.approx(2.08, abs=0.03)
    with av.open(str(out)) as container:
        sound = list(container.decode(audio=0))
        assert sound[0].time == 0.0
        assert sound[-1].time + sound[-1].samples / sound[-1].sample_rate == pytest.approx(2.08, abs=0.1)
        samples = np.concatenate([frame.to_ndarray()[0] for frame in sound])
        rate = sound[0].sample_rate
        second = samples[rate // 2 : rate // 2 + rate]
        assert second.std() == pytest.approx(0.5 / np.sqrt(2), abs=0.05), "as loud as in the video"
        spectrum = np.abs(np.fft.rfft(second))
        assert spectrum.argmax() == pytest.approx(440, abs=2)


def test_players_can_begin_before_a_proxy_is_whole(clip, tmp_path):
    out = tmp_path / "out"
    write(clip, 1.0, 5.0, out)
    names = boxes(out)
    assert names[:4] == ["ftyp", "moov", "moof", "mdat"]
    assert names.count("moof") >= 10, "a fragment of 4 s has at most half a second"
    part = out.read_bytes()[: out.stat().st_size // 3]
    ticks_per_s, ticks = struct.unpack_from(">II", part, part.index(b"mvhd") + 16)
    assert ticks / ticks_per_s == pytest.approx(4.0, abs=0.001), "declared before it is whole"
    with av.open(io.BytesIO(part)) as container:
        assert read_clock(next(container.decode(video=0)).to_ndarray(format="rgb24")) == 25


def test_the_first_frame_equals_the_frame_that_search_sees(clip, tmp_path):
    write(clip, 3.3, 4.0, tmp_path / "out")
    shown = frame_at(tmp_path / "out", 0.0).astype(int)
    searched = np.asarray(Image.fromarray(frame_at(clip, 3.3)).resize((960, 540), Image.Resampling.BOX)).astype(int)
    assert np.abs(shown - searched).mean() < 4
    assert np.abs(shown.mean((0, 1)) - searched.mean((0, 1))).max() < 2, "the same colour matrix"


def check_proxies(path, out):
    """A proxy of the beginning and of two spans inside a file."""
    try:
        frames = small_frames(path)
    except VideoError:
        with pytest.raises(VideoError):
            write(path, 0.0, 1.0, out)
        return
    length = min(int(FPS), len(frames) // 3)
    for first in (0, len(frames) // 4, len(frames) * 11 // 20):
        write(path, first / FPS, (first + length) / FPS, out)
        written = small_frames(out)
        assert len(written) == pytest.approx(length, abs=2)
        assert np.abs(written[0] - frames[first]).max() < 40
        assert np.abs(written[-1] - frames[first + length - 1]).max() < 40


@pytest.mark.parametrize(
    "name", ["refreshed.mp4", "turned 90.mp4", "hevc ten bits.mp4", "late.ts", "shorter sound.mkv"]
)
def test_proxies_of_unusual_files_have_the_right_frames(tmp_path, name):
    check_proxies(make_unusual(tmp_path, name), tmp_path / "out")


def test_without_an_encoder_of_h264_a_proxy_is_webm(clip, tmp_path):
    assert MP4.video_encoder == "libx264"
    arguments = {"max_pixels": 1 << 26, "error_log": str}
    with (
        open_video(str(clip), **arguments) as video,
        open_video(str(clip), **arguments) as sound,
        (tmp_path / "out").open("wb") as out,
    ):
        cut = write_proxy(video, sound, 0, (5.0, 6.0), out, WEBM, lambda _: None, is_sought=True)
    assert cut.end_s == pytest.approx(6.0)
    with av.open(str(tmp_path / "out")) as container:
        assert (container.format.name, container.streams.audio[0].codec.name) == ("matroska,webm", "opus")
        frames = list(container.decode(video=0))
    assert [read_clock(frame.to_ndarray(format="rgb24")) for frame in frames] == list(range(125, 150))


def test_a_proxy_with_another_middle_or_end_is_refused(clip, tmp_path):
    arguments = {"max_pixels": 1 << 26, "error_log": str}
    out = tmp_path / "out"

    def write_span(start_s, end_s):
        with open_video(str(clip), **arguments) as video, out.open("wb") as file:
            return write_proxy(video, None, 0, (start_s, end_s), file, MP4, lambda _: None, is_sought=True)

    def check(cut):
        with open_video(str(out), **arguments) as proxy:
            check_proxy(proxy, cut, 3.0)

    other = write_span(3.02, 4.02)
    cut = write_span(3.0, 4.0)
    check(cut)
    for name, expected in {"middle": "3.50", "last": "3.98"}.items():
        with pytest.raises(MediaProblemError, match=expected):
            check(replace(cut, **{name: replace(getattr(cut, name), picture=other.first.picture)}))
    out.write_bytes(out.read_bytes()[: out.stat().st_size * 2 // 3])
    with pytest.raises(MediaProblemError, match=r"3\.98"):
        check(cut)


def test_spans_and_files_that_cannot_be_shown_are_refused(clip, tmp_path):
    for span in ((9.0, 10.0), (100.0, 101.0)):
        with pytest.raises(VideoError):
            write(clip, *span, tmp_path / "out")
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(clip.read_bytes()[:5000])
    with pytest.raises(VideoError):
        write(broken, 0.0, 1.0, tmp_path / "out")
    with pytest.raises(VideoError):
        write(clip, 0.0, 1.0, tmp_path / "nowhere" / "out")
    with pytest.raises(VideoError):
        write(clip, 0.0, 1.0, tmp_path / "out", limits=Limits(max_pixels=1000))


def test_a_cancelled_writer_stops_and_can_be_used_again(clip, tmp_path):
    with ProxyWriter() as writer:
        writer.cancel()
        with pytest.raises(VideoError):
            writer.write(clip, 0.0, 8.0, tmp_path / "out")
        assert writer.child_pid is None
        writer.reset()
        assert writer.write(clip, 0.0, 0.5, tmp_path / "out") == pytest.approx(0.5)
