"""Find the words of a sentence that an encoder does not know, and how many words fit into its limit."""

import re
from collections.abc import Iterable

from untrimmed.types import Reading


def reading_of(text: str, pieces: Iterable[tuple[int, int, bool]], *, is_cut: bool) -> Reading:
    """Return which words of a text are unknown, and how many were read.

    Words are separated by spaces. A word is known if one of its tokens is known. Words without tokens, and words beyond
    the encoder's limit, count neither as known nor as unknown.

    Args:
        pieces: For each token, its start and end in the text, and whether it is known.
        is_cut: Whether the text was longer than the encoder's limit.

    >>> reading_of("a dog 犬", [(0, 1, True), (2, 5, True), (6, 7, False)], is_cut=False)
    Reading(unknown=('犬',), is_understood=True, num_words_read=None)
    """
    # some tokenizers also have tokens that are only a space
    listed = [piece for piece in pieces if text[piece[0] : piece[1]].strip()]
    stop = max((end for _, end, _ in listed), default=0) if is_cut else len(text)
    words = [match.span() for match in re.finditer(r"\S+", text[:stop])]
    unknown = []
    is_understood = False
    at = 0
    for start, end in words:
        known = []
        while at < len(listed) and listed[at][0] < end:
            known.append(listed[at][2])
            at += 1
        is_understood = is_understood or any(known)
        if known and not any(known):
            unknown.append(text[start:end])
    num_whole = len(words) - (is_cut and stop < len(text) and bool(words) and not text[stop].isspace())
    return Reading(tuple(unknown), is_understood, num_whole if is_cut else None)


def known_words(text: str, reading: Reading) -> str:
    """Return the words of a text that the encoder knows, up to its limit.

    If all words are known, or all are unknown, the text is returned unchanged.

    >>> known_words("a dog 犬 runs", Reading(unknown=("犬",)))
    'a dog runs'
    """
    if not (reading.unknown and reading.is_understood):
        return text
    return " ".join(word for word in text.split()[: reading.num_words_read] if word not in reading.unknown) or text
