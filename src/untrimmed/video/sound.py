"""Decode the sound of a video to 16-bit mono samples. This runs only in the decoding child process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import av
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer

from untrimmed.video.decode import (
    ADVICE_COPY,
    ADVICE_FORMAT,
    DEFAULT_STREAM,
    MediaProblemError,
    OpenVideo,
    decode_packet,
    read_packets,
)
from untrimmed.video.messages import SOUND_HZ
from untrimmed.video.timeline import MAX_FALL_S, MAX_HOLD_S

PIECE_S = 10.0  # a piece ends with the first decoded frame that makes it at least this long
# Sample rates outside this range come from damaged headers. A low rate would turn a small file into many samples.
MIN_RATE = 4_000
MAX_RATE = 768_000
MAX_FRAME_SAMPLES = 1 << 20  # largest number of samples in one decoded frame
_TOLERANCE_S = 0.1  # if a timestamp differs by more from the end of the previous frame, a new piece starts
_BYTES_PER_SAMPLE = 2


def choose_sound(container: InputContainer) -> AudioStream | None:
    """Return the audio stream that a player would choose, or None if there is no sound.

    Raises:
        MediaProblemError: There is sound, but no decoder for it, or the sample rate is implausible.
    """
    streams = list(container.streams.audio)
    if not streams:
        return None
    decodable = [stream for stream in streams if stream.codec_context is not None]
    if not decodable:
        raise MediaProblemError("has sound in a codec that this machine cannot decode", ADVICE_FORMAT)
    stream = max(decodable, key=lambda stream: stream.disposition.value & DEFAULT_STREAM)
    stream.codec_context.options = {"max_samples": str(MAX_FRAME_SAMPLES)}
    stream.codec_context.thread_count = 1
    return stream


@dataclass
class SoundDecoder:
    """Decodes the sound of an open video in pieces. `warnings` are complete after the last piece.

    Times are seconds from the first frame of the video. The container's time of this frame is `origin_s`.
    """

    video: OpenVideo
    stream: AudioStream
    origin_s: float
    on_progress: Callable[[float], None]
    warnings: list[str] = field(default_factory=list)
    num_damaged: int = 0  # number of packets that cannot be decoded
    _piece: bytearray = field(default_factory=bytearray)
    _start_s: float = 0.0
    _shift_s: float = 0.0  # added to the container's times; it changes when these times jump
    _decoded_s: float = 0.0

    def pieces(self, max_duration_s: float) -> Iterator[tuple[float, bytes]]:
        """Yield pieces of about 10 s in order: the time of the first sample in seconds, and the samples as bytes.

        A gap between two pieces has no sound. Sound after `max_duration_s` seconds is left out.

        Raises:
            MediaProblemError: No packet can be decoded, or a frame has an implausible sample rate.
        """
        self._shift_s = -self.origin_s
        end_s: float | None = None  # where the decoded sound ends
        resampler: AudioResampler | None = None
        form: tuple[object, ...] = ()
        for frame in self._frames():
            rate = frame.sample_rate
            if not MIN_RATE <= rate <= MAX_RATE:
                raise MediaProblemError(
                    f"has sound at {rate:,} Hz, expected {MIN_RATE:,} to {MAX_RATE:,} Hz", ADVICE_FORMAT
                )
            time_s = self._time_s(frame, end_s)
            length_s = frame.samples / rate
            is_gap = end_s is None or abs(time_s - end_s) > _TOLERANCE_S
            if is_gap or form != (frame.format.name, frame.layout.name, rate):
                yield from self._finish(resampler)
                self._start_s = time_s
                end_s = time_s
                form = (frame.format.name, frame.layout.name, rate)
                resampler = AudioResampler(format="s16", layout="mono", rate=SOUND_HZ)
            assert end_s is not None
            end_s += length_s
            if end_s <= 0:  # before the first picture
                self._start_s = end_s
                continue
            self._decoded_s += length_s
            if max(end_s, self._decoded_s) > max_duration_s:
                self.warnings.append(f"only the first {max_duration_s:g} s are used (Limits.max_duration_s)")
                break
            frame.pts = None  # the resampler would otherwise insert silence or drop samples
            self._add(resampler, frame)
            # report the decoded time, because timestamps cannot be trusted; the limit on processor time depends on it
            self.on_progress(self._decoded_s)
            if len(self._piece) >= PIECE_S * SOUND_HZ * _BYTES_PER_SAMPLE:
                yield self._take()
        yield from self._finish(resampler)
        if self.num_damaged and self._decoded_s == 0:
            raise MediaProblemError("has sound, but no part of it can be decoded", ADVICE_COPY)
        if self.num_damaged:
            self.warnings.append(f"damaged packets of sound left out: {self.num_damaged}")

    def _frames(self) -> Iterator[AudioFrame]:
        for packet in read_packets(self.video, [self.stream], self.warnings):
            yield from self._decode(packet)
        yield from self._decode(None)

    def _decode(self, packet: av.Packet | None) -> list[AudioFrame]:
        frames = decode_packet(self.stream, packet)
        if frames is None:
            self.num_damaged += 1
        return frames or []

    def _time_s(self, frame: AudioFrame, end_s: float | None) -> float:
        """Return the time of a frame in seconds: the end of the previous frame if the timestamp is missing or jumps."""
        if frame.pts is None or frame.time_base is None:
            return 0.0 if end_s is None else end_s
        time_s = float(frame.pts * frame.time_base) + self._shift_s
        if end_s is None:
            is_broken = abs(time_s) > MAX_HOLD_S
            expected_s = 0.0
        else:
            is_broken = not -MAX_FALL_S <= time_s - end_s <= MAX_HOLD_S
            expected_s = end_s
        if is_broken or not math.isfinite(time_s):
            self._shift_s += expected_s - time_s
            return expected_s
        return time_s

    def _add(self, resampler: AudioResampler | None, frame: AudioFrame | None) -> None:
        assert resampler is not None
        for resampled in resampler.resample(frame):
            self._piece += bytes(resampled.planes[0])[: resampled.samples * _BYTES_PER_SAMPLE]

    def _finish(self, resampler: AudioResampler | None) -> Iterator[tuple[float, bytes]]:
        if resampler is not None:
            self._add(resampler, None)
        if self._piece:
            yield self._take()

    def _take(self) -> tuple[float, bytes]:
        start_s, samples = self._start_s, bytes(self._piece)
        self._piece.clear()
        self._start_s = start_s + len(samples) / _BYTES_PER_SAMPLE / SOUND_HZ
        return start_s, samples
