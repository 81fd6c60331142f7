"""Store the hits of the last search in the library, so that commands can name a hit by its number."""

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
from untrimmed.errors import ConfigError, UnknownNameError, shown
from untrimmed.files import write_whole
from untrimmed.search.query.hits import Hit

_FILE = "last_search.json"


def remember(library: Path, hits: Iterable[Hit], sentence: str = "", query: str = "") -> None:
    """Store the hits of a search in the library, or in the user's cache if the library is read-only.

    The hits of earlier searches are deleted. If there are no hits, `query` is stored, to name the search in an error.
    It defaults to `sentence`.
    """
    documents = [{**hit.to_json(rank), "sentence": sentence} for rank, hit in enumerate(hits, start=1)]
    text = json.dumps(documents or {"without_hits": query or sentence})
    library_file = library / _FILE
    cache_file = _cache_file(library)
    try:
        write_whole(library_file, text)
        if os.path.exists(cache_file):
            cache_file.unlink()
        return
    except OSError:  # the library is read-only, or the disk is full (then older hits can still be deleted)
        with contextlib.suppress(OSError):
            library_file.unlink()
    try:
        write_whole(cache_file, text)
    except OSError:  # the search itself worked, so failing to store its hits is only a warning
        with contextlib.suppress(OSError):
            cache_file.unlink()
        print_marked(
            "warning:", "yellow", " the hit numbers could not be saved; use untrimmed cut FILE@START-END instead"
        )


def _cache_file(library: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.abspath(library))).hexdigest()[:16]
    return platformdirs.user_cache_path("untrimmed") / "last_search" / f"{name}.json"


@dataclass(frozen=True)
class NumberedMoment:
    """A moment of the last search, with the number that the user typed and the sentence of the search."""

    number: str  # the number of a hit (3) or of one of its moments (3.2)
    video: Path
    start_s: float
    end_s: float
    sentence: str = ""
    has_passage: bool = False  # whether it contains words that are said or written


def recall(library: Path, numbers: str) -> list[NumberedMoment]:
    """Return the moments of the last search with the given numbers, in the given order.

    Examples of `numbers`: "3", "1-5" or "2,4.2" (the second hit, and the second moment of the fourth hit).

    Raises:
        UnknownNameError: The last search has no such hit.
        ConfigError: The numbers cannot be parsed, or the file is damaged.
    """
    cache_file = _cache_file(library)
    file = cache_file if os.path.exists(cache_file) else library / _FILE
    if not os.path.exists(file):
        raise UnknownNameError(f"hit {numbers}: no hits of a search in {library} are saved; search first")
    hits = _read(file, numbers)
    pairs = (pair for part in numbers.split(",") for pair in _parse(part.strip()))
    return [_recall(library, hits, rank, moment) for rank, moment in pairs]


def _parse(part: str) -> Iterable[tuple[int, int | None]]:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})|\.(\d{1,9}))?", part)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise ConfigError(f"{part!r} is not a hit; write 3, 3.2, 1-5 or FILE@START-END")
    if match[2]:
        return ((rank, None) for rank in range(int(match[1]), int(match[2]) + 1))
    return [(int(match[1]), int(match[3]) if match[3] else None)]


def _read(file: Path, numbers: str) -> list[tuple[Hit, str]]:
    """Return the stored hits, each with the sentence of the search.

    Raises:
        UnknownNameError: The search had no hits. The message names the search and the requested `numbers`.
        ConfigError: The file is damaged.
    """
    try:
        documents = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(documents, dict):
            query = shown(Path(str(documents["without_hits"])))
            raise UnknownNameError(f"hit {numbers}: the last search ({query}) found nothing; search again")
        return [(Hit.from_json(document), str(document.get("sentence", ""))) for document in documents]
    # the file is unreadable, not JSON, or JSON of another form
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(f"{file}: the hits of the last search cannot be read; search again") from None


def _recall(library: Path, hits: list[tuple[Hit, str]], rank: int, moment: int | None) -> NumberedMoment:
    number = f"{rank}" if moment is None else f"{rank}.{moment}"
    if not 1 <= rank <= len(hits) or not 1 <= (moment or 1) <= len(hits[rank - 1][0].moments):
        count = f"{len(hits)} hit{'s' if len(hits) != 1 else ''}"
        raise UnknownNameError(f"hit {number}: no such hit, the last search in {library} has {count}; search again")
    hit, sentence = hits[rank - 1]
    span = hit.best if moment is None else hit.moments[moment - 1]
    return NumberedMoment(number, hit.video, span.start_s, span.end_s, sentence, span.has_passage)
