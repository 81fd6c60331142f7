"""Write a span of a video to a new file.

The span is re-encoded, so it starts and ends exactly at the given times. This runs in the decoding child process.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from untrimmed.video.decode import (
    UNSPECIFIED_COLORSPACE,
    MediaProblemError,
    OpenVideo,
    Orientation,
    decode_packet,
    pixel_aspect,
    read_packets,
    scaled_size,
    square_size,
    stamp,
)
from untrimmed.video.timeline import EPSILON_S, Timeline

VIDEO_TICKS = 90_000  # ticks per second, as in MPEG; all common frame rates divide this number
FRAME_DURATION = 1 << 8  # AV_CODEC_FLAG_FRAME_DURATION: without it, the last frame would not end with the span
_ROUNDING_S = 1e-3  # times are often rounded to milliseconds
MAX_INTERLEAVE_S = 10.0  # sound that is stored this much later than its picture is dropped


class SeekError(Exception):
    """Raised if decoding did not start at a key frame before the span, so that decoded frames may be wrong."""


@dataclass(frozen=True)
class ShownFrame:
    """A decoded frame. `time_s` is the middle of its time on screen, in seconds of the source video.

    `picture` is the frame as it was passed to the encoder: upright, scaled and in YUV.
    """

    time_s: float
    frame: VideoFrame
    picture: VideoFrame


@dataclass(frozen=True)
class VideoEncoding:
    """How a new file is encoded."""

    container: str
    video_encoders: Sequence[str]  # in order of preference; builds of FFmpeg have different encoders
    sound_encoder: str = "aac"
    sound_rates: tuple[int, ...] = (22050, 24000, 32000, 44100, 48000)  # the last one is used for other rates
    short_side: int | None = None  # larger pictures are reduced
    keeps_priming: bool = True  # whether the file can contain sound before time 0, which players skip
    video_options: dict[str, dict[str, str]] = field(default_factory=dict)  # options of each encoder, by its name
    container_options: dict[str, str] = field(default_factory=dict)

    @property
    def video_encoder(self) -> str:
        """The first encoder that this build of FFmpeg has."""
        return next(name for name in self.video_encoders if name in av.codecs_available)


def clip_encoding(container: str) -> VideoEncoding:
    """Return the encoding of clips: good quality, and formats that all players support."""
    options = {"preset": "veryfast", "crf": "20", "bf": "0", "threads": "2"}
    return VideoEncoding(container, ("libx264", "libopenh264", "mpeg4"), video_options={"libx264": options})


@dataclass(frozen=True)
class WrittenClip:
    """A written file. Its picture and sound end at `end_s` seconds of the source video."""

    end_s: float
    first: ShownFrame
    middle: ShownFrame
    last: ShownFrame

    @property
    def samples(self) -> tuple[ShownFrame, ShownFrame, ShownFrame]:
        """The first, middle and last frame. They are compared with the new file after writing."""
        return self.first, self.middle, self.last


class CutWriter:
    """Writes a span of frames and sound to a new file. Frames and sound outside the span are left out."""

    def __init__(self, video: OpenVideo, start_s: float, end_s: float, out: Any, encoding: VideoEncoding) -> None:
        """Open a new file. `out` is its path, or a file object with a method `write`."""
        self.video = video
        self.start_s = start_s
        self.end_s = end_s
        self.first: ShownFrame | None = None
        self.middle: ShownFrame | None = None
        self.last: ShownFrame | None = None
        self.picture_until_s = start_s
        self.sound_until_s = -math.inf  # end of the sound that was read so far, in seconds of the source video
        self._encoding = encoding
        self._container = av.open(out, "w", format=encoding.container, options=encoding.container_options)
        self._scaler = VideoReformatter()
        self._picture: Any = None
        self._sound: Any = None
        self._resampler: AudioResampler | None = None
        self._early_sound: list[Any] = []

    def add_sound_track(self, source: Any) -> None:
        """Add a sound track. It must be added before the first frame, because the file's header lists all tracks."""
        rates = self._encoding.sound_rates
        rate = source.rate if source.rate in rates else rates[-1]
        layout = "mono" if source.channels == 1 else "stereo"
        self._sound = self._container.add_stream(self._encoding.sound_encoder, rate=rate, layout=layout)
        self._resampler = AudioResampler(format="fltp", layout=layout, rate=rate)

    def add_frame(self, frame: VideoFrame, shown_s: float, until_s: float) -> None:
        """Write a frame that is on screen from `shown_s` to `until_s` seconds. The times are clipped to the span.

        A frame is left out if the span contains less than `_ROUNDING_S` of it.
        """
        first_s = max(shown_s, self.start_s)
        last_s = min(until_s, self.end_s)
        is_clipped = shown_s < self.start_s or until_s > self.end_s
        if last_s - first_s < (min(_ROUNDING_S, (self.end_s - self.start_s) / 2) if is_clipped else EPSILON_S):
            return
        if self._picture is None and first_s - self.start_s <= _ROUNDING_S:
            first_s = self.start_s
        picture = self._upright(frame)
        if self._picture is None:
            self._picture = self._start_picture(picture, frame)
        is_rgb = picture.format.name == "rgb24"
        picture = self._scaler.reformat(
            picture,
            self._picture.width,
            self._picture.height,
            "yuv420p",
            dst_colorspace=self._picture.codec_context.colorspace if is_rgb else None,
            dst_color_range=ColorRange.MPEG,
            interpolation="BICUBIC",
        )
        picture.pict_type = 0  # let the encoder choose key frames
        picture.time_base = Fraction(1, VIDEO_TICKS)
        picture.pts = round((first_s - self.start_s) * VIDEO_TICKS)
        picture.duration = round((last_s - self.start_s) * VIDEO_TICKS) - picture.pts
        self._container.mux(self._picture.encode(picture))
        self.picture_until_s = last_s
        self.last = ShownFrame((first_s + last_s) / 2, frame, picture)
        self.first = self.first or self.last
        if self.middle is None or first_s <= (self.start_s + self.end_s) / 2:
            self.middle = self.last

    def add_sound(self, frame: AudioFrame, origin_s: float) -> None:
        """Write the samples of a sound frame that are in the span.

        `origin_s` is the timestamp of the first picture, in seconds.
        """
        assert self._resampler is not None
        for part in self._resampler.resample(frame):
            if part.pts is None or part.time_base is None:
                continue
            rate = part.sample_rate
            offset = round((float(part.pts * part.time_base) - origin_s - self.start_s) * rate)
            self.sound_until_s = self.start_s + (offset + part.samples) / rate
            first = max(0, -offset)
            last = min(part.samples, round((self.end_s - self.start_s) * rate) - offset)
            if first >= last:
                continue
            samples: Any = np.ascontiguousarray(part.to_ndarray()[:, first:last])
            clipped = AudioFrame.from_ndarray(samples, format="fltp", layout=part.layout.name)
            clipped.sample_rate = rate
            clipped.time_base = Fraction(1, rate)
            clipped.pts = offset + first
            self._early_sound += self._encode_sound(clipped)
        if self._picture is not None:  # the file's header, written with the first packet, needs both tracks
            self._container.mux(self._early_sound)
            self._early_sound = []

    def close(self) -> None:
        """Finish the file."""
        self._container.mux(self._early_sound)
        if self._picture is not None:
            self._container.mux(self._picture.encode(None))
        if self._sound is not None:
            self._container.mux(self._encode_sound(None))
        self._container.close()

    def _encode_sound(self, frame: AudioFrame | None) -> list[Any]:
        packets = self._sound.encode(frame)
        return [packet for packet in packets if self._encoding.keeps_priming or packet.pts >= 0]

    def _start_picture(self, picture: VideoFrame, frame: VideoFrame) -> Any:
        name = self._encoding.video_encoder
        rate = Fraction(1 / self.video.frame_s).limit_denominator(1001)
        options = self._encoding.video_options.get(name, {})
        track: Any = self._container.add_stream(name, rate=rate, options=options)
        # Chroma has half the resolution, so both sides must be even.
        track.width, track.height = max(2, picture.width // 2 * 2), max(2, picture.height // 2 * 2)
        track.pix_fmt = "yuv420p"
        if not options:
            track.bit_rate = 4 * track.width * track.height
        if name != "mpeg4":  # this encoder allows at most 65535 ticks per second
            track.codec_context.time_base = Fraction(1, VIDEO_TICKS)
        track.codec_context.flags |= FRAME_DURATION
        track.codec_context.colorspace = _matrix(frame)
        track.codec_context.color_range = ColorRange.MPEG
        return track

    def _upright(self, frame: VideoFrame) -> VideoFrame:
        width, height = square_size(frame.width, frame.height, pixel_aspect(self.video.stream))
        if self._encoding.short_side is not None:
            width, height = scaled_size(width, height, self._encoding.short_side)
        orientation = self.video.orientation(frame)
        if orientation == Orientation():
            return (
                self._scaler.reformat(frame, width, height) if (width, height) != (frame.width, frame.height) else frame
            )
        pixels: Any = self._scaler.reformat(
            frame, width, height, "rgb24", src_colorspace=_matrix(frame), dst_color_range=ColorRange.JPEG
        ).to_ndarray()
        if orientation.transpose:
            pixels = pixels.transpose(1, 0, 2)
        pixels = pixels[:: -1 if orientation.flip_y else 1, :: -1 if orientation.flip_x else 1]
        return VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")


def _matrix(frame: VideoFrame) -> int:
    """Return the colour matrix of a frame. By convention, untagged HD frames are in BT.709 and smaller ones in BT.601.

    A new file must name the matrix, because its frames may be smaller than the source's.
    """
    if frame.colorspace != UNSPECIFIED_COLORSPACE:
        return int(frame.colorspace)
    return int(Colorspace.ITU709 if frame.height >= 720 else Colorspace.ITU601)


def write_cut(
    video: OpenVideo,
    origin: int | None,
    span_s: tuple[float, float],
    out: str,
    container: str,
    on_progress: Callable[[float], None],
    *,
    is_sought: bool,
) -> WrittenClip:
    """Write a span of an open video to the file `out`.

    Args:
        origin: The timestamp of the video's first frame.
        is_sought: Whether to start decoding at the last key frame before the span. Otherwise decoding starts at the
            beginning, and the video must be newly opened.

    Raises:
        MediaProblemError: The video shows nothing in the span.
        SeekError: A frame in the span may be wrong, because decoding did not start at the beginning.
    """
    start_s, end_s = span_s
    assert video.stream.time_base is not None
    timeline = Timeline(video.stream.time_base, video.frame_s, origin)
    origin_s = float((origin or 0) * video.stream.time_base)
    if is_sought:
        _seek(video, origin, start_s)
    writer = CutWriter(video, start_s, end_s, out, clip_encoding(container))
    try:
        sound = video.container.streams.best("audio")
        if sound is not None and sound.codec_context is None:
            sound = None  # no decoder for the sound, so the new file is silent
        if sound is not None:
            writer.add_sound_track(sound)
        current: VideoFrame | None = None
        current_s = 0.0
        for stream, frame in _decode_up_to(video, sound, origin_s, end_s):
            if stream is sound:
                writer.add_sound(frame, origin_s)
            else:
                next_s = timeline.next_s(stamp(frame))
                if is_sought:
                    _check_sought(frame, next_s, span_s, is_first=current is None)
                if current is not None:
                    writer.add_frame(current, current_s, next_s)
                current = frame
                current_s = next_s
            on_progress(current_s)
            if current_s >= end_s and (sound is None or writer.sound_until_s >= end_s):
                break
        if current is not None:
            writer.add_frame(current, current_s, current_s + video.hold_s(current))
    finally:
        writer.close()
    if writer.first is None or writer.middle is None or writer.last is None:
        if is_sought:
            raise SeekError
        raise MediaProblemError(f"shows nothing between {start_s:g} and {end_s:g} s", "choose a span inside the video")
    cut_end_s = min(end_s, max(writer.picture_until_s, writer.sound_until_s))
    return WrittenClip(cut_end_s, writer.first, writer.middle, writer.last)


def _seek(video: OpenVideo, origin: int | None, time_s: float) -> None:
    assert video.stream.time_base is not None
    video.stream.codec_context.skip_frame = "DEFAULT"  # sampling may have changed it
    try:
        video.container.seek((origin or 0) + int(time_s / video.stream.time_base), stream=video.stream)
    except av.error.FFmpegError as error:
        raise SeekError from error


def _check_sought(frame: VideoFrame, shown_s: float, span_s: tuple[float, float], *, is_first: bool) -> None:
    """Raise a SeekError if a frame may be wrong because the decoder did not get earlier packets.

    For streams with intra refresh, containers list recovery points as key frames, although their pictures are
    incomplete.
    """
    start_s, end_s = span_s
    is_late = is_first and (shown_s > start_s + EPSILON_S or not frame.key_frame)
    if is_late or (frame.is_corrupt and shown_s < end_s):
        raise SeekError


def _decode_up_to(video: OpenVideo, sound: Any, origin_s: float, end_s: float) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of a stream and its next decoded frame. Reading stops `MAX_INTERLEAVE_S` after the span."""
    streams: list[Any] = [stream for stream in (video.stream, sound) if stream is not None]
    clocks = {stream.index: Timeline(stream.time_base, 0.0, round(origin_s / stream.time_base)) for stream in streams}
    for packet in read_packets(video, streams, []):
        if packet.dts is not None and clocks[packet.stream_index].next_s(packet.dts) > end_s + MAX_INTERLEAVE_S:
            break
        for frame in decode_packet(packet.stream, packet) or []:
            yield packet.stream, frame
    for stream in streams:
        for frame in decode_packet(stream, None) or []:
            yield stream, frame
