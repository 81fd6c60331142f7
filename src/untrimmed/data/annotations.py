"""One caption with its moments, and the readers that every data set's own file shares."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from untrimmed.errors import FeatureError

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


def open_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a text file, gzip or not, with or without a byte order mark, numbered from 1.

    Raises:
        FeatureError: if the file cannot be read, is cut off, or is not UTF-8.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FeatureError(f"{path}: cannot be read as text ({error}); download or write the file again") from error


def read_json(path: Path) -> Any:
    """The value of one JSON file.

    Raises:
        FeatureError: if the file cannot be read or is not JSON.
    """
    try:
        return json.loads("".join(line for _, line in open_lines(path)))
    except json.JSONDecodeError as error:
        raise FeatureError(f"{path}: not JSON ({error}); download the file again") from error


def read_json_lines(path: Path, required: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line of a JSON-lines file as `(<file>, line <n>, object)`, with the required fields present.

    Raises:
        FeatureError: naming file and line, if a line is not a JSON object or lacks a field.
    """
    for number, line in open_lines(path):
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise FeatureError(f"{place}: not JSON ({error.msg}); each line must be one JSON object") from error
        require(row, required, place)
        yield place, row


def require(row: Any, fields: Sequence[str], place: str) -> None:
    """Raise a FeatureError naming the place unless `row` is a dictionary with all these fields."""
    if not isinstance(row, dict):
        raise FeatureError(f"{place}: found {type(row).__name__}, wanted an object with {', '.join(fields)}")
    missing = [field for field in fields if field not in row]
    if missing:
        raise FeatureError(f"{place}: no field {missing[0]!r}, found {', '.join(row) or 'none'}; is it this data set?")


def seconds(value: Any, place: str, what: str) -> float:
    """A finite number of seconds.

    Raises:
        FeatureError: naming the place, for anything else.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise FeatureError(f"{place}: {what} is {value!r}, wanted a finite number of seconds; correct the file")
    return number


def length_s(value: Any, place: str, what: str = "duration") -> float:
    """The length of a video: a number of seconds above 0.

    Raises:
        FeatureError: naming the place, for anything else.
    """
    number = seconds(value, place, what)
    if number <= 0:
        raise FeatureError(f"{place}: {what} is {number:g}, wanted more than 0 seconds; correct the file")
    return number


def sentence(value: Any, place: str, what: str) -> str:
    """A caption in one line.

    Raises:
        FeatureError: naming the place, for anything but text that says something.
    """
    if not isinstance(value, str) or not value.strip():
        raise FeatureError(f"{place}: {what} is {value!r}, wanted a sentence; write one or remove the caption")
    return one_line(value)


def kind_of(row: dict[str, Any], place: str) -> str | None:
    """TVR's `type`, where a row has one.

    Raises:
        FeatureError: naming the place, if it is no text.
    """
    kind = row.get("type")
    if kind is not None and not isinstance(kind, str):
        raise FeatureError(f"{place}: type is {kind!r}, wanted v, t or vt; correct the file")
    return kind


def entries(value: Any, place: str, what: str) -> list[Any]:
    """A list.

    Raises:
        FeatureError: naming the place, for anything else.
    """
    if not isinstance(value, list):
        raise FeatureError(f"{place}: {what} is {value!r}, wanted a list; correct the file")
    return value


def pair(value: Any, place: str, what: str) -> tuple[Any, Any]:
    """A list of two.

    Raises:
        FeatureError: naming the place, for anything else.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise FeatureError(f"{place}: {what} is {value!r}, wanted a pair [start, end]; correct the file")
    return value[0], value[1]


def video_id(value: Any, place: str) -> str:
    """A video id that the field's files can hold: no `#`, which ends it in a caption id, and no white space.

    Raises:
        FeatureError: naming the place, for anything else.
    """
    text = str(value)
    if not text or "#" in text or text.split() != [text]:
        raise FeatureError(f"{place}: video id {text!r} is empty or holds '#' or white space; rename the video")
    return text


def read_normalised(path: Path) -> list[Annotation]:
    """Annotations in one form for all data sets: a line a video, `{"video", "duration", "captions": [...]}`.

    A caption is `{"caption", "start", "end"}` in seconds; `windows` (all relevant spans) and `segments` (spans in
    5-second segments, one an annotator) take precedence over start and end; `type` is kept.

    Raises:
        FeatureError: naming file and line.
    """
    annotations = []
    for place, row in read_json_lines(path, ["video", "duration", "captions"]):
        video = video_id(row["video"], place)
        duration_s = None if row["duration"] is None else length_s(row["duration"], place)
        for caption in entries(row["captions"], place, "captions"):
            require(caption, ["caption", "start", "end"], f"{place}, video {video!r}")
            moments: tuple[Span, ...] = ()
            for start_s, end_s in _spans_of(caption, place):
                moments += usable_moment(seconds(start_s, place, "start"), seconds(end_s, place, "end"), duration_s)
            text = sentence(caption["caption"], place, "caption")
            annotations.append(Annotation(video, "", text, moments, duration_s, kind_of(caption, place)))
    return number_captions(annotations)


def _spans_of(caption: dict[str, Any], place: str) -> list[tuple[Any, Any]]:
    if "windows" in caption:
        return [pair(window, place, "window") for window in entries(caption["windows"], place, "windows")]
    if "segments" in caption:
        pairs = [pair(segment, place, "segment") for segment in entries(caption["segments"], place, "segments")]
        return [segment_span(segment_number(first, place), segment_number(last, place)) for first, last in pairs]
    return [] if caption["start"] is None else [(caption["start"], caption["end"])]


SEGMENT_S = 5.0
"""Length of a DiDeMo segment in seconds."""


def segment_number(value: Any, place: str) -> int:
    """A whole number from 0.

    Raises:
        FeatureError: naming the place, for anything else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FeatureError(f"{place}: {value!r} is no segment number; download the file again")
    return value


def segment_span(first: int, last: int) -> Span:
    """The seconds from the start of the first to the end of the last 5-second segment.

    >>> segment_span(1, 2)
    (5.0, 15.0)
    """
    return SEGMENT_S * first, SEGMENT_S * (last + 1)
