"""Captions with their moments, and functions for caption texts and ids."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

Span = tuple[float, float]


@dataclass(frozen=True)
class Annotation:
    """One caption of one video.

    - `moments` are spans in seconds. Most data sets have one span per caption, QVHighlights has all relevant windows,
      and DiDeMo has one span per annotator. The tuple is empty if no span is usable.
    - `duration_s` is the length of the video in seconds, or None if unknown.
    - `kind` is TVR's caption type, or None in other data sets. The caption describes the picture (v), the subtitles (t)
      or both (vt).
    """

    video: str
    caption_id: str
    text: str
    moments: tuple[Span, ...] = ()
    duration_s: float | None = None
    kind: str | None = None

    @property
    def main_moment(self) -> Span | None:
        """The most frequent span, or the first of several equally frequent spans.

        >>> Annotation("v", "v#enc#0", "a dog", ((0.0, 5.0), (5.0, 10.0), (5.0, 10.0))).main_moment
        (5.0, 10.0)
        """
        return Counter(self.moments).most_common(1)[0][0] if self.moments else None

    @property
    def moment_ratio(self) -> float | None:
        """Length of the main moment divided by the length of the video (M/V), or None if either length is unknown."""
        if self.main_moment is None or not self.duration_s:
            return None
        start_s, end_s = self.main_moment
        return (end_s - start_s) / self.duration_s


def single_spaced(text: str) -> str:
    """Return the text with each run of white space replaced by one space. Caption files have one caption per line.

    >>> single_spaced(" a man\\n  sits ")
    'a man sits'
    """
    return " ".join(text.split())


def plain_text(text: str) -> str:
    """Return the words of a text in lower case, separated by single spaces and without punctuation.

    >>> plain_text(" A man's  dog, then ... a CAT.")
    'a man s dog then a cat'
    """
    return " ".join(re.findall(r"\w+", text.lower()))


def usable_moment(start_s: float, end_s: float, duration_s: float | None) -> tuple[Span, ...]:
    """Return a tuple with the part of a span that is inside the video, or an empty tuple if no part is inside.

    If the start is after the end, the two are swapped (a few captions of Charades-STA and ActivityNet Captions). A span
    that ends after the video is cut at the end of the video (about 2,000 captions of Charades-STA).

    >>> usable_moment(9.0, 5.0, 8.0)
    ((5.0, 8.0),)
    """
    start_s, end_s = sorted((float(start_s), float(end_s)))
    start_s = max(start_s, 0.0)
    if duration_s is not None:
        end_s = min(end_s, duration_s)
    return ((start_s, end_s),) if end_s > start_s else ()


def number_captions(annotations: Iterable[Annotation]) -> list[Annotation]:
    """Return the captions with ids as in the released files: `<video>#enc#<n>`, where n counts from 0 in each video."""
    num_captions: Counter[str] = Counter()
    numbered = []
    for annotation in annotations:
        number = num_captions[annotation.video]
        num_captions[annotation.video] += 1
        numbered.append(replace(annotation, caption_id=f"{annotation.video}#enc#{number}"))
    return numbered


def videos_of(annotations: Iterable[Annotation]) -> list[str]:
    """Return the distinct video ids in order of first appearance, as the released programs do."""
    return list(dict.fromkeys(annotation.video for annotation in annotations))


def stable_hash(text: str) -> int:
    """Return a 64-bit hash that is the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
