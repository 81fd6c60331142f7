"""A passage: a piece of text that is spoken or shown in a span of a video. This module imports no numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["seen", "said", "written"]
TextMode: TypeAlias = Literal["said", "written"]
TEXT_MODES: tuple[TextMode, ...] = ("said", "written")


@dataclass(frozen=True)
class Word:
    """A word of a passage, with the span in which it is spoken."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Passage:
    """A piece of text with its span in a video, in seconds from the first frame.

    Raises:
        ValueError: The text is empty, a time is negative or not finite, or the end is before the start.
    """

    text: str  # plain text on one line, without tags
    start_s: float
    end_s: float
    source: str  # name of the source that read the passage: subtitle, speech, screen, or the name of a plug-in's source
    language: str = ""  # a code such as "en" or "pt-BR"; empty if it is unknown
    confidence: float | None = None  # from 0 to 1; None if the source does not estimate it
    words: tuple[Word, ...] = ()  # in time order; empty if the times of words are unknown
    # The stream or file that contains the passage, e.g. "film.en.srt", if a source reads several for one video.
    # Only passages of one track are joined to sentences.
    track: str = ""

    @property
    def label(self) -> str:
        """The source, language and track of the passage, for people.

        >>> Passage("Hello.", 0.0, 1.0, "subtitle", "en", track="film.en.srt").label
        'subtitle en film.en.srt'
        """
        return " ".join(filter(None, (self.source, self.language, self.track)))

    def until(self, end_s: float) -> Passage:
        """Return this passage with all times clipped to `end_s`. The passage must begin before `end_s`."""
        if self.end_s <= end_s and all(word.end_s <= end_s for word in self.words):
            return self
        words = tuple(Word(word.text, min(word.start_s, end_s), min(word.end_s, end_s)) for word in self.words)
        return replace(self, end_s=min(self.end_s, end_s), words=words)

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a passage has no text")
        if not 0 <= self.start_s <= self.end_s < math.inf:
            raise ValueError(f"a passage is from {self.start_s} to {self.end_s} s, expected finite times in order")
