"""Where the hits of the last search in a library are, kept beside it so that a hit can be named by its number."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from untrimmed.cli.console import print_marked
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.files import write_whole
from untrimmed.search.query.hits import Hit

_FILE = "last_search.json"


def remember(library: Path, hits: Iterable[Hit]) -> None:
    """Keep these hits: in the user's cache where the library cannot be written to, and never older ones."""
    text = json.dumps([hit.to_json(rank) for rank, hit in enumerate(hits, start=1)])
    beside, cached = library / _FILE, _in_cache(library)
    try:
        write_whole(beside, text)
        if os.path.exists(cached):
            cached.unlink()
        return
    except OSError:  # a full disk, which still lets files be deleted, or a library that is read-only
        with contextlib.suppress(OSError):
            beside.unlink()
    try:
        write_whole(cached, text)
    except OSError:  # the hits themselves are worth more than their numbers
        with contextlib.suppress(OSError):
            cached.unlink()
        print_marked(
            "warning:", "yellow", " these hits cannot be remembered; cut them by FILE@START-END, not by number"
        )


def _in_cache(library: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.abspath(library))).hexdigest()[:16]
    return platformdirs.user_cache_path("untrimmed") / "last_search" / f"{name}.json"


@dataclass(frozen=True)
class Remembered:
    """A hit of the last search, or one of its moments, by the number that named it."""

    number: str  # 3 or 3.2
    video: Path
    start_s: float
    end_s: float


def recall(library: Path, numbers: str) -> list[Remembered]:
    """The hits "3", "1-5" or "2,4.2" (the fourth hit's second moment), in the order named.

    Raises:
        UnknownNameError: There was no such hit.
        ConfigError: They are not numbers of that form, or the file is damaged.
    """
    cached = _in_cache(library)
    file = cached if os.path.exists(cached) else library / _FILE
    if not os.path.exists(file):
        raise UnknownNameError(f"hit {numbers}: no search in {library} is remembered; search again")
    hits = _read(file)
    wanted = (one for part in numbers.split(",") for one in _parse(part.strip()))
    return [_recall(library, hits, rank, moment) for rank, moment in wanted]


def _parse(part: str) -> Iterable[tuple[int, int | None]]:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})|\.(\d{1,9}))?", part)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise ConfigError(f"hit {part!r} is not understood; write 3, 3.2, 1-5 or FILE@START-END")
    if match[2]:
        return ((rank, None) for rank in range(int(match[1]), int(match[2]) + 1))
    return [(int(match[1]), int(match[3]) if match[3] else None)]


def _read(file: Path) -> list[Hit]:
    try:
        return [Hit.from_json(found) for found in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # not there, no JSON, or JSON of another form
        raise ConfigError(f"{file}: cannot be read as the last search; search again") from None


def _recall(library: Path, hits: list[Hit], rank: int, moment: int | None) -> Remembered:
    number = f"{rank}" if moment is None else f"{rank}.{moment}"
    if not 1 <= rank <= len(hits) or not 1 <= (moment or 1) <= len(hits[rank - 1].moments):
        found = f"{len(hits)} hit{'s' if len(hits) != 1 else ''}"
        raise UnknownNameError(f"hit {number}: the last search in {library} gave {found}; search again")
    hit = hits[rank - 1]
    span = hit.moments[(moment or 1) - 1]
    return Remembered(number, hit.video, span.start_s, span.end_s)
