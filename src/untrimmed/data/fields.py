"""The rows of annotation files: lines read, fields checked, each message with the file and line."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untrimmed.data.annotations import Span, one_line, usable_moment
from untrimmed.errors import FeatureError
from untrimmed.files import write_whole


def open_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines of a UTF-8 file, gzip or not, numbered from 1; raises FeatureError if unreadable."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise FeatureError(f"{path}: no such file; check the path") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FeatureError(f"{path}: cannot be read as text ({error}); download or write the file again") from error


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; raises FeatureError if the file cannot be read or is not JSON."""
    try:
        return json.loads("".join(line for _, line in open_lines(path)))
    except json.JSONDecodeError as error:
        raise FeatureError(f"{path}: not JSON ({error}); download the file again") from error


def read_rows(path: Path, required: Sequence[str]) -> Iterator[Row]:
    """Yield each line of a JSON-lines file; a FeatureError names a line that is no object or lacks a required field."""
    for number, line in open_lines(path):
        place = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise FeatureError(f"{place}: not JSON ({error.msg}); each line must be one JSON object") from error
        yield Row.of(values, place, required)


def read_table(path: Path, required: Sequence[str]) -> Iterator[Row]:
    """Yield each row of a CSV file; a FeatureError names file and line if a required column is missing or empty."""
    numbered = list(open_lines(path))
    table = csv.DictReader(line for _, line in numbered)
    try:
        for values in table:
            place = f"{path}, line {numbered[table.line_num - 1][0]}"
            missing = [column for column in required if not values.get(column)]
            if missing:
                found = ", ".join(filter(None, table.fieldnames or ()))
                raise FeatureError(f"{place}: no {missing[0]!r}, columns are {found}; is it the file of this data set?")
            yield Row(values, place)
    except csv.Error as error:
        place = f"{path}, line {numbered[table.reader.line_num - 1][0]}"
        raise FeatureError(f"{place}: not CSV ({error}); download the file again") from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON-lines file, whole or not at all."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


@dataclass(frozen=True)
class Row:
    """One object of an annotation file. Every method raises a FeatureError that names the place and the field."""

    values: Mapping[str, Any]
    place: str  # file and line, or video

    @classmethod
    def of(cls, values: Any, place: str, required: Sequence[str]) -> Row:
        """The row of a value that must be an object with the required fields."""
        if not isinstance(values, dict):
            wanted = f"an object with {', '.join(required)}" if required else "an object"
            raise FeatureError(f"{place}: found {type(values).__name__}, wanted {wanted}")
        missing = [field for field in required if field not in values]
        if missing:
            found = ", ".join(values) or "none"
            raise FeatureError(f"{place}: no field {missing[0]!r}, found {found}; is it this data set?")
        return cls(values, place)

    def length_s(self, field: str = "duration") -> float:
        """The length of a video: a number of seconds above 0."""
        number = self._seconds(self.values[field], field)
        if number <= 0:
            raise FeatureError(f"{self.place}: {field} is {number:g}, wanted more than 0 seconds; correct the file")
        return number

    def known_length_s(self, field: str = "duration") -> float | None:
        """The length of a video, None where the field is missing or null."""
        return None if self.values.get(field) is None else self.length_s(field)

    def sentence(self, field: str) -> str:
        """A caption in one line: text that says something."""
        value = self.values[field]
        if not isinstance(value, str) or not value.strip():
            fix = "write one or remove the caption"
            raise FeatureError(f"{self.place}: {field} is {value!r}, wanted a sentence; {fix}")
        return one_line(value)

    def video_id(self, field: str = "video") -> str:
        """A video id that the field's files can hold: no `#`, which ends it in a caption id, and no white space."""
        text = str(self.values[field])
        if not text or "#" in text or text.split() != [text]:
            raise FeatureError(
                f"{self.place}: video id {text!r} is empty or holds '#' or white space; rename the video"
            )
        return text

    def kind(self) -> str | None:
        """TVR's `type`, where the row has one."""
        kind = self.values.get("type")
        if kind is not None and not isinstance(kind, str):
            raise FeatureError(f"{self.place}: type is {kind!r}, wanted v, t or vt; correct the file")
        return kind

    def entries(self, field: str) -> list[Any]:
        """A list."""
        value = self.values[field]
        if not isinstance(value, list):
            raise FeatureError(f"{self.place}: {field} is {value!r}, wanted a list; correct the file")
        return value

    def span(self, value: Any, what: str) -> Span:
        """A pair of seconds."""
        start, end = self.pair(value, what)
        return self._seconds(start, "start"), self._seconds(end, "end")

    def usable_spans(self, field: str, duration_s: float | None) -> tuple[Span, ...]:
        """What lies inside the video of a list of pairs of seconds."""
        spans = (self.span(value, field) for value in self.entries(field))
        return tuple(moment for span in spans for moment in usable_moment(*span, duration_s))

    def pair(self, value: Any, what: str) -> tuple[Any, Any]:
        """A list of two."""
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise FeatureError(f"{self.place}: {what} is {value!r}, wanted a pair [start, end]; correct the file")
        return value[0], value[1]

    def segment_number(self, value: Any) -> int:
        """A whole number from 0."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise FeatureError(f"{self.place}: {value!r} is no segment number; download the file again")
        return value

    def moment(self) -> Span | None:
        """The seconds of `start_s` and `end_s`, the former before the latter; None where neither is given."""
        start = self.values.get("start_s")
        end = self.values.get("end_s")
        if start is None and end is None:
            return None
        start_s = self._seconds(start, "start_s")
        end_s = self._seconds(end, "end_s")
        if not 0 <= start_s < end_s:
            raise FeatureError(
                f"{self.place}: moment from {start_s:g} to {end_s:g} s, wanted 0 <= start_s < end_s; correct the line"
            )
        return start_s, end_s

    def _seconds(self, value: Any, what: str) -> float:
        """A finite number."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number):
            wanted = "wanted a finite number of seconds"
            raise FeatureError(f"{self.place}: {what} is {value!r}, {wanted}; correct the file")
        return number
