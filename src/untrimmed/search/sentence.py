"""What is to be said of a sentence before it is searched for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from untrimmed.errors import ConfigError, named

if TYPE_CHECKING:
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


def _quoted(word: str) -> str:
    return repr(word if len(word) <= _MAX_SHOWN else word[:_MAX_SHOWN] + "\u2026")
