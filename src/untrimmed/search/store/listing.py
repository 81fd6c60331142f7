"""The videos of a library without its table, and which of their files are gone for good.

A video may only seem to be gone because its drive is not mounted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from untrimmed.search.store.records import VideoRecord, newest_commit, read_copy, settings_file

# Where drives and shares are mounted, and how many levels below they begin at most: /media/USB, /media/me/USB.
_DRIVES = {
    "/": 1, "/mnt": 1, "/Volumes": 1, "/media": 2, "/run/media": 2,
    "/net": 2, "/autofs": 2, "/misc": 2, "/run/user": 3,
}  # fmt: skip


def read_records(folder: Path) -> list[VideoRecord]:
    """Return all records by path: from the copy if nothing was committed since, else from the table.

    Raises:
        UntrimmedError: There is no library, or it cannot be opened.
    """
    commit = newest_commit(folder)
    if commit is not None and settings_file(folder).exists() and (copied := read_copy(folder, commit)) is not None:
        return copied
    from untrimmed.search.store.table import VideoIndex

    return VideoIndex(folder).scan()


def is_gone(path: str) -> bool:
    """Whether there is surely no file; a drive that answers with an error tells nothing."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def find_gone(records: Sequence[VideoRecord]) -> tuple[list[VideoRecord], dict[Path, list[VideoRecord]]]:
    """The videos whose files are no longer there, and by its folder those of which a whole root is missing.

    A root is missing where a folder holds nothing, as a drive leaves it that is not mounted, where a link leads
    nowhere, or where it is not there and lies where drives are mounted or in a folder below which the library has no
    video that is still there. A film at the top of a drive's folder is missing where no other is left below it.
    """
    lost = [record for record in records if is_gone(record.path)]
    there = {record.path for record in records} - {record.path for record in lost}
    alive = {folder for path in there for name in (path, os.path.realpath(path)) for folder in Path(name).parents}
    gone: list[VideoRecord] = []
    missing: dict[Path, list[VideoRecord]] = {}
    for record in lost:
        root = _missing_root(Path(record.path), alive)
        (gone if root is None else missing.setdefault(root, [])).append(record)
    return gone, missing


def _missing_root(path: Path, alive: set[Path]) -> Path | None:
    top, folder = path, path.parent
    while not folder.is_dir() and folder != folder.parent:
        top, folder = folder, folder.parent
    if top.is_symlink():
        return top
    places = {folder, Path(os.path.realpath(folder))}  # as it is named, and where links on the way lead
    is_alive = not places.isdisjoint(alive)
    if _is_empty(folder) and not is_alive:
        return folder if top == path else top
    if top != path:
        return top if not is_alive or any(map(_holds_drives, places)) else None
    return folder if not is_alive and any(_holds_drives(place.parent) for place in places) else None


def _holds_drives(folder: Path) -> bool:
    """Whether drives are mounted in this folder."""
    above = (folder, *folder.parents)
    return any(Path(place) in above[:depth] for place, depth in _DRIVES.items())


def _is_empty(folder: Path) -> bool:
    """Whether it holds nothing that can be seen; a `.keep` often lies where a drive is to be mounted."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except OSError:
        return False
