"""Read annotation files and check their fields. Every error names the file and the line."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untrimmed.data.annotations import Span, single_spaced, usable_moment
from untrimmed.errors import FeatureError
from untrimmed.files import write_whole

MAX_CHARACTERS = 64 * 2**20
"""Largest number of characters of a JSON file, or of a line of another file.

Without a limit, a small compressed file could expand to gigabytes.
"""


def open_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line) for each non-blank line of a UTF-8 file, which may be compressed with gzip.

    Raises: FeatureError if the file is missing or damaged, or if a line is too long.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number in itertools.count(1):
                line = lines.readline(MAX_CHARACTERS)
                if len(line) == MAX_CHARACTERS:
                    raise FeatureError(f"{path}, line {number}: {_too_long()}")
                if not line:
                    return
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise FeatureError(f"{path}: no such file; check the path") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FeatureError(f"{path}: cannot be read as text ({error}); download or write the file again") from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raises FeatureError if it cannot be read or is not JSON."""
    lines = []
    length = 0
    for _, line in open_lines(path):
        lines.append(line)
        length += len(line)
        if length > MAX_CHARACTERS:
            raise FeatureError(f"{path}: {_too_long()}")
    return _parsed("".join(lines), str(path), "download the file again")


def _parsed(text: str, place: str, fix: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise FeatureError(f"{place}: JSON with too many nested brackets; {fix}") from None
    except ValueError as error:  # also raised for a number with more than 4,300 digits
        raise FeatureError(f"{place}: not JSON ({error}); {fix}") from error


def _too_long() -> str:
    return f"longer than {MAX_CHARACTERS:,} characters, expected annotations; use the published file"


def read_rows(path: Path, required: Sequence[str]) -> Iterator[AnnotationRow]:
    """Yield each line of a JSON-lines file as a row.

    Raises: FeatureError if a line is not a JSON object or lacks a required field; the message names the line.
    """
    for number, line in open_lines(path):
        place = f"{path}, line {number}"
        yield AnnotationRow.of(_parsed(line, place, "each line must be one JSON object"), place, required)


def read_table(path: Path, required: Sequence[str]) -> Iterator[AnnotationRow]:
    """Yield each row of a CSV file; raises FeatureError if a required column is missing or empty."""
    numbered = list(open_lines(path))
    table = csv.DictReader(line for _, line in numbered)
    try:
        for values in table:
            place = f"{path}, line {numbered[table.line_num - 1][0]}"
            missing = [column for column in required if not values.get(column)]
            if missing:
                columns = ", ".join(filter(None, table.fieldnames or ()))
                raise FeatureError(f"{place}: no {missing[0]!r}, found columns {columns}; use the published file")
            yield AnnotationRow(values, place)
    except csv.Error as error:
        place = f"{path}, line {numbered[table.reader.line_num - 1][0]}"
        raise FeatureError(f"{place}: not CSV ({error}); download the file again") from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON-lines file atomically."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


@dataclass(frozen=True)
class AnnotationRow:
    """A JSON object or CSV row of an annotation file. Methods raise FeatureErrors that name the place and the field."""

    values: Mapping[str, Any]
    place: str  # the file, and the line or video in it, for messages

    @classmethod
    def of(cls, values: Any, place: str, required: Sequence[str]) -> AnnotationRow:
        """Return a row; raises FeatureError if the value is not an object with the required fields."""
        if not isinstance(values, dict):
            expected = f"an object with {', '.join(required)}" if required else "an object"
            raise FeatureError(f"{place}: found {type(values).__name__}, expected {expected}; fix the line")
        missing = [field for field in required if field not in values]
        if missing:
            names = ", ".join(values) or "none"
            raise FeatureError(f"{place}: no field {missing[0]!r}, found {names}; use a file of this data set")
        return cls(values, place)

    def length_s(self, field: str = "duration") -> float:
        """Return the positive length of a video in seconds."""
        number = self._seconds(self.values[field], field)
        if number <= 0:
            raise FeatureError(f"{self.place}: {field} is {number:g}, expected more than 0 seconds; fix the file")
        return number

    def optional_length_s(self, field: str = "duration") -> float | None:
        """Return the length of a video, or None if the field is missing or null."""
        return None if self.values.get(field) is None else self.length_s(field)

    def sentence(self, field: str) -> str:
        """Return a caption as a single line; raises FeatureError if it is blank."""
        value = self.values[field]
        if not isinstance(value, str) or not value.strip():
            fix = "write a sentence or remove the caption"
            raise FeatureError(f"{self.place}: {field} is {value!r}, expected a sentence; {fix}")
        return single_spaced(value)

    def video_id(self, field: str = "video") -> str:
        """Return a video id; raises FeatureError if it contains white space or `#`, the separator in caption ids."""
        text = str(self.values[field])
        if not text or "#" in text or text.split() != [text]:
            raise FeatureError(
                f"{self.place}: video id {text!r} is empty or contains '#' or white space; rename the video"
            )
        return text

    def kind(self) -> str | None:
        """Return TVR's caption type (v, t or vt), or None if the row has no `type`."""
        kind = self.values.get("type")
        if kind is not None and not isinstance(kind, str):
            raise FeatureError(f"{self.place}: type is {kind!r}, expected v, t or vt; fix the file")
        return kind

    def entries(self, field: str) -> list[Any]:
        """Return the value of a field; raises FeatureError if it is not a list."""
        value = self.values[field]
        if not isinstance(value, list):
            raise FeatureError(f"{self.place}: {field} is {value!r}, expected a list; fix the file")
        return value

    def span(self, value: Any, what: str) -> Span:
        """Return start and end in seconds from a pair of numbers; `what` names the pair in messages."""
        start, end = self.pair(value, what)
        return self._seconds(start, "start"), self._seconds(end, "end")

    def usable_spans(self, field: str, duration_s: float | None) -> tuple[Span, ...]:
        """Return the spans in a field, cut to the video. Spans outside the video are left out."""
        spans = (self.span(value, field) for value in self.entries(field))
        return tuple(moment for span in spans for moment in usable_moment(*span, duration_s))

    def pair(self, value: Any, what: str) -> tuple[Any, Any]:
        """Return the two entries of a list of length two; `what` names the list in messages."""
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise FeatureError(f"{self.place}: {what} is {value!r}, expected a pair [start, end]; fix the file")
        return value[0], value[1]

    def segment_number(self, value: Any) -> int:
        """Return the value if it is a whole number of at least 0; otherwise raise FeatureError."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise FeatureError(f"{self.place}: segment {value!r}, expected 0, 1, 2, ...; download the file again")
        return value

    def moment(self) -> Span | None:
        """Return `start_s` and `end_s`, or None if the row has neither."""
        start = self.values.get("start_s")
        end = self.values.get("end_s")
        if start is None and end is None:
            return None
        start_s = self._seconds(start, "start_s")
        end_s = self._seconds(end, "end_s")
        if not 0 <= start_s < end_s:
            raise FeatureError(
                f"{self.place}: moment from {start_s:g} to {end_s:g} s, expected 0 <= start_s < end_s; fix the line"
            )
        return start_s, end_s

    def _seconds(self, value: Any, what: str) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number):
            expected = "expected a finite number of seconds"
            raise FeatureError(f"{self.place}: {what} is {value!r}, {expected}; fix the file")
        return number
