"""A span of a video. This module imports no numpy, so that a command that asks a running service starts quickly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MatchedWord:
    """A word that a passage and the query share: its place `text[start:end]` in the passage, and its time if known."""

    start: int
    end: int
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    """Why a moment matches: its pictures (`seen`), or a passage that is spoken or shown as text in the moment."""

    mode: str  # seen, said or written
    start_s: float
    end_s: float
    text: str = ""  # of the passage; empty if the moment is seen
    source: str = ""  # of the passage: subtitle, speech, screen, or that of a plug-in
    language: str = ""
    words: tuple[MatchedWord, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Evidence:
        """Read the result of `asdict`; KeyError or TypeError for other data."""
        return cls(**{**data, "words": tuple(MatchedWord(**word) for word in data["words"])})


@dataclass(frozen=True, order=True)
class Moment:
    """A span of one video in seconds, and its score (higher is better).

    `peak_s` is the most relevant time in the span. It is None if it is not known, as for annotated moments. Moments
    with the same span and score are equal.
    """

    start_s: float
    end_s: float
    score: float = 0.0
    peak_s: float | None = field(default=None, compare=False)
    # Why the moment matches, the strongest reason first. Empty if the search had only pictures to compare.
    evidence: tuple[Evidence, ...] = field(default=(), compare=False)

    @property
    def picture_s(self) -> float:
        """The time of the picture that shows the moment: its peak, or its middle if the peak is not known."""
        return (self.start_s + self.end_s) / 2 if self.peak_s is None else self.peak_s
