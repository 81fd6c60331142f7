"""The values that encoders return: features of videos and sentences.

Axis letters are the same in all signatures: Q queries, W words, V videos, L clips, T frames, D width, H heads,
K prototypes. docs/glossary.md lists all of them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.span import Moment as Moment


@dataclass(frozen=True)
class FrameFeatures:
    """The sampled frames of one video as an encoder's vectors.

    Times are presentation times in seconds from the first frame of the video, in increasing order.
    """

    vectors: Float[np.ndarray, "T D"]
    times_s: Float[np.ndarray, " T"]
    duration_s: float


@dataclass(frozen=True)
class Reading:
    """How much of a sentence the encoder used: its unknown words, and how many words it read (None: all).

    If `is_understood` is False, the encoder knows no word, so the sentence's vector has no meaning.
    """

    unknown: tuple[str, ...] = ()
    is_understood: bool = True
    num_words_read: int | None = None


@dataclass(frozen=True)
class TextFeatures:
    """One sentence as vectors: the whole sentence, in the space of the frames, and each word."""

    text: str
    sentence: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W E"]
    tokens: tuple[str, ...]
    reading: Reading = Reading()
