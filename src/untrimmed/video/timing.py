"""Frame rate, start timecode and number of audio tracks of a video file. This module needs no decoder."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

NTSC = Fraction(1000, 1001)
_COMMON_RATES = [Fraction(rate) * speed for rate in (15, 24, 25, 30, 48, 50, 60, 120) for speed in (1, NTSC)]
# rates count as equal up to this relative difference; 30 and 29.97 differ by three times as much
_SAME_RATE = Fraction(3, 10_000)
_MOST_FRAMES_PER_STAMP = 2
_MAX_JITTER = Fraction(1, 20)  # largest jitter of timestamps, as a share of a frame
_MAX_ROUNDING = Fraction(1, 5)  # largest rounding of timestamps, as a share of a frame
_MAX_IRREGULAR = Fraction(1, 100)  # the rate is variable if a larger share of the steps between frames is irregular


@dataclass(frozen=True)
class Timing:
    """Frame rate, start timecode and number of audio tracks of a file."""

    frame_rate: str  # frames per second as a fraction, such as "30000/1001"; the mean if the rate is variable
    has_variable_rate: bool = False
    # timecode of the first frame: "01:00:00:00", or "01:00:00;00" if it is a drop-frame timecode; "" if there is none
    start_timecode: str = ""
    num_audio_tracks: int = 0
    picture_start_s: float = 0.0  # seconds of sound that players play before the first frame

    @property
    def stored(self) -> dict[str, Any]:
        """The fields that libraries store."""
        return {name: value for name, value in vars(self).items() if name != "picture_start_s"}


def nearest_frame(time_s: float | Fraction, rate: Fraction) -> int:
    """Return the number of the frame whose start is nearest to a time in seconds.

    >>> nearest_frame(3000.0, Fraction(30000, 1001)), nearest_frame(0.5, Fraction(1))
    (89910, 1)
    """
    return math.floor(Fraction(time_s) * rate + Fraction(1, 2))


def measure_rate(stamps: Iterable[int], time_base: Fraction, declared: Sequence[Fraction]) -> tuple[Fraction, bool]:
    """Return the rate of frames with these timestamps, and whether the rate varies.

    Args:
        stamps: Presentation or decoding times in units of `time_base`, in any order.
        declared: Rates that the container declares, at least one. The first is the mean rate.

    A rate fits if almost all steps between timestamps are whole numbers of frames. So missing frames do not make a rate
    variable. A declared rate above twice the mean is ignored: it is the rate of the clock.
    """
    rates = [_rounded(rate) for rate in declared if rate <= _MOST_FRAMES_PER_STAMP * declared[0]]
    steps = Counter(after - before for before, after in itertools.pairwise(sorted(set(stamps))))
    deviations = {rate: {step: _deviation(step * time_base * rate) for step in steps} for rate in rates}
    best = min(rates, key=lambda rate: sum(deviations[rate][step] * count for step, count in steps.items()))
    tolerance = min(time_base * best, _MAX_ROUNDING) + _MAX_JITTER
    num_irregular = sum(count for step, count in steps.items() if deviations[best][step] > tolerance)
    is_variable = num_irregular > _MAX_IRREGULAR * steps.total()
    return (rates[0] if is_variable else best), is_variable


def _deviation(num_frames: Fraction) -> Fraction:
    """Return the distance of a number of frames from the nearest whole number of at least one."""
    return abs(num_frames - max(1, round(num_frames)))


def _rounded(rate: Fraction) -> Fraction:
    """Return the common rate that is almost equal to a measured rate, or the measured rate if there is none."""
    return next((common for common in _COMMON_RATES if abs(rate / common - 1) < _SAME_RATE), rate)
