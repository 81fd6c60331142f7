"""Assign the frames of a video to vectors.

Vector k covers the time from k / fps to (k + 1) / fps. Networks need frames at different rates, so a video is decoded
at the lowest common multiple of their rates. Rates are fractions, so that rounding never assigns a frame to the wrong
vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.errors import ConfigError

# frames per second; equal to `untrimmed.video.timeline.MAX_FPS`, because encoders must not import that module
MAX_RATE = 1000
_LARGEST_DENOMINATOR = 1000


def as_fraction(fps: float) -> Fraction:
    """Return the fraction that is nearest to a rate, with a denominator of at most 1,000.

    For example, 0.6667 and the float 2 / 3 both become 2/3.
    """
    return Fraction(fps).limit_denominator(_LARGEST_DENOMINATOR)


def common_rate(rates: Sequence[Fraction]) -> Fraction:
    """Return the lowest rate that is a multiple of all rates.

    >>> common_rate([Fraction(3), Fraction(25)]), common_rate([Fraction(2, 3), Fraction(64, 3)])
    (Fraction(75, 1), Fraction(64, 3))

    Raises:
        ConfigError: The lowest common rate is above 1,000 frames per second.
    """
    rate = Fraction(math.lcm(*(r.numerator for r in rates)), math.gcd(*(r.denominator for r in rates)))
    if rate > MAX_RATE:
        listed = ", ".join(f"{float(r):g}" for r in rates)
        raise ConfigError(
            f"frames at rates of {listed} per second would need {float(rate):g} decoded frames per second, but at "
            f"most {MAX_RATE} are possible; choose a rounder --fps, such as 0.5, 1 or 2"
        )
    return rate


@dataclass(frozen=True)
class Windows:
    """Assigns decoded frames (`rate` per second) to vectors (`fps` per second)."""

    rate: Fraction
    fps: Fraction

    def positions(self, times_s: Float[np.ndarray, " T"]) -> Int[np.ndarray, " T"]:
        """Return the index of each decoded frame in the video, from the frames' times in seconds."""
        return np.rint(times_s * float(self.rate)).astype(np.int64)

    def is_read(self, positions: Int[np.ndarray, " T"], rate: Fraction) -> Bool[np.ndarray, " T"]:
        """Return whether a network that reads `rate` frames per second reads each decoded frame."""
        step = self.rate / rate
        return positions % step.numerator == 0

    def vectors(self, positions: Int[np.ndarray, " T"]) -> Int[np.ndarray, " T"]:
        """Return the index of the vector to which each decoded frame belongs."""
        step = self.fps / self.rate
        return positions * step.numerator // step.denominator

    def times_s(self, vectors: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return the start times of vectors, in seconds."""
        return vectors * self.fps.denominator / self.fps.numerator
