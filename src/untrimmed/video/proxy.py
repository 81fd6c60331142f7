"""Write a span of a video as a small file, which browsers can play before it is complete.

This runs in the decoding child process. The file is fragmented MP4, or WebM if FFmpeg cannot encode H.264. In these
formats the header comes first, and written bytes never change.
"""

import contextlib
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import av
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from untrimmed.video.cut import CutWriter, SeekError, VideoEncoding, WrittenClip
from untrimmed.video.decode import SEEKABLE, MediaProblemError, OpenVideo, decode_packet, read_packets
from untrimmed.video.sampling import FrameSampler
from untrimmed.video.timeline import EPSILON_S, FramesFrom, SampleTimes

SHORT_SIDE = 540
_GROUP = 30  # largest number of frames between key frames: short groups make seeking fast
_FRAGMENT_S = 0.25  # duration of a fragment of the file; a player can show each fragment once it is written
_COMPARED = 8  # width and height of the pictures in which a proxy is compared with its video
_MAX_DIFFERENCE = 32  # largest difference of their brightness or colour (0 to 255) in a correct proxy
_MAX_WAIT_S = 0.5  # FFmpeg holds back a picture at most this long to write earlier sound before it
_H264 = {
    "preset": "superfast",
    "tune": "zerolatency",
    "crf": "23",
    "maxrate": "4M",
    "bufsize": "4M",
    "g": str(_GROUP),
    "bf": "0",
}
_VP9 = {
    "deadline": "realtime",
    "cpu-used": "8",
    "row-mt": "1",
    "lag-in-frames": "0",
    "crf": "34",
    "b": "2M",
    "g": str(_GROUP),
}
_WAIT = {"max_interleave_delta": f"{_MAX_WAIT_S * 1e6:.0f}", "flush_packets": "1"}
MP4 = VideoEncoding(
    "mp4",
    ("libx264", "libopenh264"),
    short_side=SHORT_SIDE,
    keeps_priming=False,
    video_options={"libx264": _H264, "libopenh264": {"b": "2M", "g": str(_GROUP)}},
    container_options={
        "movflags": "empty_moov+default_base_moof",
        "frag_duration": f"{_FRAGMENT_S * 1e6:.0f}",
        "avoid_negative_ts": "disabled",
        **_WAIT,
    },
)
WEBM = VideoEncoding(
    "webm",
    ("libvpx-vp9", "libvpx"),
    sound_encoder="libopus",
    sound_rates=(24000, 48000),
    short_side=SHORT_SIDE,
    video_options={"libvpx-vp9": _VP9, "libvpx": _VP9},
    container_options={"live": "1", "cluster_time_limit": f"{_FRAGMENT_S * 1e3:.0f}", **_WAIT},
)


def proxy_encoding() -> VideoEncoding:
    """Return the encoding of proxies, which depends on the encoders of this build of FFmpeg."""
    return MP4 if av.codecs_available.intersection(MP4.video_encoders) else WEBM


class _GrowingFile:
    """The file to which FFmpeg writes. FFmpeg sets the duration in the header to 0; this class inserts the real one."""

    def __init__(self, file: BinaryIO, duration_s: float) -> None:
        self._file = file
        self._duration_s = duration_s
        self._has_header = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._file.write(data if self._has_header else self._with_durations(data))
        self._file.flush()
        return len(data)

    def _with_durations(self, data: bytes) -> bytes:
        """Return the bytes. If the header is in them, the durations of the film and of its tracks are set."""
        header = bytearray(data)
        for name in (b"mvhd", b"mdhd"):
            # four bytes each follow the name: version (0) and flags, two times, ticks per second, and the duration
            for match in re.finditer(name, data):
                ticks = struct.unpack_from(">I", data, match.end() + 12)[0]
                struct.pack_into(">I", header, match.end() + 16, round(self._duration_s * ticks))
                self._has_header = True
        return bytes(header)


def write_proxy(
    video: OpenVideo,
    sound: OpenVideo | None,
    origin: int | None,
    span_s: tuple[float, float],
    out: BinaryIO,
    encoding: VideoEncoding,
    on_progress: Callable[[float], None],
    *,
    is_sought: bool,
) -> WrittenClip:
    """Write a span of an open video as a proxy.

    Args:
        sound: The same file, opened a second time to read its sound. None: the proxy has no sound.
        origin: The timestamp of the video's first frame.
        is_sought: Whether to start decoding at the last key frame before the span instead of the beginning.

    Raises:
        MediaProblemError: The video shows nothing in the span, or the file cannot be written.
        SeekError: The first frame may be wrong, because decoding did not start at the beginning. Nothing was written.
    """
    start_s, end_s = span_s
    assert video.stream.time_base is not None
    origin_s = float((origin or 0) * video.stream.time_base)
    if is_sought:
        _seek(video, video.stream, origin_s + start_s)
    sampler = FrameSampler(video, on_progress, origin=origin if is_sought else None)
    frames = sampler.sample(FramesFrom(start_s))
    current = next(frames, None)
    if is_sought and (current is None or not _is_right(current.frame, sampler, start_s)):
        raise SeekError
    if current is None or current.times_s[0] >= end_s:
        raise MediaProblemError(f"shows nothing between {start_s:g} and {end_s:g} s", "choose a span inside the video")
    try:
        writer = CutWriter(video, start_s, end_s, _GrowingFile(out, end_s - start_s), encoding)
        try:
            sounds = iter(()) if sound is None else _write_sounds(sound, writer, origin_s, start_s)
            next(sounds, None)  # add the sound track before the first frame
            for following in frames:
                writer.add_frame(current.frame, current.times_s[0], following.times_s[0])
                current = following
                if current.times_s[0] >= end_s:
                    break
                while writer.sound_until_s < current.times_s[0] and next(sounds, False):
                    pass
            else:
                writer.add_frame(current.frame, current.times_s[0], sampler.duration_s)
            while writer.sound_until_s < writer.picture_until_s and next(sounds, False):
                pass
        finally:
            writer.close()
    except OSError as error:
        raise MediaProblemError(f"cannot be stored as a proxy ({error.strerror})", "free space on the disk") from error
    assert writer.first is not None
    assert writer.middle is not None
    assert writer.last is not None
    return WrittenClip(writer.picture_until_s, writer.first, writer.middle, writer.last)


def check_proxy(proxy: OpenVideo, cut: WrittenClip, start_s: float) -> None:
    """Raise a MediaProblemError unless a proxy shows the first, middle and last frame of its span.

    Decoding skips most of the other frames.
    """
    expected = {sample.time_s - start_s: _coarse(sample.picture) for sample in cut.samples}
    sampler = FrameSampler(proxy, lambda _: None)
    for sample in sampler.sample(SampleTimes(*sorted(expected))):
        shown = _coarse(sample.frame)
        for time_s in sample.times_s:
            if max(abs(a - b) for a, b in zip(shown, expected[time_s], strict=True)) <= _MAX_DIFFERENCE:
                del expected[time_s]
        if not expected:
            return
    raise MediaProblemError(
        f"has a proxy with a wrong picture at {start_s + min(expected):.2f} s, so the proxy was removed",
        "convert the video to MP4 or Matroska first",
    )


def _coarse(frame: VideoFrame) -> bytes:
    """The mean brightness and colours of 8 x 8 parts of a picture."""
    small = VideoReformatter().reformat(frame, _COMPARED, _COMPARED, "yuv444p", interpolation="AREA")
    return b"".join(
        bytes(plane)[row * plane.line_size :][:_COMPARED] for plane in small.planes for row in range(_COMPARED)
    )


def _is_right(frame: Any, sampler: FrameSampler, start_s: float) -> bool:
    """Whether the first frame after a seek is complete, and is the frame at the start of the span."""
    is_early = frame.pts is not None and sampler.timeline.raw_s(frame.pts) <= start_s + EPSILON_S
    return bool(is_early and sampler.starts_at_key_frame and not frame.is_corrupt)


def _seek(video: OpenVideo, stream: Any, time_s: float) -> None:
    try:
        video.container.seek(int(time_s / stream.time_base), stream=stream)
    except av.error.FFmpegError as error:
        raise SeekError from error


def _write_sounds(source: OpenVideo, writer: CutWriter, origin_s: float, start_s: float) -> Iterator[bool]:
    """Write the sound of a span frame by frame. Yields True when the sound track was added, and after each frame."""
    sound: Any = source.container.streams.best("audio")
    if sound is None or sound.codec_context is None:  # there is no sound, or no decoder for it
        return
    writer.add_sound_track(sound)
    yield True
    if start_s > 0 and source.container.format.name in SEEKABLE:
        with contextlib.suppress(SeekError):
            _seek(source, sound, origin_s + start_s)
    for packet in read_packets(source, [sound], []):
        for frame in decode_packet(sound, packet) or []:
            writer.add_sound(frame, origin_s)
            yield True
