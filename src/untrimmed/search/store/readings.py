"""Readings describe what each source read from each video. A copy of them is in the file `readings.json`.

Reading this file is faster than opening the table of passages. The copy contains only readings with passages or
warnings. If none has passages, searches do not open the table.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untrimmed.passages.passage import TextMode
from untrimmed.search.store.records import PASSAGES, READINGS_COPY, newest_commit, read_copy, version_of, write_copy

if TYPE_CHECKING:
    from untrimmed.passages.source import ReadingReport


def new_reading_id() -> str:
    """Return a random id for a new reading."""
    return uuid.uuid4().hex[:16]


@dataclass(frozen=True)
class StoredReading:
    """What one source read from one video.

    It is valid as long as the video, the source and other files are unchanged.
    """

    video_id: str
    source: str
    mode: TextMode
    identity: str  # `PassageSource.identity` when the source read the video
    encoder: str  # identity of the encoder of the vectors
    content_hash: str  # hash of the video's content
    fingerprint: str = ""  # `PassageSource.fingerprint` of the files beside the video
    num_passages: int = 0
    warnings: tuple[str, ...] = ()
    unread: str = ""  # the warnings about files that could not be read, one per line
    read_at: float = 0.0
    words_version: int = 1  # `WORDS_VERSION` when the words were indexed; older libraries do not store it
    is_removed: bool = False  # whether its passages were removed with `Library.remove_text`
    reading_id: str = field(default_factory=new_reading_id)

    def with_report(self, report: ReadingReport) -> StoredReading:
        """Return the reading with the warnings of a report."""
        return replace(self, warnings=tuple(report.warnings), unread="\n".join(report.unread.values()))


def read_readings_copy(folder: Path, commit: list[Any] | None) -> list[StoredReading] | None:
    """Return the readings with passages or warnings, or None if there is no valid copy for this commit."""
    rows = read_copy(folder / READINGS_COPY, commit)
    try:
        return None if rows is None else [StoredReading(**{**row, "warnings": tuple(row["warnings"])}) for row in rows]
    except (TypeError, KeyError):  # another program wrote the file
        return None


def write_readings_copy(folder: Path, version: int, readings: list[StoredReading]) -> None:
    """Write the copy of the readings, if they belong to the newest version and the folder is writable."""
    with contextlib.suppress(OSError):
        commit = newest_commit(folder, PASSAGES)
        used = [reading for reading in readings if reading.num_passages or reading.warnings]
        if commit is None or version_of(commit) != version or read_readings_copy(folder, commit) == used:
            return
        write_copy(folder / READINGS_COPY, commit, [asdict(reading) for reading in used])
