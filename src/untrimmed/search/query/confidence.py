"""Convert scores to confidence: the probability that a video shows what a sentence describes.

Scores of different sentences are not comparable. So each sentence is also scored on a *background*: clips of everyday
footage, whose vectors are part of the package for some encoders (docs/quality.md). The probability is a logistic
function of the difference between a hit's score and the mean of the best fifth of the background's scores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

import untrimmed.encoders
from untrimmed.search.corpora.best_vector import TIMES, VECTORS, VectorBlock, VectorVideo
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.corpora.frames import FrameCorpus

_MIN_PROBABILITY = 1e-12  # smallest distance of a probability from 0 and 1, which have no logit


@dataclass(frozen=True)
class Calibration:
    """Coefficients of the logistic function. They were fitted on half of the real clips (docs/quality.md)."""

    slope: float
    offset: float


@dataclass(frozen=True)
class Confidence:
    """Converts the scores of one query to probabilities."""

    calibration: Calibration
    background_score: float  # mean of the best fifth of the background's scores

    def of(self, score: float) -> float:
        """Return the probability that a hit with this score matches."""
        c = self.calibration
        logit = c.slope * (score - self.background_score) + c.offset
        small = math.exp(-abs(logit))  # the exponential of a positive number could overflow
        return (1 if logit >= 0 else small) / (1 + small)

    def least_score(self, confidence: float) -> float:
        """Return the lowest score with at least this confidence.

        >>> scale = Confidence(Calibration(9.0, -1.0), background_score=0.2)
        >>> round(scale.of(scale.least_score(0.9)), 6)
        0.9
        """
        c = self.calibration
        confidence = min(max(confidence, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY)
        return self.background_score + (math.log(confidence / (1 - confidence)) - c.offset) / c.slope


@dataclass(frozen=True, eq=False)
class Background:
    """Clips of everyday footage as vectors of one encoder, and the calibration for this encoder."""

    corpus: FrameCorpus
    durations_s: dict[str, float]
    calibration: Calibration

    @classmethod
    def of(cls, clips: Sequence[Float[np.ndarray, "_ D"]], spacing_s: float, calibration: Calibration) -> Background:
        """Return a background of clips of frames. `spacing_s` is the time between two frames in seconds."""
        videos = []
        for number, clip in enumerate(clips):
            arrays = {VECTORS: clip.astype(np.float16), TIMES: spacing_s * np.arange(len(clip))}
            videos.append(VectorVideo(f"background {number}", spacing_s * len(clip), clip.shape[1], arrays))
        durations_s = {video.video_id: video.duration_s for video in videos}
        return cls(FrameCorpus().update_blocks([VectorBlock.of(videos)]), durations_s, calibration)

    def confidence(self, prepared: PreparedQuery) -> Confidence | None:
        """Return the conversion of a query's scores to probabilities, or None if no clip gets a score."""
        scores = [video.score for video in prepared.rank(limit=len(self.durations_s))]
        return Confidence(self.calibration, mean_of_best_fifth(np.array(scores))) if scores else None


def mean_of_best_fifth(scores: Float[np.ndarray, " V"]) -> float:
    """Return the mean of the best fifth of the scores (at least one score), or minus infinity if there are no scores.

    >>> mean_of_best_fifth(np.array([0.1, 0.5, 0.2, 0.4, 0.0, 0.3]))
    0.45
    """
    if not len(scores):
        return -math.inf
    return float(np.sort(scores)[-math.ceil(len(scores) / 5) :].mean())


@cache
def background_of(identity: str) -> Background | None:
    """Return the background of the encoder with this identity, or None if there is no calibration for its weights."""
    name = re.split(r"\W", identity)[0]  # builtin-2:a1043c6bf7e6 -> builtin, siglip:0123abcd -> siglip
    file = Path(untrimmed.encoders.__path__[0]) / name / "background.npz"
    if not name.isidentifier() or not file.is_file():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        if str(arrays["identity"]) != identity:
            return None
        clips = np.split(arrays["vectors"], np.cumsum(arrays["lengths"])[:-1])
        spacing_s = float(arrays["spacing_s"])
        calibration = Calibration(*map(float, arrays["calibration"]))
    return Background.of(clips, spacing_s, calibration)
