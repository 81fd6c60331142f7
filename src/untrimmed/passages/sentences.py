"""Join passages into sentences.

A subtitle or a piece of recognised speech is often only a part of a sentence. A library stores whole sentences, because
a phrase may continue in the next subtitle, and because the vector of half a sentence does not represent its meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from untrimmed.passages.passage import Passage

_MAX_GAP_S = 1.0
_MAX_SENTENCE_S = 15.0
_MAX_CHARACTERS = 300
_MAX_OVERLAP_S = 0.05  # if passages overlap longer, two people speak at the same time
_ENDS = tuple(".!?…。！？♪])】］:;।॥؟۔։።။")
_CLOSING = "\"'”’»)」』）"
_NEW_SPEAKERS = ("-", "–", "—", "♪", "[", "(", ">>")
_MAX_NAME = 30  # characters of the name of a speaker before a colon


@dataclass(frozen=True)
class Part:
    """The span, in seconds, of one of the passages of a sentence, and the number of its characters."""

    start_s: float
    end_s: float
    length: int


@dataclass(frozen=True)
class Sentence:
    """A passage, possibly joined from several passages. `parts` contains the spans of the joined passages, in order."""

    passage: Passage
    parts: tuple[Part, ...]

    @property
    def passages(self) -> list[Passage]:
        """The passages that the sentence was joined from."""
        passages = []
        start = 0
        words = list(self.passage.words)
        for number, part in enumerate(self.parts, start=1):
            text = self.passage.text[start : start + part.length]
            after_s = self.parts[number].start_s if number < len(self.parts) else math.inf
            count = sum(word.start_s < after_s for word in words)
            passages.append(
                replace(self.passage, text=text, start_s=part.start_s, end_s=part.end_s, words=tuple(words[:count]))
            )
            del words[:count]
            start += part.length + 1
        return passages


def sentences_of(passages: Iterable[Passage]) -> Iterator[Sentence]:
    """Yield sentences: consecutive passages of the same track, joined until a sentence ends or for at most 15 s.

    Passages that are not in time order are not joined.
    """
    joined: list[Passage] = []
    for passage in passages:
        if joined and not _continues(joined, passage):
            yield _sentence(joined)
            joined = []
        joined.append(passage)
    if joined:
        yield _sentence(joined)


def _continues(joined: list[Passage], passage: Passage) -> bool:
    """Whether a passage continues the sentence of these passages."""
    last = joined[-1]
    gap_s = passage.start_s - last.end_s
    return (
        passage.source != "screen"  # consecutive titles are not one sentence
        and (passage.source, passage.track, passage.language) == (last.source, last.track, last.language)
        and passage.start_s >= last.start_s
        and passage.end_s >= last.end_s
        and -_MAX_OVERLAP_S <= gap_s <= _MAX_GAP_S
        and passage.end_s - joined[0].start_s <= _MAX_SENTENCE_S
        and sum(len(part.text) + 1 for part in joined) + len(passage.text) <= _MAX_CHARACTERS
        and not ends_sentence(last.text)
        and not _begins_with_speaker(passage.text)
    )


def ends_sentence(text: str) -> bool:
    """Whether a sentence ends with this text.

    >>> ends_sentence('He said: "Yes."'), ends_sentence("「はい。」"), ends_sentence("and then")
    (True, True, False)
    """
    return text.rstrip(_CLOSING).endswith(_ENDS)


def _begins_with_speaker(text: str) -> bool:
    """Whether a text begins with a mark or the name of a new speaker.

    >>> [_begins_with_speaker(text) for text in ("- Yes.", ">> Yes.", "DR. NO: Yes.", "ABOUT 9:30")]
    [True, True, True, False]
    """
    name, colon, rest = f"{text} ".partition(":")
    is_name = bool(colon) and rest.startswith(" ") and len(name) <= _MAX_NAME and name.isupper()
    return is_name or text.startswith(_NEW_SPEAKERS)


def _sentence(joined: list[Passage]) -> Sentence:
    parts = tuple(Part(part.start_s, part.end_s, len(part.text)) for part in joined)
    if len(joined) == 1:
        return Sentence(joined[0], parts)
    confidences = [part.confidence for part in joined if part.confidence is not None]
    return Sentence(
        replace(
            joined[0],
            text=" ".join(part.text for part in joined),
            end_s=max(part.end_s for part in joined),
            confidence=sum(confidences) / len(confidences) if confidences else None,
            words=tuple(word for part in joined for word in part.words),
        ),
        parts,
    )
