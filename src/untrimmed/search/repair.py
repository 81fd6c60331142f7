"""Look at every byte of a library and remove what is damaged; what was derived from its table is laid out again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from untrimmed.search.cache.snapshot import remove_damaged
from untrimmed.search.corpora.engine import keep_laid_out
from untrimmed.search.store.records import VideoRecord, read_settings, remove_damaged_copy
from untrimmed.search.store.table import VideoIndex


@dataclass(frozen=True)
class Repaired:
    """What was damaged and is removed: derived files, and videos, which have to be indexed again.

    What the files held is in the table. Those of the same name that are there now are new.
    """

    files: tuple[Path, ...]
    videos: tuple[VideoRecord, ...]


def repair(folder: Path) -> Repaired:
    """Check a library whole, and put right what can be.

    Raises:
        UntrimmedError: There is no library, or its settings or its table cannot be read at all.
        IndexBusyError: Another process is writing to it.
    """
    with VideoIndex(folder) as index:
        read_settings(folder)  # nothing is put right beside what cannot be
        files = (*remove_damaged_copy(folder), *remove_damaged(folder))
        videos = index.damaged()
        index.remove([record.video_id for record in videos])
    keep_laid_out(folder)
    return Repaired(files, tuple(videos))
