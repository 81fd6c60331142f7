"""A span of a video. This module does not import numpy, so that commands that query a running service start quickly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MatchedWord:
    """A word that occurs in a passage and in the query. It is `text[start:end]` of the passage.

    If the times of single words are unknown, `start_s` and `end_s` are the times of the subtitle or line that contains
    the word.
    """

    start: int
    end: int
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    """Why a moment matches the query: by its pictures, or by a passage that is spoken or shown as text."""

    mode: str  # seen, said or written
    start_s: float
    end_s: float
    text: str = ""  # text of the passage; empty for mode `seen`
    source: str = ""  # source of the passage: subtitle, speech, screen, or the name of a plug-in's source
    language: str = ""
    words: tuple[MatchedWord, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Evidence:
        """Return the evidence from the result of `asdict`.

        Raises: KeyError or TypeError for other data.
        """
        return cls(**{**data, "words": tuple(MatchedWord(**word) for word in data["words"])})


@dataclass(frozen=True, order=True)
class Moment:
    """A span of one video in seconds, and its score (higher is better).

    `peak_s` is the most relevant time in the span, or None if it is not known, as for annotated moments. Moments with
    the same span and score are equal.
    """

    start_s: float
    end_s: float
    score: float = 0.0
    peak_s: float | None = field(default=None, compare=False)
    # Why the moment matches, strongest evidence first. Empty if the search compared only pictures.
    evidence: tuple[Evidence, ...] = field(default=(), compare=False)

    @property
    def picture_s(self) -> float:
        """The time of the picture that represents the moment: the peak, or the middle if the peak is not known."""
        return (self.start_s + self.end_s) / 2 if self.peak_s is None else self.peak_s

    @property
    def has_passage(self) -> bool:
        """Whether the moment contains words that are said or written."""
        return any(reason.text for reason in self.evidence)
