"""One caption with its moments."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

Span = tuple[float, float]


@dataclass(frozen=True)
class Annotation:
    """One caption of one video.

    `moments` are spans in seconds: one in most data sets, all relevant windows in QVHighlights, one per annotator in
    DiDeMo, none where the source names no usable span. `duration_s` is the length of the video, None where unknown.
    `kind` is TVR's: v, t or vt, whether the caption speaks of the picture, the subtitle, or both.
    """

    video: str
    caption_id: str
    text: str
    moments: tuple[Span, ...] = ()
    duration_s: float | None = None
    kind: str | None = None

    @property
    def main_moment(self) -> Span | None:
        """The span named most often; of several, the first.

        >>> Annotation("v", "v#enc#0", "a dog", ((0.0, 5.0), (5.0, 10.0), (5.0, 10.0))).main_moment
        (5.0, 10.0)
        """
        return Counter(self.moments).most_common(1)[0][0] if self.moments else None

    @property
    def moment_ratio(self) -> float | None:
        """Length of the main moment over length of the video (M/V), in (0, 1]; None where either is unknown."""
        if self.main_moment is None or not self.duration_s:
            return None
        start_s, end_s = self.main_moment
        return (end_s - start_s) / self.duration_s


def one_line(text: str) -> str:
    """The text with every run of white space as one blank: the field's caption files hold one caption a line.

    >>> one_line(" a man\\n  sits ")
    'a man sits'
    """
    return " ".join(text.split())


def plain_text(text: str) -> str:
    """The words of a text in small letters, one blank between any two: signs and blanks make no other text.

    >>> plain_text(" A man's  dog, then ... a CAT.")
    'a man s dog then a cat'
    """
    return " ".join(re.findall(r"\w+", text.lower()))


def usable_moment(start_s: float, end_s: float, duration_s: float | None) -> tuple[Span, ...]:
    """The span inside the video as a tuple of one, or an empty tuple when nothing of it lies there.

    A few captions of Charades-STA and ActivityNet Captions have start and end swapped, and two thousand of Charades-STA
    end after their video; the former are turned round, the latter cut.

    >>> usable_moment(9.0, 5.0, 8.0)
    ((5.0, 8.0),)
    """
    start_s, end_s = sorted((float(start_s), float(end_s)))
    start_s = max(start_s, 0.0)
    if duration_s is not None:
        end_s = min(end_s, duration_s)
    return ((start_s, end_s),) if end_s > start_s else ()


def number_captions(annotations: Iterable[Annotation]) -> list[Annotation]:
    """The annotations with the field's caption ids `<video>#enc#<n>`, n counting the captions of a video from 0."""
    seen: Counter[str] = Counter()
    numbered = []
    for annotation in annotations:
        number = seen[annotation.video]
        seen[annotation.video] += 1
        numbered.append(replace(annotation, caption_id=f"{annotation.video}#enc#{number}"))
    return numbered


def videos_of(annotations: Iterable[Annotation]) -> list[str]:
    """The distinct videos in order of first appearance: the field's order of items and candidates."""
    return list(dict.fromkeys(annotation.video for annotation in annotations))


def stable_hash(text: str) -> int:
    """A number of 64 bits, the same for the same text on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
