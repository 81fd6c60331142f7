"""A span of a video, in a module that imports nothing: a command that asks a running service needs no arrays."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Moment:
    """A span of one video in seconds and how well it fits; higher is better."""

    start_s: float
    end_s: float
    score: float = 0.0
