"""What a search answers: videos, or moments, best first, and what to know of the sentence; and the JSON of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untrimmed.errors import named
from untrimmed.span import Moment

if TYPE_CHECKING:
    from untrimmed.search.corpora.corpus import Doubt
    from untrimmed.types import TextFeatures

_NUM_NAMED = 8
_MAX_SHOWN = 40


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

    def to_json(self, rank: int) -> dict[str, Any]:
        """The hit as an object of JSON, in the one form of all interfaces (docs/json.md); `rank` counts from 1."""
        found = {"rank": rank, **asdict(self), "video": str(self.video), "folded": [*map(str, self.folded)]}
        return {name: value for name, value in found.items() if value or name not in ("then", "folded")}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Hit:
        """The hit of such an object.

        Raises:
            AttributeError, KeyError, TypeError: It has another form.
        """
        own = {field.name: found[field.name] for field in fields(cls) if field.name in found}
        spans = {name: tuple(Moment(**one) for one in found.get(name) or ()) for name in ("moments", "then")}
        folded = tuple(map(Path, found.get("folded") or ()))
        return cls(**{**own, **spans, "video": Path(found["video"]), "folded": folded})


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

    def to_json(self) -> dict[str, Any]:
        """The hits with their ranks, and what to know of them, as an object of JSON."""
        found = {"warnings": list(self.warnings), "partial": self.partial}
        words = {"words": list(map(asdict, self.words))} if self.words else {}
        return {**found, "hits": [hit.to_json(rank) for rank, hit in enumerate(self, start=1)], **words}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Hits:
        """The hits of such an object.

        Raises:
            AttributeError, KeyError, TypeError: It has another form.
        """
        words = [WeighedWord(**word) for word in found.get("words") or ()]
        return cls(map(Hit.from_json, found["hits"]), found["warnings"], partial=found["partial"], words=words)


def sentence_warnings(query: TextFeatures, encoder: str) -> tuple[str, ...]:
    """One line each for words of the sentence that do not count: unknown to the encoder, or behind what it reads."""
    reading, lines = query.reading, []
    if not reading.is_understood:
        lines.append(f"encoder {encoder!r} knows no word of the sentence; say it in other words, or in English")
    elif reading.unknown:
        unknown = named(map(_quoted, reading.unknown), _NUM_NAMED)
        lines.append(f"encoder {encoder!r} does not know {unknown}; the other words were searched for")
    if reading.num_words_read is not None:
        lines.append(
            f"the sentence is longer than encoder {encoder!r} reads: {reading.num_words_read} of its "
            f"{len(query.text.split())} words count; shorten it"
        )
    return tuple(lines)


def doubt_warnings(doubt: Doubt) -> tuple[str, ...]:
    """A line where a trained model finds a sentence more ambiguous than usual."""
    if doubt.deviation <= doubt.usual:
        return ()
    return (
        f"the model finds the sentence ambiguous: its predicted deviation is {doubt.deviation:.3g}, that of nine in "
        f"ten captions which the model was validated on at most {doubt.usual:.3g}; say more of what is to be seen",
    )


def weighed_words(text: str, tokens: Sequence[str], weights: Sequence[float]) -> tuple[WeighedWord, ...]:
    """The words of a sentence, each with the weights of its tokens; what the encoder did not read has 0.

    Without any, where some token does not stand in the sentence as it was written.

    >>> weighed_words("An espresso, please", ["an", "es", "##presso", ","], [0.1, 0.5, 0.3, 0.1])[1]
    WeighedWord(word='espresso,', weight=0.9)
    """
    words = list(re.finditer(r"\S+", text))
    folded, totals, at = text.lower(), [0.0] * len(words), 0
    if len(folded) != len(text):
        return ()
    for token, weight in zip(tokens, weights, strict=False):
        if re.fullmatch(r"<.+>|\[.+\]", token):  # a mark of the encoder
            continue
        piece = re.sub(r"^(?:##|\u0120|\u2581)|</w>$", "", token).lower()
        found = folded.find(piece, at)
        if found < 0:
            return ()
        at = found + len(piece)
        totals[next(i for i, word in enumerate(words) if found < word.end())] += weight
    return tuple(WeighedWord(word[0], round(total, 4)) for word, total in zip(words, totals, strict=True))


def _quoted(word: str) -> str:
    return repr(word if len(word) <= _MAX_SHOWN else word[:_MAX_SHOWN] + "\u2026")
