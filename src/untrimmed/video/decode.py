"""Open an untrusted media file and decode frames. This runs only in the decoding child process.

FFmpeg gets an open regular file and cannot open other files, because `fd` is the only allowed protocol. So playlists,
reference movies and subtitle links in the file have no effect. Demuxers that open other files are disabled.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from untrimmed.video.messages import identity_of
from untrimmed.video.timeline import MAX_FPS, MAX_HOLD_S, MIN_FPS
from untrimmed.video.timing import Timing, measure_rate, nearest_frame

# Demuxers of self-contained recordings. Audio formats are included so that their error is "no video stream".
DEMUXERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,flv,asf,ogg,mxf,nut,gif,apng,ivf,obu,"
    "dv,rm,wtv,mjpeg,yuv4mpegpipe,h263,vc1,swf,mp3,wav,w64,flac,aac,aiff,ac3,caf,amr,ape,wv,tta"
)
# Still pictures, for `read_image`.
STILL_DEMUXERS = "png_pipe,jpeg_pipe,webp_pipe,bmp_pipe,gif"
# Containers with an index, where decoding may start at key frames. MPEG-TS is excluded, because it also marks
# recovery points as key frames. After a recovery point, it takes some frames until the picture is complete.
SEEKABLE = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "flv", "asf", "mxf", "nut"}
ADVICE_FORMAT = "convert it to MP4, Matroska or WebM, or leave it out"
ADVICE_COPY = "copy or record it again, or leave it out"
ADVICE_PICTURE = "use a PNG, JPEG, WebP, BMP or GIF file"
UNSPECIFIED_COLORSPACE = 2  # AVCOL_SPC_UNSPECIFIED
HEAD_BYTES = 256
# Common files that are not videos, by their first bytes or by words near the start.
FIRST_BYTES = {
    b"\x89PNG\r\n": "a still picture (PNG)",
    b"\xff\xd8\xff": "a still picture (JPEG)",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b\x08": "a gzip archive",
    b"%PDF-": "a PDF document",
    b"\x7fELF": "a program",
    b"SQLite format 3": "a database",
}
WORDS = {
    b"#EXTM3U": "a playlist that points to other files",
    b"[playlist]": "a playlist that points to other files",
    b"ffconcat version": "a list that points to other files",
    b"<MPD": "a streaming manifest that points to other files",
    b"m=video ": "a session description that points to the network",
    b"<svg": "a drawing",
}
# AV_DISPOSITION_ flags. Different versions of PyAV define them in different modules.
DEFAULT_STREAM = 1 << 0
COVER_PICTURE = 1 << 10 | 1 << 11  # attached pictures and timed thumbnails
# Largest plausible aspect ratio of a pixel. Larger ratios come from damaged headers, and would make one side huge.
MAX_PIXEL_ASPECT = 8
MAX_SIDES_RATIO = 4
# largest number of entries of the container's index that are read to measure the frame rate
_MIN_SNAP_RATE = 10  # frames per second; at lower rates, edges of clips are not moved to frames
_MAX_DRIFT = Fraction(1, 10)  # frames between the declared and the measured rate, up to the end of a clip
MAX_MEASURED_ENTRIES = 10_000
# largest number of packets that are read to measure the frame rate, if the container has no index of all frames
MAX_MEASURED_PACKETS = 300
TIMECODE = re.compile(r"(\d\d:\d\d:\d\d[:;.])(\d{1,3})")  # FFmpeg writes one digit for up to 10 frames a second


class MediaProblemError(Exception):
    """Raised if a file cannot be used. `advice` is what the user can do."""

    def __init__(self, problem: str, advice: str, *, is_fatal: bool = False) -> None:
        super().__init__(f"{problem}; {advice}")
        self.problem = problem
        self.advice = advice
        self.is_fatal = is_fatal  # whether this process must end (out of memory)


def open_regular_file(path: str, identity: list[int] | None = None) -> int:
    """Return a read-only descriptor of a regular, non-empty file.

    Pipes and devices are refused, so the call never blocks. If `identity` is given (see `messages.identity_of`), a file
    with another identity is refused too.
    """
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise MediaProblemError(
                f"is a {_kind_of_file(mode)}, not a regular file", "use a video file or a folder of videos"
            )
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _file_problem(error) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        os.close(descriptor)
        raise MediaProblemError("is empty (0 bytes)", ADVICE_COPY)
    if identity is not None and identity_of(status) != identity:
        os.close(descriptor)
        raise _changed()
    return descriptor


def check_folder(path: str, identity: list[int] | None) -> None:
    """Raise a MediaProblemError if a folder does not exist, or does not have the given `identity`."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise _file_problem(error) from error
    if identity is not None and identity_of(status) != identity:
        raise _changed()


def _changed() -> MediaProblemError:
    return MediaProblemError("has changed since it was indexed", "index it again")


def _kind_of_file(mode: int) -> str:
    kinds = {
        stat.S_ISDIR: "folder",
        stat.S_ISFIFO: "named pipe",
        stat.S_ISSOCK: "socket",
        stat.S_ISCHR: "character device",
        stat.S_ISBLK: "block device",
    }
    return next((name for test, name in kinds.items() if test(mode)), "special file")


def _file_problem(error: OSError | ValueError) -> MediaProblemError:
    problems = {
        errno.ENOENT: ("does not exist", "check the path"),
        errno.EACCES: ("cannot be read (permission denied)", "change its permissions"),
        errno.ELOOP: ("is a symbolic link to itself", "remove the link"),
        errno.ENAMETOOLONG: ("has a name that is too long", "rename it"),
        errno.ENOTDIR: ("does not exist (a part of the path is a file)", "check the path"),
    }
    default = (f"cannot be opened ({error})", "check the path")
    return MediaProblemError(*problems.get(getattr(error, "errno", None) or 0, default))


@dataclass
class OpenVideo:
    """An open file and the video stream that a player would choose."""

    container: InputContainer
    stream: VideoStream
    _orientations: dict[int, Orientation] = field(default_factory=dict)  # rotation of a frame in degrees -> orientation

    def orientation(self, frame: VideoFrame) -> Orientation:
        """Return the orientation of a decoded frame.

        The display matrix is read only once per rotation, so all frames with the same rotation are mirrored alike. If
        the side data of a frame are read, PyAV frees the frame only when Python collects garbage, and a hundred frames
        of a 4K video need 3 GB.
        """
        if frame.rotation not in self._orientations:
            self._orientations[frame.rotation] = Orientation.of(frame)
        return self._orientations[frame.rotation]

    @property
    def frame_s(self) -> float:
        """The declared time between frames in seconds, or 1/25 if the container declares none."""
        rate = self.stream.average_rate or self.stream.guessed_rate
        return float(1 / rate) if rate and MIN_FPS <= rate <= MAX_FPS else 0.04

    def hold_s(self, item: Any) -> float:
        """Return the declared duration of a frame or packet in seconds if it is plausible, otherwise `frame_s`."""
        assert self.stream.time_base is not None
        hold_s = float((item.duration or 0) * self.stream.time_base)
        return hold_s if 0 < hold_s <= MAX_HOLD_S else self.frame_s

    @property
    def picture_start_s(self) -> float:
        """The time of the first frame in seconds, counted like players from the earlier start of picture and sound."""
        streams: list[Any] = [self.stream, *self.container.streams.audio]
        starts_s = [float((stream.start_time or 0) * stream.time_base) for stream in streams]
        return max(0.0, starts_s[0] - max(0.0, min(starts_s)))

    @property
    def declared_s(self) -> float:
        """The declared duration in seconds, or 0 if there is none. It may be wrong."""
        if self.stream.duration and self.stream.time_base:
            return max(0.0, float(self.stream.duration * self.stream.time_base))
        declared = self.container.duration or 0
        start = self.container.start_time or 0
        if self.container.format.name == "matroska,webm" and start < declared:
            declared -= start  # Matroska counts the duration from 0, even if the first frame is later
        return max(0.0, declared / 1e6)


@contextmanager
def open_video(
    path: str,
    *,
    max_pixels: int,
    error_log: Callable[[], str],
    demuxers: str = DEMUXERS,
    identity: list[int] | None = None,
) -> Iterator[OpenVideo]:
    """Open a file for decoding. `error_log` returns FFmpeg's messages so far. For `identity`, see `open_regular_file`.

    Raises:
        MediaProblemError: The path is not a regular file, or the file has an unknown container, no video stream, no
            decoder, or pictures that are too large.
    """
    descriptor = open_regular_file(path, identity)
    try:
        options = {
            "fd": str(descriptor),
            "protocol_whitelist": "fd",
            "format_whitelist": demuxers,
            "max_streams": "100",
        }
        try:
            container = av.open("fd:", container_options=options, metadata_errors="replace")
        except av.error.FFmpegError as error:
            head = os.pread(descriptor, HEAD_BYTES, 0)
            raise _container_problem(error, error_log(), head, is_still=demuxers == STILL_DEMUXERS) from error
        with container:
            stream = _choose_stream(container, max_pixels, error_log())
            stream.codec_context.options = {"max_pixels": str(max_pixels)}
            stream.codec_context.thread_count = 1
            yield OpenVideo(container, stream)
    finally:
        os.close(descriptor)
        gc.collect()  # frees frames whose side data were read, see `OpenVideo.orientation`


def memory_problem(verb: str) -> MediaProblemError:
    """Return the error for a file that needs too much memory."""
    advice = "raise Limits.memory_bytes or leave the file out"
    return MediaProblemError(f"needs more memory than the limit to {verb}", advice, is_fatal=True)


def _container_problem(error: av.error.FFmpegError, log: str, head: bytes, *, is_still: bool) -> MediaProblemError:
    if isinstance(error, MemoryError):
        return memory_problem("open")
    noun = "picture" if is_still else "video"
    advice = ADVICE_PICTURE if is_still else "leave it out"
    advice_format = ADVICE_PICTURE if is_still else ADVICE_FORMAT
    kinds = [kind for mark, kind in FIRST_BYTES.items() if head.startswith(mark)]
    kinds += [kind for word, kind in WORDS.items() if word in head]
    if kinds and not (is_still and "picture" in kinds[0]):
        return MediaProblemError(f"is {kinds[0]}, not a {noun}", advice)
    if "Format not on whitelist" in log:
        name = log.rpartition("Format not on whitelist")[0].rpartition("[")[2].split(" @")[0].rstrip("] ")
        return MediaProblemError(f"contains '{name}' data, which is not a supported {noun} format", advice_format)
    if "moov atom not found" in log:
        return MediaProblemError("is cut off or unfinished (its index, the 'moov' atom, is missing)", ADVICE_COPY)
    if len(head) == HEAD_BYTES and not any(head):
        return MediaProblemError(f"begins with {len(head)} zero bytes, probably from a failed download", ADVICE_COPY)
    if head.isascii() and head.decode("ascii").replace("\n", " ").replace("\r", " ").replace("\t", " ").isprintable():
        return MediaProblemError(f"contains text, not a {noun}", advice)
    detail = f" ({last_line(log)})" if log else ""
    return MediaProblemError(f"is not a {noun} in a supported format{detail}", advice_format)


def last_line(log: str) -> str:
    """Return the last message of FFmpeg, without memory addresses."""
    line = log.strip().rpartition("\n")[2]
    source, separator, text = line.partition("] ")
    return f"{source.lstrip('[').split(' @')[0]}: {text}"[:160] if separator else line[:160]


def _choose_stream(container: InputContainer, max_pixels: int, log: str) -> VideoStream:
    streams = [stream for stream in container.streams.video if not stream.disposition.value & COVER_PICTURE]
    if not streams:
        kinds = ["a cover picture"] if container.streams.video else []
        kinds += sorted(
            {"data" if stream.type == "unknown" else stream.type for stream in container.streams} - {"video"}
        )
        raise MediaProblemError(
            f"has no video stream (it contains {' and '.join(kinds) or 'no stream at all'})", "leave it out"
        )
    decodable = [stream for stream in streams if stream.codec_context is not None]
    if not decodable:
        raise MediaProblemError("has video in a codec that this machine cannot decode", ADVICE_FORMAT)
    stream = max(decodable, key=lambda s: (s.disposition.value & DEFAULT_STREAM, s.width * s.height))
    if stream.width * stream.height > max_pixels:
        raise size_problem(stream.width, stream.height, max_pixels)
    check_limits_in(log, max_pixels)
    return stream


def size_problem(width: int, height: int, max_pixels: int) -> MediaProblemError:
    """Return the error for pictures above the size limit."""
    problem = f"declares pictures of {width} x {height}, more than the limit of {max_pixels:,} pixels"
    return MediaProblemError(problem, "raise Limits.max_pixels if that is the real size")


def check_limits_in(log: str, max_pixels: int) -> None:
    """Raise an error if FFmpeg's messages mention pictures that are too large, or a lack of memory.

    Without this check, the file would be reported as damaged.
    """
    # FFmpeg also reports "get_buffer() failed" if the size of the picture is unknown or impossible.
    is_buffer_too_large = "get_buffer() failed" in log and "image parameters invalid" not in log
    if "Cannot allocate memory" in log or is_buffer_too_large:
        raise memory_problem("decode")
    sizes = re.findall(r"Picture size (\d+)x(\d+) (?:exceeds specified max pixel|is invalid)", log)
    for width, height in sizes:
        if (width, height) != ("0", "0"):
            raise size_problem(int(width), int(height), max_pixels)


@dataclass(frozen=True)
class Orientation:
    """How to turn stored pixels upright: transpose them first, then mirror them."""

    transpose: bool = False
    flip_x: bool = False
    flip_y: bool = False

    @classmethod
    def of(cls, frame: VideoFrame) -> Orientation:
        """Return the orientation in a frame's display matrix, rounded to quarter turns."""
        data: Any = frame.side_data.get("DISPLAYMATRIX")
        if data is None:
            return cls()
        a, b, _, c, d, *_ = struct.unpack("=9i", bytes(data)[:36])
        if abs(a) + abs(d) >= abs(b) + abs(c):  # x' = ax + cy, y' = bx + dy
            return cls(False, a < 0, d < 0)
        return cls(True, c < 0, b < 0)


def pixel_aspect(stream: VideoStream) -> Fraction:
    """Return the width of a stored pixel divided by its height; 1 if it is missing or implausible."""
    ratio = stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio
    if not ratio or not Fraction(1, MAX_PIXEL_ASPECT) <= ratio <= MAX_PIXEL_ASPECT:
        return Fraction(1)
    return ratio


def square_size(width: int, height: int, aspect: Fraction) -> tuple[int, int]:
    """Return the size of a stored picture in square pixels, before it is turned upright."""
    return max(1, round(width * aspect)), height


def scaled_size(width: int, height: int, short_side: int) -> tuple[int, int]:
    """Return the size in which frames are sent to the parent. The shorter side has at most `short_side` pixels.

    The longer side has at most `4 * short_side` pixels, so that a long strip cannot fill the memory.
    """
    scale = min(1.0, short_side / min(width, height), MAX_SIDES_RATIO * short_side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def read_packets(video: OpenVideo, streams: list[Any], warnings: list[str]) -> Iterator[Any]:
    """Yield the packets of several streams. If the file is damaged, yielding stops early and a warning is added."""
    try:
        for packet in video.container.demux(streams):
            if packet.size or packet.pts is not None:
                yield packet
    except av.error.MemoryError as error:
        raise memory_problem("read") from error
    except av.error.FFmpegError as error:
        warnings.append(f"reading stopped early ({error.strerror})")
    except IndexError:
        # PyAV raises this after the last packet if a stream appeared in the middle of the file
        return


def decode_packet(stream: Any, packet: Any | None) -> list[Any] | None:
    """Return the frames that a packet completes, or None if the packet is damaged.

    If the packet is None, return the decoder's remaining frames.

    Raises:
        MediaProblemError: Out of memory.
    """
    try:
        return stream.decode(packet)
    except av.error.MemoryError as error:
        raise memory_problem("decode") from error
    except av.error.EOFError:
        return []
    except av.error.FFmpegError:
        return None


def measure_timing(video: OpenVideo) -> Timing:
    """Return the frame rate, timecode and audio tracks of a newly opened video. This may read its first packets."""
    stream = video.stream
    assert stream.time_base is not None
    stamps = [entry.timestamp for entry in itertools.islice(stream.index_entries, MAX_MEASURED_ENTRIES)]
    # the container's index has only key frames, or there is no index
    if len(stamps) < min(stream.frames or 2, MAX_MEASURED_ENTRIES):
        packets = itertools.islice(read_packets(video, [stream], []), MAX_MEASURED_PACKETS)
        # presentation times, because some containers have no decoding times or wrong ones
        stamps = [packet.pts for packet in packets if packet.pts is not None]
    rates = [rate for rate in (stream.average_rate, stream.base_rate, stream.guessed_rate) if rate]
    rates = [rate for rate in rates if MIN_FPS <= rate <= MAX_FPS] or [
        Fraction(1 / video.frame_s).limit_denominator(1001)
    ]
    rate, is_variable = measure_rate(stamps, stream.time_base, rates)
    tags = [stream.metadata, video.container.metadata, *(data.metadata for data in video.container.streams.data)]
    timecodes = [value for entries in tags for name, value in entries.items() if name.lower() == "timecode"]
    match = next(filter(None, map(TIMECODE.fullmatch, timecodes)), None)
    timecode = f"{match[1]}{match[2]:0>2}".replace(".", ";") if match else ""
    return Timing(str(rate), is_variable, timecode, len(video.container.streams.audio), video.picture_start_s)


def span_of_frames(video: OpenVideo, start_s: float, end_s: float) -> tuple[float, float]:
    """Return a span whose edges are moved to the nearest frames, or the same span if the times of frames are uncertain.

    The video must be newly opened. The times are uncertain if the rate varies, or is not exactly the declared rate. The
    span is also unchanged if the rate is low, because its edges would move far, and at the end of the video.
    """
    timing = measure_timing(video)
    rate = Fraction(timing.frame_rate)
    drift = abs((video.stream.average_rate or rate) - rate) * Fraction(end_s)
    first = nearest_frame(start_s, rate)
    last = max(first + 1, nearest_frame(end_s, rate))
    is_after_end = 0 < video.declared_s <= first / rate
    if timing.has_variable_rate or rate < _MIN_SNAP_RATE or drift > _MAX_DRIFT or is_after_end:
        return start_s, end_s
    return float(first / rate), float(last / rate)


def stamp(frame: VideoFrame) -> int | None:
    """Return the presentation time of a frame in its stream's units, or its decoding time if it has none."""
    return frame.pts if frame.pts is not None else frame.dts
