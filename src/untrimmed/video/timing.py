"""How a video file counts its frames: rate, start timecode, audio tracks. It needs no decoder."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

NTSC = Fraction(1000, 1001)
_COMMON_RATES = [Fraction(rate) * speed for rate in (15, 24, 25, 30, 48, 50, 60, 120) for speed in (1, NTSC)]
_SAME_RATE = Fraction(3, 10_000)  # rates closer than this are equal; 30 and 29.97 differ by three times as much
_MOST_FRAMES_PER_STAMP = 2
_MAX_JITTER = Fraction(1, 20)  # share of a frame
_MAX_ROUNDING = Fraction(1, 5)  # share of a frame, for stamps in milliseconds
_MAX_IRREGULAR = Fraction(1, 100)  # share of the frames


@dataclass(frozen=True)
class Timing:
    """How a file counts its frames."""

    frame_rate: str  # frames per second as a fraction, such as "30000/1001"; of a variable rate, the mean
    has_variable_rate: bool = False
    # timecode of the first frame: "01:00:00:00", or "01:00:00;00" if it drops frames; "" if there is none
    start_timecode: str = ""
    num_audio_tracks: int = 0


def measure_rate(stamps: Iterable[int], time_base: Fraction, declared: Sequence[Fraction]) -> tuple[Fraction, bool]:
    """The rate of frames with these stamps, and whether it varies.

    Args:
        stamps: Presentation or decoding times in units of `time_base`, in any order.
        declared: Rates of the container, at least one. The first is the mean.

    A rate fits if almost all steps between stamps are whole numbers of frames. Left-out frames therefore do not count
    as a variation. A rate above twice the mean is the rate of the clock, not of the frames.
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
    """The distance from the nearest whole number of frames, at least one."""
    return abs(num_frames - max(1, round(num_frames)))


def _rounded(rate: Fraction) -> Fraction:
    """The common rate that is meant by a measured rate."""
    return next((common for common in _COMMON_RATES if abs(rate / common - 1) < _SAME_RATE), rate)
