"""The values that flow: Features -> Encoded -> Scores -> Ranking -> Moments.

Axis legend, the same everywhere: Q queries, W words, V videos, L clips, T frames, D width, H heads, K prototypes; all
letters are in docs/glossary.md.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.span import Moment as Moment


@dataclass(frozen=True)
class FrameFeatures:
    """The sampled frames of one video as vectors: what an encoder makes of a file.

    Times are presentation times in seconds from the first frame of the video, increasing.
    """

    vectors: Float[np.ndarray, "T D"]
    times_s: Float[np.ndarray, " T"]
    duration_s: float


@dataclass(frozen=True)
class Reading:
    """What an encoder made of a sentence's words; `num_words_read` is None where it read all of them.

    A sentence of which no word is understood has a vector all the same, but one that says nothing.
    """

    unknown: tuple[str, ...] = ()
    is_understood: bool = True
    num_words_read: int | None = None


@dataclass(frozen=True)
class TextFeatures:
    """One sentence as vectors: the whole in the space of the frames, and each word by itself."""

    text: str
    sentence: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W E"]
    tokens: tuple[str, ...]
    reading: Reading = Reading()
