"""The result of a search, and its JSON form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untrimmed.errors import named
from untrimmed.span import Evidence, Moment

if TYPE_CHECKING:
    from untrimmed.search.corpora.corpus import Uncertainty
    from untrimmed.types import TextFeatures

_MAX_WORDS = 8
_MAX_CHARACTERS = 40


@dataclass(frozen=True)
class Hit:
    """A matching video and its moments. `start_s`, `end_s` and `peak_s` are the times of the best moment."""

    video: Path
    video_id: str
    start_s: float
    end_s: float
    score: float  # see docs/queries.md; scores of different queries are not comparable
    duration_s: float
    moments: tuple[Moment, ...]  # at least one; best first, or in time order if all were requested
    confidence: float | None = None  # probability that the video matches; None if confidence was not measured
    then: tuple[Moment, ...] = ()  # if the query has `then`: for each of `moments`, the moment that follows it
    folded: tuple[Path, ...] = ()  # videos whose moments are hidden as near-duplicates of this hit
    peak_s: float | None = None  # the most relevant time of the best moment, where its picture is taken
    width: int = 0  # width of the video's picture in pixels; 0 if it is unknown
    height: int = 0
    curve: tuple[float, ...] = ()  # relevance of the pictures in equal parts of the video, if requested

    @property
    def best(self) -> Moment:
        """The best moment."""
        return next(moment for moment in self.moments if (moment.start_s, moment.end_s) == (self.start_s, self.end_s))

    def to_json(self, rank: int) -> dict[str, Any]:
        """Return the hit as a JSON object (docs/json.md). `rank` counts from 1."""
        data = {"rank": rank, **asdict(self), "video": str(self.video), "folded": [*map(str, self.folded)]}
        for moment in (*data["moments"], *data["then"]):
            if not moment["evidence"]:
                del moment["evidence"]
        return {name: value for name, value in data.items() if value or name not in ("then", "folded", "curve")}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Hit:
        """Return the hit in a result of `to_json`. Raises AttributeError, KeyError or TypeError for other data."""
        values = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        spans = {name: tuple(map(_moment, data.get(name) or ())) for name in ("moments", "then")}
        folded = tuple(map(Path, data.get("folded") or ()))
        curve = tuple(data.get("curve") or ())
        return cls(**{**values, **spans, "video": Path(data["video"]), "folded": folded, "curve": curve})


def _moment(data: dict[str, Any]) -> Moment:
    return Moment(**{**data, "evidence": tuple(map(Evidence.from_json, data.get("evidence") or ()))})


@dataclass(frozen=True)
class WeighedWord:
    """A word of a sentence and its relative weight."""

    word: str
    weight: float


class Hits(list[Hit]):
    """Hits, best first, and warnings, for example about unknown words.

    `words` contains the weights of the words if a trained model weights them. If `partial` is true, hits may be missing
    because a shard did not answer. If `filters_exclude_all` is true, no video of the library meets the filters.
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        warnings: Sequence[str] = (),
        *,
        partial: bool = False,
        words: Sequence[WeighedWord] = (),
        filters_exclude_all: bool = False,
    ):
        super().__init__(hits)
        self.warnings = tuple(warnings)
        self.partial = partial
        self.words = tuple(words)
        self.filters_exclude_all = filters_exclude_all

    def to_json(self) -> dict[str, Any]:
        """Return the hits and warnings as a JSON object (docs/json.md)."""
        data = {
            "warnings": list(self.warnings),
            "partial": self.partial,
            "filters_exclude_all": self.filters_exclude_all,
        }
        words = {"words": list(map(asdict, self.words))} if self.words else {}
        return {**data, "hits": [hit.to_json(rank) for rank, hit in enumerate(self, start=1)], **words}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Hits:
        """Return the hits in a result of `to_json`. Raises AttributeError, KeyError or TypeError for other data."""
        words = [WeighedWord(**word) for word in data.get("words") or ()]
        return cls(
            map(Hit.from_json, data["hits"]),
            data["warnings"],
            partial=data["partial"],
            words=words,
            filters_exclude_all=data.get("filters_exclude_all", False),  # older services do not send it
        )


def sentence_warnings(query: TextFeatures, encoder: str) -> tuple[str, ...]:
    """Return warnings about words that the encoder does not know, and a warning if the sentence is too long for it."""
    reading = query.reading
    lines = []
    if not reading.is_understood:
        lines.append(f"encoder {encoder!r} knows no word of the sentence; use other words, or English")
    elif reading.unknown:
        unknown = named(map(_quoted, reading.unknown), _MAX_WORDS)
        lines.append(f"encoder {encoder!r} does not know {unknown}; the other words were searched for")
    if reading.num_words_read is not None:
        lines.append(
            f"the sentence is longer than encoder {encoder!r} reads: {reading.num_words_read} of its "
            f"{len(query.text.split())} words count; shorten it"
        )
    return tuple(lines)


def uncertainty_warnings(uncertainty: Uncertainty) -> tuple[str, ...]:
    """Return a warning if a trained model finds a sentence more ambiguous than usual."""
    if uncertainty.deviation <= uncertainty.usual:
        return ()
    return (
        f"the model finds the sentence ambiguous: its predicted deviation is {uncertainty.deviation:.3g}, but "
        f"nine in ten validation captions have at most {uncertainty.usual:.3g}; add details to the description",
    )


def weighed_words(text: str, tokens: Sequence[str], weights: Sequence[float]) -> tuple[WeighedWord, ...]:
    """Return the words of a sentence, each with the sum of its tokens' weights.

    Words beyond the encoder's limit have weight 0. If a token is not in the sentence, the result is empty.

    >>> weighed_words("An espresso, please", ["an", "es", "##presso", ","], [0.1, 0.5, 0.3, 0.1])[1]
    WeighedWord(word='espresso,', weight=0.9)
    """
    words = list(re.finditer(r"\S+", text))
    folded = text.lower()
    totals = [0.0] * len(words)
    position = 0
    if len(folded) != len(text):
        return ()
    for token, weight in zip(tokens, weights, strict=False):
        if re.fullmatch(r"<.+>|\[.+\]", token):  # a special token of the encoder, not part of a word
            continue
        piece = re.sub(r"^(?:##|\u0120|\u2581)|</w>$", "", token).lower()
        start = folded.find(piece, position)
        if start < 0:
            return ()
        position = start + len(piece)
        totals[next(i for i, word in enumerate(words) if start < word.end())] += weight
    return tuple(WeighedWord(word[0], round(total, 4)) for word, total in zip(words, totals, strict=True))


def _quoted(word: str) -> str:
    return repr(word if len(word) <= _MAX_CHARACTERS else word[:_MAX_CHARACTERS] + "\u2026")
