"""What a search answers: videos, or moments, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from untrimmed.span import Moment


@dataclass(frozen=True)
class Hit:
    """A video that fits, and where in it: `start_s` to `end_s` is the first of `moments`."""

    video: Path
    video_id: str
    start_s: float
    end_s: float
    score: float  # by its best window or pair, less what must not be seen, or the model's own; compare within a query
    duration_s: float
    moments: tuple[Moment, ...]  # best first, at least one
    confidence: float | None = None  # the chance that it holds what was asked for; None where that was not measured
    then: tuple[Moment, ...] = ()  # what follows each of them, where the query asks for it
    folded: tuple[Path, ...] = ()  # videos of hits that were left out, since they look like this one


@dataclass(frozen=True)
class WeighedWord:
    """A word of a sentence and how much it counts beside the others."""

    word: str
    weight: float


class Hits(list[Hit]):
    """Hits, best first, and what to know of the sentence they answer: words that the encoder does not know or read.

    `words` are those of the sentence with their weights, where a trained model weighs them; else there are none.
    They are `partial` where some videos could not be asked, since a shard of the library did not answer.
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        warnings: Sequence[str] = (),
        *,
        partial: bool = False,
        words: Sequence[WeighedWord] = (),
    ):
        super().__init__(hits)
        self.warnings = tuple(warnings)
        self.partial = partial
        self.words = tuple(words)
