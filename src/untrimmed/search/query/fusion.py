"""Combine the scores of pictures and passages into one ranking of videos. docs/queries.md describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from typing import Self

FusionMethod: TypeAlias = Literal["calibrated", "reciprocal rank"]


@dataclass(frozen=True)
class FusionSettings:
    """How well a passage must match, and how passages and frames are combined."""

    method: FusionMethod = "calibrated"
    # Passages with a lower strength are ignored, so that they do not change the ranking of a purely visual query.
    least_strength: float = 0.35
    # A passage of strength 1 raises the score by this many standard deviations of the relevance of frames.
    weight: float = 10.0
    # If the best frame of the library shows the sentence with at least the confidence `sure`, the sentence is probably
    # about a picture. In this case, a strength below `full_strength` is multiplied by `factor_if_sure`, unless the
    # frames at the passage agree with it.
    sure: float = 0.5
    factor_if_sure: float = 0.2
    full_strength: float = 0.9
    # Frames agree with a passage if their relevance is this many standard deviations above the mean, and at least half
    # way between the mean and the best frame of the library. Then the moment is the part of the passage with these
    # frames.
    agreement: float = 1.0
    # The similarities of query and passage at which the strength is 0 and 1. A similarity is a rescaled cosine: 0 for
    # the mean cosine of all passages, 1 for a cosine of 1. In a search for passages only, a lower similarity counts.
    no_meaning: float = 0.45
    no_meaning_if_required: float = 0.3
    same_meaning: float = 0.8
    rank_offset: float = 60.0  # k of reciprocal rank fusion (Cormack et al. 2009)

    def if_required(self) -> Self:
        """Return the settings for a text that each hit must match: weak matches count, because no picture competes."""
        return replace(self, least_strength=0.0, no_meaning=self.no_meaning_if_required)


@dataclass(frozen=True)
class FusionCandidate:
    """A video with the score of its frames, and the strength of its best passage (0 if it has none).

    `seen` is the score of the frames of the whole video. `seen_at_passage` is the score of the frames at the best
    passage. Both are None if frames are not searched.
    """

    video_id: str
    seen: float | None
    strength: float = 0.0
    seen_at_passage: float | None = None


def fuse(
    candidates: Sequence[FusionCandidate], deviation: float, settings: FusionSettings = FusionSettings()
) -> dict[str, float]:
    """Return the score of each candidate. `deviation` is the standard deviation of the relevance of frames.

    - calibrated: `seen_at_passage` + `weight` * strength * deviation, or `seen` if `seen` is larger. So a video without
      matching passages keeps the score of its frames.
    - reciprocal rank: the sum of 1 / (k + rank) over the ranking by frames and the ranking by passages.

    Without frames, the score is the strength.

    >>> fuse([FusionCandidate("a", 0.5), FusionCandidate("b", 0.25, 0.5, 0.25)], deviation=0.125)
    {'a': 0.5, 'b': 0.875}
    """
    if any(candidate.seen is None for candidate in candidates):
        return {candidate.video_id: candidate.strength for candidate in candidates}
    if settings.method == "reciprocal rank":
        scores = dict.fromkeys((candidate.video_id for candidate in candidates), 0.0)
        by_frames = sorted(candidates, key=lambda candidate: -(candidate.seen or 0.0))
        by_passages = sorted((c for c in candidates if c.strength > 0), key=lambda candidate: -candidate.strength)
        for ranking in (by_frames, by_passages):
            for rank, candidate in enumerate(ranking, start=1):
                scores[candidate.video_id] += 1 / (settings.rank_offset + rank)
        return scores
    return {candidate.video_id: calibrated_score(candidate, deviation, settings) for candidate in candidates}


def calibrated_score(candidate: FusionCandidate, deviation: float, settings: FusionSettings) -> float:
    """Return the calibrated score of a candidate, see `fuse`."""
    assert candidate.seen is not None, "frames are searched"
    if not candidate.strength or candidate.seen_at_passage is None:
        return candidate.seen
    return max(candidate.seen, raised(candidate.seen_at_passage, candidate.strength, deviation, settings))


def raised(seen: float, strength: float, deviation: float, settings: FusionSettings) -> float:
    """Return the relevance of frames, raised by a passage at the same time, see `fuse`."""
    return seen + settings.weight * deviation * strength
