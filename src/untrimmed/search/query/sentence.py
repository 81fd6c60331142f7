"""What is to be said of a sentence before it is searched for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from untrimmed.errors import ConfigError, named
from untrimmed.search.query.hits import WeighedWord

if TYPE_CHECKING:
    from untrimmed.search.corpora.corpus import Doubt
    from untrimmed.types import TextFeatures

_NUM_NAMED = 8
_MAX_SHOWN = 40


def check_sentence(text: str) -> None:
    """Refuse what is no sentence.

    Raises:
        ConfigError: It is empty or no text.
    """
    if not text.strip():
        raise ConfigError("the sentence to search for is empty; describe what is to be seen")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the sentence {text!r} is not valid UTF-8; type it again") from None


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
