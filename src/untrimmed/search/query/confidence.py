"""How likely a video holds what a sentence asks for: its score beside those of footage that does not hold it.

What a good score is differs from sentence to sentence, so each is tried on a background: a few clips whose vectors come
with the package, of an encoder on which this was measured (docs/quality.md). The chance is logistic in how far a score
is above the best fifth of the background.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

import untrimmed.encoders
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.corpora.frames import NAME, FrameCorpus
from untrimmed.search.store.records import VideoRecord
from untrimmed.search.store.table import StoredVideo
from untrimmed.types import FrameFeatures

_FIFTH = 5
_NEVER = 1e-12  # a chance that no cosine has; of 0 and 1 there is no logarithm


@dataclass(frozen=True)
class Calibration:
    """The coefficients of the chance, chosen on one half of the clips on which it was measured."""

    per_above: float
    offset: float


@dataclass(frozen=True)
class Confidence:
    """The chance that a video holds what one query asks for, by its score."""

    calibration: Calibration
    usual_best: float  # the mean score of the best fifth of the background

    def of(self, score: float) -> float:
        """From 0 to 1; it grows with the score."""
        c = self.calibration
        logit = c.per_above * (score - self.usual_best) + c.offset
        small = math.exp(-abs(logit))  # of the other sign it overflows far below what is usual
        return (1 if logit >= 0 else small) / (1 + small)

    def least_score(self, confidence: float) -> float:
        """The score from which the chance is at least so large.

        >>> sure = Confidence(Calibration(9.0, -1.0), usual_best=0.2)
        >>> round(sure.of(sure.least_score(0.9)), 6)
        0.9
        """
        c, confidence = self.calibration, min(max(confidence, _NEVER), 1 - _NEVER)
        return self.usual_best + (math.log(confidence / (1 - confidence)) - c.offset) / c.per_above


@dataclass(frozen=True, eq=False)
class Background:
    """Clips of everyday footage as one encoder sees them, and what was measured with them."""

    corpus: FrameCorpus
    durations_s: dict[str, float]
    calibration: Calibration

    def confidence(self, prepared: PreparedQuery) -> Confidence | None:
        """What the scores of a query mean, given the same query before this corpus; None where that has none."""
        scores = [video.score for video in prepared.rank(limit=len(self.durations_s))]
        return Confidence(self.calibration, best_fifth(np.array(scores))) if scores else None


def best_fifth(scores: Float[np.ndarray, " V"]) -> float:
    """The mean of the best fifth of some scores, one at least; minus infinity where there is none.

    >>> best_fifth(np.array([0.1, 0.5, 0.2, 0.4, 0.0, 0.3]))
    0.45
    """
    if not len(scores):
        return -math.inf
    return float(np.sort(scores)[-math.ceil(len(scores) / _FIFTH) :].mean())


@cache
def background_of(identity: str) -> Background | None:
    """The background of an encoder; None where confidence was not measured with exactly these weights."""
    name = re.split(r"\W", identity)[0]  # of builtin-2:e2544dce2367 builtin, of siglip:0123abcd siglip
    file = Path(untrimmed.encoders.__path__[0]) / name / "background.npz"
    if not name.isidentifier() or not file.is_file():
        return None
    with np.load(file, allow_pickle=False) as kept:
        if str(kept["identity"]) != identity:
            return None
        clips = np.split(kept["vectors"], np.cumsum(kept["lengths"])[:-1])
        spacing_s, calibration = float(kept["spacing_s"]), Calibration(*map(float, kept["calibration"]))
    videos = [_stored(f"background {n}", vectors, spacing_s, identity) for n, vectors in enumerate(clips)]
    durations_s = {video.record.video_id: video.record.duration_s for video in videos}
    return Background(FrameCorpus().update(videos), durations_s, calibration)


def _stored(video_id: str, vectors: Float[np.ndarray, "T D"], spacing_s: float, identity: str) -> StoredVideo:
    duration_s = spacing_s * len(vectors)
    record = VideoRecord(
        video_id=video_id,
        path=video_id,
        content_hash=video_id,
        size=0,
        mtime_ns=0,
        duration_s=duration_s,
        width=0,
        height=0,
        num_frames=len(vectors),
        sampling=f"{1 / spacing_s:g} fps",
        encoder_identity=identity,
        model=NAME,
        indexed_at=0.0,
    )
    return StoredVideo(record, FrameFeatures(vectors, spacing_s * np.arange(len(vectors)), duration_s))
