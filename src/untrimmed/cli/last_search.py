"""Where the hits of the last search in a library are, kept beside it so that a hit can be named by its number."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.files import write_whole

if TYPE_CHECKING:
    from untrimmed.search.library import Hit

_FILE = "last_search.json"


def remember(library: Path, hits: Iterable[Hit]) -> None:
    """Keep where these hits are; beside a library that cannot be written to nothing is kept."""
    spans = [(str(hit.video), [(moment.start_s, moment.end_s) for moment in hit.moments]) for hit in hits]
    with contextlib.suppress(OSError):  # the hits themselves are worth more than their numbers
        write_whole(library / _FILE, json.dumps(spans))


def recall(library: Path, number: str) -> tuple[Path, float, float]:
    """Video, start and end in seconds of hit "3", or of its second moment, "3.2".

    Raises:
        UnknownNameError: There was no such hit.
        ConfigError: It is not a number of that form, or the file is damaged.
    """
    parts = number.split(".")
    if not all(part.isdecimal() for part in parts) or len(parts) > 2:
        raise ConfigError(f"hit {number!r} is not understood; write 3, 3.2 or FILE@START-END")
    rank, moment = int(parts[0]), int(parts[1]) if len(parts) == 2 else 1
    file = library / _FILE
    try:
        spans = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    except (OSError, ValueError):
        raise ConfigError(f"{file}: cannot be read as the last search; search again") from None
    if not 1 <= rank <= len(spans) or not 1 <= moment <= len(spans[rank - 1][1]):
        raise UnknownNameError(f"hit {number}: the last search in {library} gave {len(spans)} hits; search again")
    video, moments = spans[rank - 1]
    return Path(video), *moments[moment - 1]
