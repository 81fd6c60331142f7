"""The features of videos and sentences that encoders return.

Axis letters are the same in all signatures: Q queries, W words, V videos, L clips, T frames, D width, H heads,
K prototypes. docs/glossary.md lists all of them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.span import Moment as Moment


@dataclass(frozen=True)
class FrameFeatures:
    """The vectors of one video's sampled frames.

    `times_s` contains presentation times in seconds after the first frame of the video, in increasing order.
    """

    vectors: Float[np.ndarray, "T D"]
    times_s: Float[np.ndarray, " T"]
    duration_s: float


@dataclass(frozen=True)
class Reading:
    """Which words of a sentence the encoder used.

    These are the first `num_words_read` words (None: all words), except for the words in `unknown`. If `is_understood`
    is False, the encoder knows no word of the sentence, and the sentence's vector is meaningless.
    """

    unknown: tuple[str, ...] = ()
    is_understood: bool = True
    num_words_read: int | None = None


@dataclass(frozen=True)
class TextFeatures:
    """The vectors of one sentence and of its words. `sentence` is in the same vector space as frames."""

    text: str
    sentence: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W E"]
    tokens: tuple[str, ...]
    reading: Reading = Reading()
