"""The values that flow: Features -> Encoded -> Scores -> Ranking -> Moments.

Axis legend, the same everywhere: Q queries, W words, V videos, L clips, T frames, D width, H heads, K prototypes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class FrameFeatures:
    """The sampled frames of one video as vectors: what an encoder makes of a file.

    Times are presentation times in seconds from the first frame of the video, increasing.
    """

    vectors: Float[np.ndarray, "T D"]
    times_s: Float[np.ndarray, " T"]
    duration_s: float


@dataclass(frozen=True)
class TextFeatures:
    """One sentence as vectors: the whole in the space of the frames, and each word by itself."""

    text: str
    sentence: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W E"]
    tokens: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Moment:
    """A span of one video in seconds and how well it fits; higher is better."""

    start_s: float
    end_s: float
    score: float = 0.0
