"""Convert presentation timestamps to seconds, and generate sampling times. This module needs no decoder."""

import math
from fractions import Fraction

from untrimmed.errors import ConfigError

MIN_FPS = 0.001
MAX_FPS = 1000.0
# Tolerance for times. Timestamps are rounded to the container's time base, which is never less than a microsecond.
EPSILON_S = 1e-6
# Timestamps count as broken:
MAX_HOLD_S = 3600.0  # if a picture is shown for longer than this
MAX_FALL_S = 1.0  # or if the time decreases by more than this


def check_fps(fps: float, name: str, unit: str = "frames") -> None:
    """Raise a ConfigError unless a rate is possible. `name` is the name of the setting in the message."""
    if not (math.isfinite(fps) and MIN_FPS <= fps <= MAX_FPS):
        raise ConfigError(f"{name} is {fps}, expected {MIN_FPS:g} to {MAX_FPS:g} {unit} per second")


class Timeline:
    """Converts the timestamps of frames in display order to seconds from the first frame. The times never decrease.

    A frame without a timestamp gets the time of the previous frame plus `frame_s`. So does the first frame after a
    break of the timestamps, as in a joined recording. Both cases are counted for warnings.
    """

    def __init__(self, time_base: Fraction, frame_s: float, origin: int | None = None) -> None:
        self.time_base = time_base
        self.frame_s = frame_s
        self.origin = origin
        self.num_missing = 0
        self.num_breaks = 0
        self._shift_s = 0.0
        self._last_s: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether no timestamp so far was missing or broken."""
        return self.num_missing == 0 and self.num_breaks == 0

    def raw_s(self, pts: int) -> float:
        """Return the seconds from the origin to a timestamp, ignoring breaks."""
        assert self.origin is not None
        return float((pts - self.origin) * self.time_base)

    def next_s(self, pts: int | None) -> float:
        """Return the time of the next frame in display order, in seconds."""
        last_s = self._last_s
        if pts is None:
            self.num_missing += 1
            time_s = 0.0 if last_s is None else last_s + self.frame_s
        else:
            if self.origin is None:
                self.origin = pts
                self._shift_s = 0.0 if last_s is None else last_s + self.frame_s
            time_s = self.raw_s(pts) + self._shift_s
            if last_s is None:
                time_s = max(0.0, time_s)
            elif time_s - last_s > MAX_HOLD_S or last_s - time_s > MAX_FALL_S:
                self.num_breaks += 1
                self._shift_s += last_s + self.frame_s - time_s
                time_s = last_s + self.frame_s
            else:
                time_s = max(time_s, last_s)
        self._last_s = time_s
        return time_s

    def warnings(self) -> list[str]:
        """Return one line for each kind of problem with the timestamps."""
        lines = []
        if self.num_missing:
            rate = f"{1 / self.frame_s:.4g} fps"
            lines.append(f"frames without a presentation time, spaced at {rate}: {self.num_missing}")
        if self.num_breaks:
            lines.append(f"breaks in the presentation times, joined without the gaps: {self.num_breaks}")
        return lines


class SampleGrid:
    """The sampling times k / fps for k = 0, 1, ... in seconds, each of which is returned once."""

    last_s = math.inf

    def __init__(self, fps: float) -> None:
        self.fps = fps
        self._next_index = 0

    def take_before(self, end_s: float) -> list[float]:
        """Remove and return the times before `end_s`, with a tolerance of one microsecond."""
        stop = math.ceil((end_s - EPSILON_S) * self.fps)
        times = [index / self.fps for index in range(self._next_index, stop)]
        self._next_index = max(self._next_index, stop)
        return times

    def falls_in(self, start_s: float, end_s: float) -> bool:
        """Whether one of the times is in the span, with a margin of twice `EPSILON_S`."""
        first = math.ceil((start_s - 2 * EPSILON_S) * self.fps)
        return first / self.fps <= end_s + 2 * EPSILON_S


class SampleTimes:
    """Given sampling times in increasing order, with the methods of `SampleGrid`."""

    def __init__(self, *times_s: float) -> None:
        self.times_s = times_s
        self.last_s = times_s[-1]
        self._num_taken = 0

    def take_before(self, end_s: float) -> list[float]:
        """Remove and return the times before `end_s`."""
        times = [time_s for time_s in self.times_s[self._num_taken :] if time_s < end_s - EPSILON_S]
        self._num_taken += len(times)
        return times

    def falls_in(self, start_s: float, end_s: float) -> bool:
        """Whether one of the times is in the span, with a margin of twice `EPSILON_S`."""
        return any(start_s - 2 * EPSILON_S <= time_s <= end_s + 2 * EPSILON_S for time_s in self.times_s)


class FramesFrom:
    """Samples every frame that is on screen at or after `start_s`, once. It has the methods of `SampleGrid`."""

    last_s = math.inf

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self._shown_s = 0.0

    def begin(self, time_s: float) -> None:
        """Set the start time of the first decoded frame. After a seek, this time is not 0."""
        self._shown_s = max(self._shown_s, time_s)

    def take_before(self, end_s: float) -> list[float]:
        """Return the start time of the frame that ends at `end_s`.

        Returns nothing if the frame ends before the first sample, or if the frame was returned before decoding started
        again.
        """
        shown_s = self._shown_s
        if end_s <= shown_s:
            return []
        self._shown_s = end_s
        return [shown_s] if self.falls_in(shown_s, end_s) else []

    def falls_in(self, start_s: float, end_s: float) -> bool:
        """Whether a frame with this span may be on screen at or after the start of sampling (`self.start_s`)."""
        return self.start_s <= end_s + 2 * EPSILON_S
