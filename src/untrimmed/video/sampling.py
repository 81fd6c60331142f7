"""Sample frames at given times, and decode as few other frames as possible. This runs in the decoding child process.

The decoder skips frames that are neither sampled nor needed by other frames (`skip_frame = NONREF`). Packets between
the last sampled frame of a group of pictures and the next key frame are dropped. After the last sampled frame, reading
stops at the next key frame. These decisions use the presentation times of the following packets, so the sampled frames
are the same as if everything were decoded.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from av.video.frame import VideoFrame

from untrimmed.video.decode import SEEKABLE, OpenVideo, decode_packet, read_packets, stamp
from untrimmed.video.timeline import EPSILON_S, MAX_FALL_S, MAX_HOLD_S, FramesFrom, SampleGrid, SampleTimes, Timeline

# H.264 and HEVC reorder at most 16 frames. So once this many packets follow a packet, it is known when the packet's
# frame is replaced on screen.
REORDER = 17
MAX_HELD_PACKETS = 600
MAX_HELD_BYTES = 32 << 20
# A file counts as truncated if it ends more than this before its declared end. Complete files can end a little early,
# because containers round times and few declare the duration of the last frame.
MIN_MISSING_S = 3.0


@dataclass(frozen=True)
class Sample:
    """A sampled frame, and the sampling times at which it is on screen."""

    times_s: list[float]
    frame: VideoFrame


class _Need:
    """Decides for each packet of a file, in order, whether its frame may be sampled.

    Once the times decrease or jump, as in a joined recording, the answer is yes for every further packet.
    """

    def __init__(self, sampler: FrameSampler, grid: SampleGrid | SampleTimes | FramesFrom, planned_s: float = 0.0):
        self._sampler = sampler
        self._grid = grid
        self._planned_s = planned_s  # latest time of the packets so far

    def ahead(self) -> _Need:
        """Return a copy for looking ahead at later packets, which leaves this object unchanged."""
        return _Need(self._sampler, self._grid, self._planned_s)

    def __call__(self, pts: int, next_pts: int | None) -> bool:
        """Whether a frame that is on screen from `pts` to `next_pts` may be sampled."""
        sampler = self._sampler
        timeline = sampler.timeline
        if next_pts is None or timeline.origin is None or not sampler.is_plan_trusted:
            return True
        start_s = timeline.raw_s(pts)
        breaks = start_s < self._planned_s - MAX_FALL_S or start_s > self._planned_s + MAX_HOLD_S
        if breaks or not timeline.is_plain:
            sampler.is_plan_trusted = False
            return True
        self._planned_s = max(self._planned_s, start_s)
        return self._grid.falls_in(start_s, timeline.raw_s(next_pts))

    def is_over(self, pts: int) -> bool:
        """Whether a timestamp is after the last sampling time."""
        timeline = self._sampler.timeline
        return self._sampler.is_plan_trusted and timeline.origin is not None and timeline.raw_s(pts) > self._grid.last_s


class PacketPlan:
    """Buffers packets until it is known which frames may be sampled, then yields the packets that must be decoded."""

    def __init__(self, packets: Iterator[Any], need: _Need, *, may_drop: bool) -> None:
        self._packets = packets
        self._need = need
        self._may_drop = may_drop
        self._held: deque[Any] = deque()
        self._held_bytes = 0
        self._num_keys_held = 0
        self._since_key = 0
        # Sorted presentation times of the packets in the buffer and of the last `REORDER` packets before them.
        self._recent: list[int] = []
        self._passed: deque[int] = deque()
        self._is_at_end = False
        self.is_over = False  # whether reading stopped because no later frame is sampled
        self.resumed_at: set[int] = set()  # presentation times of key frames that follow dropped packets

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        """Yield each packet to decode, and whether its frame may be sampled."""
        while True:
            self._fill()
            if not self._held:
                return
            if self._may_drop and self._drop_rest_of_group():
                continue
            packet = self._pop()
            yield packet, self._may_be_sampled(packet, self._need)

    def _fill(self) -> None:
        while not self._is_at_end and not self._knows_enough():
            packet = next(self._packets, None)
            if packet is None:
                self._is_at_end = True
                return
            self._held.append(packet)
            self._held_bytes += packet.size
            self._since_key += 1
            if packet.is_keyframe:
                self._num_keys_held += 1
                self._since_key = 1
            if packet.pts is not None:
                bisect.insort(self._recent, packet.pts)

    def _knows_enough(self) -> bool:
        if len(self._held) < REORDER + 2:
            return False
        if not self._may_drop or len(self._held) >= MAX_HELD_PACKETS or self._held_bytes >= MAX_HELD_BYTES:
            return True
        ahead = self._num_keys_held - bool(self._held[0].is_keyframe)
        return ahead > 1 or (ahead == 1 and self._since_key > REORDER)

    def _pop(self) -> Any:
        packet = self._held.popleft()
        self._held_bytes -= packet.size
        self._num_keys_held -= bool(packet.is_keyframe)
        if packet.pts is not None:
            self._passed.append(packet.pts)
            if len(self._passed) > REORDER:
                self._recent.pop(bisect.bisect_left(self._recent, self._passed.popleft()))
        return packet

    def _may_be_sampled(self, packet: Any, need: _Need) -> bool:
        if packet.pts is None:
            return True
        after = bisect.bisect_right(self._recent, packet.pts)
        return need(packet.pts, self._recent[after] if after < len(self._recent) else None)

    def _drop_rest_of_group(self) -> bool:
        """Drop the packets before the next key frame, unless a frame that is shown before it may be sampled."""
        key_index = next((i for i, packet in enumerate(self._held) if i and packet.is_keyframe), None)
        if key_index is None or (len(self._held) - key_index <= REORDER and not self._is_at_end):
            return False
        key = self._held[key_index]
        need = self._need.ahead()
        for index, packet in enumerate(self._held):
            is_leading = key_index < index and packet.pts is not None and key.pts is not None and packet.pts < key.pts
            if (index < key_index or is_leading) and self._may_be_sampled(packet, need):
                return False
            if index > key_index + REORDER:
                break
        for _ in range(key_index):
            self.resumed_at.discard(self._pop().pts)
        if key.pts is not None and self._need.is_over(key.pts):
            self._held.clear()
            self._is_at_end = self.is_over = True
        elif key.pts is not None:
            self.resumed_at.add(key.pts)
        return True


class FrameSampler:
    """Decodes an open video and yields the sampled frames in display order.

    `on_progress` is called often with the time that decoding has reached, in seconds. `duration_s` is the measured
    duration. It is valid after the last frame.
    """

    def __init__(self, video: OpenVideo, on_progress: Callable[[float], None], *, origin: int | None = None) -> None:
        assert video.stream.time_base is not None
        self.video = video
        self.timeline = Timeline(video.stream.time_base, video.frame_s, origin)
        self.warnings: list[str] = []
        self.duration_s = 0.0
        self.last_frame: VideoFrame | None = None
        self.starts_at_key_frame: bool | None = None  # unknown before the first frame
        self._on_progress = on_progress
        self._num_damaged = 0
        self._is_over = False
        self.is_plan_trusted = True  # whether packets have the same times as their frames

    def sample(self, grid: SampleGrid | SampleTimes | FramesFrom) -> Iterator[Sample]:
        """Yield the frames at the times of a grid."""
        time_s = 0.0
        for frame in self._decode_planned(grid):
            next_s = self.timeline.next_s(stamp(frame))
            if self.last_frame is None and isinstance(grid, FramesFrom):
                grid.begin(next_s)
            if self.last_frame is not None and (times := grid.take_before(next_s)):
                yield Sample(times, self.last_frame)
            self.last_frame = frame
            time_s = next_s
            self._on_progress(time_s)
        if self.last_frame is not None:
            self.duration_s = time_s + self.video.hold_s(self.last_frame)
            if times := grid.take_before(math.inf if self._is_over else self.duration_s):
                yield Sample(times, self.last_frame)
        self._finish()

    def sample_keyframes(self, fps: float) -> Iterator[Sample]:
        """Yield key frames at their own times, at most `fps` per second. Other frames are not decoded."""
        decoder = self.video.stream.codec_context
        packets = self._packets()
        head = list(itertools.islice(packets, REORDER))
        stamps = [packet.pts for packet in head if not packet.is_discard]
        if not stamps or None in stamps:
            self.warnings.append("packets have no presentation times, so every frame is decoded")
            yield from self.sample(SampleGrid(fps))
            return
        self.timeline.origin = min(stamps)
        decoder.skip_frame = "NONKEY"
        due_s = -1.0
        for packet in itertools.chain(head, packets, [None]):
            if packet is not None:
                start_s = self.timeline.raw_s(packet.pts) if packet.pts is not None else 0.0
                self.duration_s = max(self.duration_s, start_s + self.video.hold_s(packet))
                self._on_progress(start_s)
                if not packet.is_keyframe or (self.timeline.is_plain and start_s < due_s):
                    continue
            for frame in self._decode(packet):
                time_s = self.timeline.next_s(stamp(frame))
                if time_s >= due_s:
                    due_s = time_s + 1 / fps - EPSILON_S
                    self.last_frame = frame
                    yield Sample([time_s], frame)
        self._finish()

    def _decode_planned(self, grid: SampleGrid | SampleTimes | FramesFrom) -> Iterator[VideoFrame]:
        decoder = self.video.stream.codec_context
        may_drop = decoder.name not in ("h264", "hevc") or self.video.container.format.name in SEEKABLE
        plan = PacketPlan(self._packets(), _Need(self, grid), may_drop=may_drop)
        for packet, is_sampled in itertools.chain(plan, [(None, True)]):
            decoder.skip_frame = "DEFAULT" if is_sampled else "NONREF"
            for frame in self._decode(packet):
                if self.starts_at_key_frame is None:
                    self.starts_at_key_frame = frame.key_frame
                if frame.pts in plan.resumed_at:
                    if not frame.key_frame:
                        yield from self._decode_all()
                        return
                    plan.resumed_at.remove(frame.pts)
                yield frame
        if plan.resumed_at:  # the decoder returned nothing for a frame that is marked as a key frame
            yield from self._decode_all()
        else:
            self._is_over = plan.is_over

    def _decode_all(self) -> Iterator[VideoFrame]:
        """Decode every frame from the start. This is needed if the file marks frames as key frames that are not.

        Streams with intra refresh do so. Their pictures are complete only some time after decoding starts.
        """
        assert self.timeline.origin is not None
        self.video.stream.codec_context.skip_frame = "DEFAULT"
        self._num_damaged = 0
        self.warnings.clear()  # they come from reading the packets, which are read again
        self.video.container.seek(self.timeline.origin, stream=self.video.stream)
        self.timeline = Timeline(self.timeline.time_base, self.timeline.frame_s, self.timeline.origin)
        self.last_frame = None
        for packet in self._packets():
            yield from self._decode(packet)
        yield from self._decode(None)

    def _packets(self) -> Iterator[Any]:
        return read_packets(self.video, [self.video.stream], self.warnings)

    def _decode(self, packet: Any | None) -> list[VideoFrame]:
        frames = decode_packet(self.video.stream, packet)
        if frames is None:
            self._num_damaged += 1
            return []
        return frames

    def _finish(self) -> None:
        if self.last_frame is None:
            return
        self.warnings += self.timeline.warnings()
        if self._num_damaged:
            self.warnings.append(f"damaged packets left out: {self._num_damaged}")
        declared_s = self.video.declared_s
        if self.duration_s < declared_s - max(MIN_MISSING_S, 0.02 * declared_s):
            self.warnings.append(
                f"declares a duration of {declared_s:.1f} s, but ends at {self.duration_s:.1f} s; the rest is missing"
            )
