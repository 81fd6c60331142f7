"""Video files in: frames sampled by presentation time, decoded in a child process under limits, from local files only.

    with VideoReader(sampling=Sampling(fps=2.0)) as reader:
        for path in paths:
            stream = reader.read(path)          # raises VideoError: path: what was found; what to do
            for batch in stream:
                ...                             # batch.times_s, batch.frames

Times are seconds from the first frame of the video, by the presentation stamps: right for variable frame rates,
B-frames, edit lists and streams that do not start at 0. Pixels are upright and square, whatever the file stores.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.errors import ConfigError, VideoError, shown
from untrimmed.files import whole_file
from untrimmed.video.process import DecodeProcess, Limits, require_decoder

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "VIDEO_SUFFIXES",
    "FrameBatch",
    "FrameReader",
    "Limits",
    "Sampling",
    "VideoInfo",
    "VideoReader",
    "VideoStream",
    "cut",
    "frame_at",
    "is_video_path",
    "read_image",
]

_SUFFIXES = """
    .3g2 .3gp .asf .avi .dv .f4v .flv .gif .h264 .hevc .ivf .m2ts .m2v .m4v .mjpeg .mjpg .mkv .mov .mp4 .mpeg .mpg .mts
    .mxf .nut .ogg .ogv .qt .rm .rmvb .ts .vob .webm .wmv .wtv .y4m
"""
VIDEO_SUFFIXES = frozenset(_SUFFIXES.split())
CUT_FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}


def is_video_path(path: str | os.PathLike[str]) -> bool:
    """Whether the name looks like a video's; what the file holds is found out when it is read."""
    return Path(path).suffix.lower() in VIDEO_SUFFIXES


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about its video. The duration is its claim; `VideoStream.duration_s` is measured.

    Width and height are those of the picture as shown: upright, in square pixels.
    """

    duration_s: float
    width: int
    height: int
    frame_rate: float
    codec: str


@dataclass(frozen=True)
class Sampling:
    """How densely a video is looked at.

    With `keyframes_only` nothing but key frames is decoded, at most `fps` a second: many times faster, and as coarse as
    the file's key frames (often 1 to 10 s apart).
    """

    fps: float = 2.0
    keyframes_only: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.fps) and 0.001 <= self.fps <= 1000):
            raise ConfigError(f"sampling fps is {self.fps}, must be between 0.001 and 1000 frames a second")


@dataclass(frozen=True)
class FrameBatch:
    """Some sampled frames of one video, RGB, and the seconds at which they are on screen."""

    times_s: Float[np.ndarray, " T"]
    frames: UInt8[np.ndarray, "T Y X 3"]


class _Decoder:
    """One long-lived child, started when it is first needed and replaced after a failure. A context manager."""

    def __init__(self, limits: Limits, stop: threading.Event | None = None) -> None:
        require_decoder()
        self.limits = limits
        self._stop = stop
        self._process: DecodeProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def child_pid(self) -> int | None:
        """The process id of the decoding child, if one is running."""
        return self._process.pid if self._process is not None and self._process.is_alive else None

    def ask(self, path: Path, request: dict[str, Any]) -> DecodeProcess:
        """Send a request about a file; the child, which gives the answers."""
        if self._process is None or not self._process.is_alive:
            self.close()
            self._process = DecodeProcess(self.limits, self._stop)
        self._process.ask({**request, "path": os.path.abspath(path)})
        return self._process

    def close(self) -> None:
        """End the child. The reader can be used again: it starts another."""
        if self._process is not None:
            self._process.kill()
        self._process = None


class VideoReader(_Decoder):
    """Reads many files with one long-lived child process, which is replaced after a failure. A context manager.

    Frames come with their shorter side brought down to `short_side` pixels; smaller ones stay as they are. While a
    batch is being worked on, the child decodes the next one.
    """

    def __init__(
        self,
        *,
        sampling: Sampling = Sampling(),
        short_side: int = 288,
        batch_size: int = 16,
        limits: Limits = Limits(),
    ) -> None:
        if short_side < 1 or batch_size < 1:
            raise ConfigError(f"short_side is {short_side} and batch_size {batch_size}; both must be at least 1")
        super().__init__(limits)
        self.sampling = sampling
        self.short_side = short_side
        self.batch_size = batch_size
        self._current: VideoStream | None = None

    def read(self, path: Path) -> VideoStream:
        """Open a file and decode up to its first frame; an unfinished stream of this reader ends.

        Raises:
            VideoError: the file cannot be used; one line with the path, what was found, and what to do.
        """
        if self._current is not None and not self._current.is_done:
            self.close()
        self._current = None
        request = {
            "task": "read",
            **asdict(self.sampling),
            "short_side": self.short_side,
            "batch_size": self.batch_size,
        }
        process = self.ask(path, request)
        message, _ = process.next_message(path)
        del message["kind"]
        self._current = VideoStream(path, VideoInfo(**message), process)
        return self._current


class VideoStream:
    """The sampled frames of one file, in order, once. The measurements are there after the last batch."""

    def __init__(self, path: Path, info: VideoInfo, process: DecodeProcess) -> None:
        self.path = path
        self.info = info
        self.warnings: tuple[str, ...] = ()
        self.decode_cpu_s = 0.0
        self.duration_s = info.duration_s
        self.is_done = False
        self._process = process

    def __iter__(self) -> Iterator[FrameBatch]:
        """The batches.

        Raises:
            VideoError: the decoder died or was stopped on the way; batches given before remain right.
        """
        while not self.is_done:
            try:
                message, pixels = self._process.next_message(self.path)
            except VideoError:
                self.is_done = True
                raise
            if message["kind"] == "end":
                self.is_done = True
                self.warnings = tuple(message["warnings"])
                self.decode_cpu_s = message["decode_cpu_s"]
                self.duration_s = message["duration_s"]
            else:
                yield FrameBatch(np.array(message["times_s"], dtype=np.float64), upright(message, pixels))


class FrameReader(_Decoder):
    """Single frames at any times of any files, from one long-lived child. A context manager; for one thread at a time.

    The child starts with the first frame and is replaced after a failure.
    """

    def __init__(self, *, limits: Limits = Limits()) -> None:
        super().__init__(limits)

    def frame_at(
        self,
        path: Path,
        time_s: float,
        *,
        last_for_s: float = math.inf,
        short_side: int | None = None,
        identity: list[int] | None = None,
    ) -> UInt8[np.ndarray, "Y X 3"]:
        """The frame on screen at a time, as `frame_at` gives it; with its shorter side at most `short_side` pixels.

        With an `identity` (`messages.identity_of`), of that file alone, whatever stands at its path by then.

        Raises:
            VideoError: the file cannot be used, or the time lies further behind its end.
            ConfigError: the time is negative or no number.
        """
        if not (math.isfinite(time_s) and time_s >= 0):
            raise ConfigError(f"{shown(path)}: time {time_s} s, wanted a time from 0 s on")
        times = {"time_s": time_s, "last_for_s": last_for_s}
        return self._frame(path, {"task": "frame_at", **times, "short_side": short_side, "identity": identity})

    def read_image(self, path: Path) -> UInt8[np.ndarray, "Y X 3"]:
        """A still picture, as `read_image` gives it.

        Raises:
            VideoError: the file is no such picture, or is damaged.
        """
        return self._frame(path, {"task": "picture"})

    def _frame(self, path: Path, request: dict[str, Any]) -> UInt8[np.ndarray, "Y X 3"]:
        process = self.ask(path, request)
        frames = upright(*process.next_message(path))
        process.next_message(path)  # the end
        return frames[0]


def upright(message: dict[str, Any], pixels: bytearray) -> UInt8[np.ndarray, "T Y X 3"]:
    """The frames of a `frames` message as an array, turned the way they are shown."""
    height, width, is_transposed, is_flipped_x, is_flipped_y = message["form"]
    frames = np.frombuffer(pixels, dtype=np.uint8).reshape(len(message["times_s"]), height, width, 3)
    if is_transposed:
        frames = frames.transpose(0, 2, 1, 3)
    if is_flipped_x:
        frames = frames[:, :, ::-1]
    if is_flipped_y:
        frames = frames[:, ::-1]
    return np.ascontiguousarray(frames)


def frame_at(
    path: Path, time_s: float, *, last_for_s: float = math.inf, limits: Limits = Limits()
) -> UInt8[np.ndarray, "Y X 3"]:
    """The full-size frame on screen at a time; up to `last_for_s` behind the end of the video, its last frame.

    Raises:
        VideoError: the file cannot be used, or the time lies further behind its end.
        ConfigError: the time is negative or no number.
    """
    with FrameReader(limits=limits) as reader:
        return reader.frame_at(path, time_s, last_for_s=last_for_s)


def read_image(path: Path, *, limits: Limits = Limits()) -> UInt8[np.ndarray, "Y X 3"]:
    """A still picture (PNG, JPEG, WebP, BMP, GIF) as RGB, decoded under the same limits as a video.

    Raises:
        VideoError: the file is no such picture, or is damaged.
    """
    with FrameReader(limits=limits) as reader:
        return reader.read_image(path)


def cut(
    path: Path,
    start_s: float,
    end_s: float,
    out: Path,
    *,
    limits: Limits = Limits(),
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
    identity: list[int] | None = None,
    stop: threading.Event | None = None,
) -> float:
    """Write a span of a video, with its sound, to a new file that starts and ends exactly there.

    Gives the second of the video at which the new file ends: earlier than asked where the video itself does.

    The span is encoded anew (H.264 and AAC; `.mp4`, `.m4v`, `.mov` or `.mkv`). The file appears under its name only
    when it is complete. `progress` is told, about once a second, the time in the video that has been reached: below
    `start_s` while the start is looked for (containers without an index are decoded from their beginning). With an
    `identity` (`messages.identity_of`), of that file alone, whatever stands at its path by then. Setting `stop` from
    another thread ends it.

    Raises:
        VideoError: the file cannot be used, the span lies behind its end, a limit is reached, or it is to stop.
        ConfigError: the span is empty, the suffix is another one, or `out` is there and `overwrite` is not set.
    """
    if not (math.isfinite(start_s) and math.isfinite(end_s) and 0 <= start_s < end_s):
        raise ConfigError(f"{shown(path)}: span {start_s} to {end_s} s, wanted 0 <= start < end")
    if out.suffix.lower() not in CUT_FORMATS:
        raise ConfigError(
            f"{shown(out)}: cannot write '{out.suffix}' files; name it with one of {' '.join(CUT_FORMATS)}"
        )
    if out.exists() and not overwrite:
        raise ConfigError(f"{shown(out)}: is there already; choose another name or allow overwriting")
    if not out.parent.is_dir():
        raise ConfigError(f"{shown(out)}: the folder {out.parent} does not exist; create it first")
    try:
        with whole_file(out, replace=overwrite) as partial, _Decoder(limits, stop) as decoder:
            request = {
                "task": "cut",
                "start_s": start_s,
                "end_s": end_s,
                "out": os.path.abspath(partial),
                "format": CUT_FORMATS[out.suffix.lower()],
                "identity": identity,
            }
            message, _ = decoder.ask(path, request).next_message(path, progress)
    except FileExistsError as error:
        raise ConfigError(f"{shown(out)}: is there already; choose another name or allow overwriting") from error
    return float(message["end_s"])
