"""The records of a library, without its table where a copy of them is up to date."""

from __future__ import annotations

from pathlib import Path

from untrimmed.search.store.records import VideoRecord, newest_commit, read_copy, settings_file


def read_records(folder: Path) -> list[VideoRecord]:
    """All records by path: from the copy if nothing was committed since, else from the table.

    Raises:
        UntrimmedError: There is no library, or it cannot be opened.
    """
    commit = newest_commit(folder)
    if commit is not None and settings_file(folder).exists() and (copied := read_copy(folder, commit)) is not None:
        return copied
    from untrimmed.search.store.table import VideoIndex

    return VideoIndex(folder).scan()
