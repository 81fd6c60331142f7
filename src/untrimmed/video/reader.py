"""Read frames, sound and subtitles of local video files. A child process with limits decodes them.

    with VideoReader(sampling=Sampling(fps=2.0)) as reader:
        for path in paths:
            stream = reader.read(path)          # raises VideoError
            for batch in stream:
                ...                             # batch.times_s, batch.frames

Times are seconds from the first frame of the video. They are computed from presentation timestamps, so they are right
for variable frame rates, B-frames, edit lists and streams that do not start at 0. Frames are upright and have square
pixels.
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
from jaxtyping import Float, Float32, UInt8

from untrimmed.errors import ConfigError, VideoError, counted, shown
from untrimmed.files import whole_file
from untrimmed.video.messages import SOUND_HZ
from untrimmed.video.process import DecodeProcess, Limits, require_decoder
from untrimmed.video.subtitle_text import MAX_CUE, WITHOUT_END
from untrimmed.video.timeline import check_fps
from untrimmed.video.timing import Timing

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "VIDEO_SUFFIXES",
    "FrameBatch",
    "FrameReader",
    "Limits",
    "ProxyWriter",
    "Sampling",
    "SoundPiece",
    "SoundReader",
    "TimingReader",
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
# One frame of each new clip is compared with the source video.
_CHECK_SIDE = 64  # shorter side of the compared pictures, in pixels
_MAX_DIFFERENCE = 32.0  # a clip is rejected if a mean colour (0 to 255) of any part differs by more
CUT_FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}


def is_video_path(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the suffix of a video. The file is not opened."""
    return Path(path).suffix.lower() in VIDEO_SUFFIXES


@dataclass(frozen=True)
class VideoInfo:
    """The declared properties of a video. The measured duration is in `VideoStream.duration_s`.

    Width and height are those of the displayed picture: upright, in square pixels.
    """

    duration_s: float
    width: int
    height: int
    codec: str
    timing: Timing


@dataclass(frozen=True)
class Sampling:
    """How many frames of a video are sampled.

    With `keyframes_only`, only key frames are decoded, at most `fps` per second. This is many times faster, but key
    frames are often 1 to 10 s apart.
    """

    fps: float = 2.0
    keyframes_only: bool = False

    def __post_init__(self) -> None:
        check_fps(self.fps, "sampling fps")


@dataclass(frozen=True)
class FrameBatch:
    """Sampled RGB frames of one video and their times in seconds."""

    times_s: Float[np.ndarray, " T"]
    frames: UInt8[np.ndarray, "T Y X 3"]


@dataclass(frozen=True)
class SubtitleCue:
    """A subtitle: its span in seconds, its text, and the number of its stream (-1 in a subtitle file)."""

    start_s: float
    end_s: float
    text: str
    stream: int = -1


class _Decoder:
    """A context manager with one child process, which is started when needed and replaced after a failure."""

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
        """Send a request about a file and return the child that answers it."""
        if self._process is None or not self._process.is_alive:
            self.close()
            self._process = DecodeProcess(self.limits, self._stop)
        self._process.ask({**request, "path": os.path.abspath(path)})
        return self._process

    def close(self) -> None:
        """Stop the child. The next request starts another one."""
        if self._process is not None:
            self._process.kill()
        self._process = None


class VideoReader(_Decoder):
    """Reads the sampled frames of many files with one child process. A context manager.

    Larger frames are scaled so that the shorter side has `short_side` pixels. While the caller works on a batch, the
    child decodes the next batch.
    """

    def __init__(
        self,
        *,
        sampling: Sampling = Sampling(),
        short_side: int = 288,
        batch_size: int = 16,
        repeats_frames: bool = True,
        limits: Limits = Limits(),
    ) -> None:
        """Create a reader.

        Args:
            repeats_frames: Whether to sample a frame several times if the sampling rate is above the frame rate. If
                not, each frame is sampled once, with a warning. A video with a variable rate always repeats frames.

        Raises:
            ConfigError: A size is below 1.
        """
        if short_side < 1 or batch_size < 1:
            raise ConfigError(f"short_side is {short_side} and batch_size {batch_size}; expected both to be 1 or more")
        super().__init__(limits)
        self.sampling = sampling
        self.short_side = short_side
        self.batch_size = batch_size
        self.repeats_frames = repeats_frames
        self._current: VideoStream | None = None

    def read(self, path: Path, pictures_fps: float | None = None) -> VideoStream:
        """Open a file and decode its first frame. If the previous stream of this reader is unfinished, it is cancelled.

        If `pictures_fps` is given, the path may also be a folder of numbered pictures (`untrimmed.video.pictures`) with
        this frame rate.

        Raises:
            VideoError: The file cannot be used.
        """
        if self._current is not None and not self._current.is_done:
            self.close()
        self._current = None
        request = {
            "task": "read",
            **asdict(self.sampling),
            "short_side": self.short_side,
            "batch_size": self.batch_size,
            "repeats_frames": self.repeats_frames,
            "pictures_fps": pictures_fps,
        }
        process = self.ask(path, request)
        message, _ = process.next_message(path)
        del message["kind"]
        timing = Timing(**message.pop("timing"))
        self._current = VideoStream(path, VideoInfo(**message, timing=timing), process)
        return self._current


class VideoStream:
    """The sampled frames of one file, in order.

    It can be iterated once. Measured values are set after the last batch.
    """

    def __init__(self, path: Path, info: VideoInfo, process: DecodeProcess) -> None:
        self.path = path
        self.info = info
        self.warnings: tuple[str, ...] = ()
        self.decode_cpu_s = 0.0
        self.duration_s = info.duration_s
        self.is_done = False
        self._process = process

    def __iter__(self) -> Iterator[FrameBatch]:
        """Yield the batches.

        Raises:
            VideoError: The decoder failed or was stopped. Earlier batches are valid.
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


class TimingReader(_Decoder):
    """Measures the frame rate, timecode and audio tracks of files. A context manager, not thread-safe."""

    def __init__(self, *, limits: Limits = Limits()) -> None:
        super().__init__(limits)

    def read(self, path: Path, identity: list[int] | None = None) -> Timing:
        """Return a file's `Timing`. If `identity` is given, another file is refused (see `messages.identity_of`).

        Raises:
            VideoError: The file cannot be used.
        """
        message, _ = self.ask(path, {"task": "timing", "identity": identity}).next_message(path)
        del message["kind"]
        return Timing(**message)


@dataclass(frozen=True)
class SoundPiece:
    """About 10 s of mono sound or less: its start in seconds, and samples in [-1, 1] at `SOUND_HZ`.

    The start is negative if the sound starts before the first frame.
    """

    start_s: float
    samples: Float32[np.ndarray, " N"]

    @property
    def end_s(self) -> float:
        """The time at which the piece ends, in seconds."""
        return self.start_s + len(self.samples) / SOUND_HZ


class SoundReader(_Decoder):
    """Reads the sound of files with one child process. A context manager, not thread-safe."""

    def __init__(self, *, limits: Limits = Limits()) -> None:
        super().__init__(limits)

    def pieces(
        self, path: Path, *, on_warning: Callable[[str], None] | None = None, identity: list[int] | None = None
    ) -> Iterator[SoundPiece]:
        """Yield the sound of a file in pieces, in order of time. A gap between two pieces has no sound.

        A file without sound has no pieces. `on_warning` is called at the end with each warning about damage or limits.
        If `identity` is given, a file with another identity is refused (see `messages.identity_of`).

        Raises:
            VideoError: The file cannot be used. Earlier pieces are valid.
        """
        process = self.ask(path, {"task": "sound", "identity": identity})
        is_done = False
        try:
            while True:
                message, samples = process.next_message(path)
                if message["kind"] == "end":
                    break
                yield SoundPiece(message["start_s"], np.frombuffer(samples, np.int16).astype(np.float32) / 32768)
            is_done = True
        finally:
            if not is_done and process.is_alive:
                self.close()  # otherwise the child would continue to decode this file
        for warning in message["warnings"]:
            if on_warning is not None:
                on_warning(warning)


class SubtitleReader:
    """Reads subtitle files, and subtitle streams of videos, in a child process. Not thread-safe."""

    def __init__(self, decoder: _Decoder | None = None, *, limits: Limits = Limits()) -> None:
        """Use the child process of `decoder`, which must be idle. By default, start one with these limits."""
        self._decoder = decoder or _Decoder(limits)
        self.faults: list[str] = []
        self.languages: dict[int, str] = {}

    def close(self) -> None:
        """Stop the child process."""
        self._decoder.close()

    def read_file(self, path: Path, language: str, on_progress: Callable[[float], None]) -> Iterator[SubtitleCue]:
        """Yield the cues of a subtitle file (.srt, .vtt, .ass or .ssa) in order of time.

        The language helps to detect the encoding. After the last cue, `faults` describes what was left out.

        Raises:
            VideoError: The file cannot be used.
        """
        self.faults = []
        process = self._decoder.ask(path, {"task": "subtitle_file", "language": language})
        for message in self._messages(process, path, on_progress):
            if message["kind"] == "end":
                if message["broken"]:
                    self.faults.append(
                        f"{counted(message['broken'], 'cue')} left out, because the times cannot be read"
                    )
                if message["shortened"]:
                    self.faults.append(f"{counted(message['shortened'], 'cue')} shortened to {MAX_CUE} characters")
                if message["without_end"]:
                    self.faults.append(f"{counted(message['without_end'], 'cue')} {WITHOUT_END}")
                if message["is_incomplete"]:
                    self.faults.append("ends in the middle of a cue, which was left out; download the file again")
                if message["is_encoding_uncertain"]:
                    self.faults.append(
                        "some characters may be wrong, because the file's encoding is unknown; save the file as UTF-8"
                    )
            else:
                yield from (SubtitleCue(start / 1000, end / 1000, text) for start, end, text in message["cues"])

    def read_streams(self, path: Path, on_progress: Callable[[float], None]) -> Iterator[SubtitleCue]:
        """Yield the cues of all text streams of a video, in the order of the file.

        Times are seconds from the first frame. After the last cue, `languages` contains the language of each stream,
        and `faults` lists the streams that cannot be read.

        Raises:
            VideoError: The file cannot be used.
        """
        self.faults = []
        process = self._decoder.ask(path, {"task": "subtitle_streams"})
        for message in self._messages(process, path, on_progress):
            if message["kind"] == "end":
                self.languages = {int(index): language for index, language in message["languages"].items()}
                self.faults += [*message["unread"], *message["warnings"]]
            else:
                yield from (
                    SubtitleCue(start / 1000, end / 1000, text, stream) for stream, start, end, text in message["cues"]
                )

    def _messages(
        self, process: DecodeProcess, path: Path, on_progress: Callable[[float], None]
    ) -> Iterator[dict[str, Any]]:
        """Yield the messages up to `end`. If the caller stops earlier, the child is stopped."""
        is_done = False
        try:
            while not is_done:
                message, _ = process.next_message(path, on_progress)
                is_done = message["kind"] == "end"
                yield message
        except VideoError:
            is_done = True  # the child has reported an error and can be used again, or has ended
            raise
        finally:
            if not is_done:
                process.kill()


class ProxyWriter(_Decoder):
    """Writes proxies (small copies for browsers) of spans of videos with one child process. A context manager.

    Only `cancel` may be called from other threads.
    """

    def __init__(self, *, limits: Limits = Limits()) -> None:
        super().__init__(limits, threading.Event())

    def write(self, path: Path, start_s: float, end_s: float, out: Path, identity: list[int] | None = None) -> float:
        """Write a span of a video to a new file, which browsers can play before it is complete (see `video.proxy`).

        Returns the time in the video, in seconds, at which the new file ends. If an error is raised, the caller must
        delete the new file. If `identity` is given, a file with another identity is refused (`messages.identity_of`).

        Raises:
            VideoError: The file cannot be used, a limit is reached, or `cancel` was called.
        """
        request = {
            "task": "proxy",
            "start_s": start_s,
            "end_s": end_s,
            "out": os.path.abspath(out),
            "identity": identity,
            "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        }
        message, _ = self.ask(path, request).next_message(path)
        return float(message["end_s"])

    def cancel(self) -> None:
        """Stop the current call of `write`, or the next one."""
        assert self._stop is not None
        self._stop.set()

    def reset(self) -> None:
        """Allow further calls of `write` after `cancel`."""
        assert self._stop is not None
        self._stop.clear()


class FrameReader(_Decoder):
    """Reads single frames of files with one child process. A context manager, not thread-safe."""

    def __init__(self, *, limits: Limits = Limits(), stop: threading.Event | None = None) -> None:
        """Create a reader. If another thread sets `stop`, waiting for a frame raises a VideoError."""
        super().__init__(limits, stop)

    def frame_at(
        self,
        path: Path,
        time_s: float,
        *,
        last_for_s: float = math.inf,
        short_side: int | None = None,
        identity: list[int] | None = None,
        pictures_s: float | None = None,
    ) -> UInt8[np.ndarray, "Y X 3"]:
        """Return the frame at a time, or the last frame up to `last_for_s` seconds after the end.

        Args:
            short_side: A larger frame is reduced so that its shorter side has this many pixels. None: full size.
            identity: Refuse a file with another identity (see `messages.identity_of`).
            pictures_s: The duration of the video in seconds if it is a folder of pictures.

        Raises:
            VideoError: The file cannot be used, or the time is more than `last_for_s` after its end.
            ConfigError: The time is negative or not finite.
        """
        if not (math.isfinite(time_s) and time_s >= 0):
            raise ConfigError(f"{shown(path)}: time is {time_s} s, expected 0 s or more")
        times = {"time_s": time_s, "last_for_s": last_for_s}
        form = {"short_side": short_side, "pictures_s": pictures_s}
        return self._frame(path, {"task": "frame_at", **times, **form, "identity": identity})

    def frames_between(
        self, path: Path, start_s: float, stop_s: float, *, short_side: int, identity: list[int] | None = None
    ) -> FrameBatch:
        """Return all frames that are on screen between two times, with the times at which they appear.

        The first frame may appear before `start_s`.

        Raises:
            VideoError: The file cannot be used, or shows nothing between these times.
        """
        times = {"start_s": start_s, "stop_s": stop_s}
        request = {"task": "frames_between", **times, "short_side": short_side, "identity": identity}
        process = self.ask(path, request)
        message, pixels = process.next_message(path)
        process.next_message(path)  # the `end` message
        return FrameBatch(np.array(message["times_s"], dtype=np.float64), upright(message, pixels))

    def picture_start_s(self, path: Path, identity: list[int] | None = None) -> float:
        """Return how many seconds after the start of the sound the first frame appears, or 0 if it appears earlier.

        Raises:
            VideoError: The file cannot be used.
        """
        message, _ = self.ask(path, {"task": "picture_start", "identity": identity}).next_message(path)
        return float(message["picture_start_s"])

    def read_image(self, path: Path) -> UInt8[np.ndarray, "Y X 3"]:
        """Return the RGB pixels of a still picture (see the function `read_image`).

        Raises:
            VideoError: The file has another format or is damaged.
        """
        return self._frame(path, {"task": "picture"})

    def _frame(self, path: Path, request: dict[str, Any]) -> UInt8[np.ndarray, "Y X 3"]:
        process = self.ask(path, request)
        frames = upright(*process.next_message(path))
        process.next_message(path)  # the `end` message
        return frames[0]


def upright(message: dict[str, Any], pixels: bytearray) -> UInt8[np.ndarray, "T Y X 3"]:
    """Return the frames of a `frames` message as an array, turned upright."""
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
    path: Path,
    time_s: float,
    *,
    last_for_s: float = math.inf,
    limits: Limits = Limits(),
    pictures_s: float | None = None,
) -> UInt8[np.ndarray, "Y X 3"]:
    """Return the full-size frame at a time, or the last frame up to `last_for_s` seconds after the end.

    `pictures_s` is the duration of the video in seconds if it is a folder of pictures.

    Raises:
        VideoError: The file cannot be used, or the time is more than `last_for_s` after its end.
        ConfigError: The time is negative or not finite.
    """
    with FrameReader(limits=limits) as reader:
        return reader.frame_at(path, time_s, last_for_s=last_for_s, pictures_s=pictures_s)


def read_image(path: Path, *, limits: Limits = Limits()) -> UInt8[np.ndarray, "Y X 3"]:
    """Return the RGB pixels of a still picture (PNG, JPEG, WebP, BMP, GIF), decoded under the same limits as a video.

    Raises:
        VideoError: The file has another format or is damaged.
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
    """Write a span of a video, with sound, to a new file. Return the time in the video at which the new file ends.

    The span is re-encoded (H.264 and AAC). Its edges are moved to the nearest frames, unless the frame rate varies or
    is low. The suffix of `out` is `.mp4`, `.m4v`, `.mov` or `.mkv`. The file appears only when it is complete. The
    returned time, in seconds, is before `end_s` if the video ends earlier.

    Args:
        progress: Called about once per second with the time in the video that decoding has reached. The time is first
            below `start_s` if decoding cannot start at the span. It decreases if decoding must start again.
        identity: Refuse a file with another identity (see `messages.identity_of`).
        stop: If another thread sets this event, the call is cancelled.

    Raises:
        VideoError: The file cannot be used, the span is after its end, a limit is reached, `stop` is set, or the
            picture in the middle of the new file differs from the video.
        ConfigError: The span is empty, the suffix is not supported, or `out` exists and `overwrite` is not set.
    """
    if not (math.isfinite(start_s) and math.isfinite(end_s) and 0 <= start_s < end_s):
        raise ConfigError(f"{shown(path)}: span is {start_s} to {end_s} s, expected 0 <= start < end")
    if out.suffix.lower() not in CUT_FORMATS:
        raise ConfigError(
            f"{shown(out)}: cannot write '{out.suffix}' files; use one of the suffixes {' '.join(CUT_FORMATS)}"
        )
    if out.exists() and not overwrite:
        raise ConfigError(f"{shown(out)}: already exists; choose another name or allow overwriting")
    if not out.parent.is_dir():
        raise ConfigError(f"{shown(out)}: the folder {out.parent} does not exist; create it first")
    try:
        with whole_file(out, replace=overwrite) as partial, FrameReader(limits=limits, stop=stop) as decoder:
            request = {
                "task": "cut",
                "start_s": start_s,
                "end_s": end_s,
                "out": os.path.abspath(partial),
                "format": CUT_FORMATS[out.suffix.lower()],
                "identity": identity,
                "short_side": _CHECK_SIDE,
            }
            process = decoder.ask(path, request)
            message, pixels = process.next_message(path, progress)
            middle_s = message["times_s"][0] - message["start_s"]
            middle = upright(message, pixels)[0]
            end, _ = process.next_message(path)
            if not _shows(decoder, partial, middle_s, middle):
                raise VideoError(
                    f"{shown(path)}: the clip was removed, because its picture at {middle_s:.2f} s differs from the "
                    f"picture in the video at {message['times_s'][0]:.2f} s; convert the video to MP4 or Matroska first"
                )
    except FileExistsError as error:
        raise ConfigError(f"{shown(out)}: already exists; choose another name or allow overwriting") from error
    return float(end["end_s"])


def _shows(decoder: FrameReader, clip: Path, time_s: float, picture: UInt8[np.ndarray, "Y X 3"]) -> bool:
    """Whether a clip shows this picture at a time, except for small differences from encoding."""
    written = decoder.frame_at(clip, time_s, short_side=_CHECK_SIDE)
    return bool(np.abs(_mean_colours(written) - _mean_colours(picture)).max() <= _MAX_DIFFERENCE)


def _mean_colours(picture: UInt8[np.ndarray, "Y X 3"]) -> Float[np.ndarray, "8 8 3"]:
    """Return the mean colours of 8 x 8 parts of a picture."""
    rows, columns = (np.array_split(np.arange(max(size, 8)) * size // max(size, 8), 8) for size in picture.shape[:2])
    return np.array([[picture[np.ix_(row, column)].mean((0, 1)) for column in columns] for row in rows])
