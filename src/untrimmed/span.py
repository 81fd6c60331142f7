"""A span of a video. This module imports no numpy, so that a command that asks a running service starts quickly."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Moment:
    """A span of one video in seconds, and its score (higher is better)."""

    start_s: float
    end_s: float
    score: float = 0.0
