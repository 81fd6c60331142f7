"""Read the records of a library without its table, and find videos whose files were deleted.

If a drive is not mounted, its videos are reported as missing, not as deleted.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from untrimmed.search.store.records import VideoRecord, newest_commit, read_copy, settings_file

# Where drives and shares are mounted, and how many levels below at most: /media/USB, /media/me/USB.
_DRIVES = {
    "/": 1, "/mnt": 1, "/Volumes": 1, "/media": 2, "/run/media": 2,
    "/net": 2, "/autofs": 2, "/misc": 2, "/run/user": 3,
}  # fmt: skip


def read_records(folder: Path) -> list[VideoRecord]:
    """Return all records by path: from the copy if it is up to date, otherwise from the table.

    Raises: UntrimmedError if there is no library, or it cannot be opened.
    """
    commit = newest_commit(folder)
    if commit is not None and settings_file(folder).exists() and (records := read_copy(folder, commit)) is not None:
        return records
    from untrimmed.search.store.table import VideoIndex

    return VideoIndex(folder).scan()


def is_gone(path: str) -> bool:
    """Whether a file certainly does not exist. False if the drive returns an error."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def find_gone(records: Sequence[VideoRecord]) -> tuple[list[VideoRecord], dict[Path, list[VideoRecord]]]:
    """Return the videos whose files were deleted, and those that seem to be on a missing drive, by the drive's root.

    A root is missing if it is an empty folder (the mount point of an unmounted drive) or a broken link. A folder that
    does not exist is also a missing root if it is where drives are mounted, or if no other video of the library is
    left beside it. A video at the top of a drive is missing if no other video is left on the drive.
    """
    absent = [record for record in records if is_gone(record.path)]
    present = {record.path for record in records} - {record.path for record in absent}
    alive = {folder for path in present for name in (path, os.path.realpath(path)) for folder in Path(name).parents}
    gone: list[VideoRecord] = []
    missing: dict[Path, list[VideoRecord]] = {}
    for record in absent:
        root = _missing_root(Path(record.path), alive)
        (gone if root is None else missing.setdefault(root, [])).append(record)
    return gone, missing


def _missing_root(path: Path, alive: set[Path]) -> Path | None:
    top = path
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        top = folder
        folder = folder.parent
    if top.is_symlink():
        return top
    places = {folder, Path(os.path.realpath(folder))}  # as written, and with links resolved
    is_alive = not places.isdisjoint(alive)
    if _is_empty(folder) and not is_alive:
        return folder if top == path else top
    if top != path:
        return top if not is_alive or any(map(_holds_drives, places)) else None
    return folder if not is_alive and any(_holds_drives(place.parent) for place in places) else None


def _holds_drives(folder: Path) -> bool:
    """Whether drives are mounted in this folder."""
    ancestors = (folder, *folder.parents)
    return any(Path(place) in ancestors[:depth] for place, depth in _DRIVES.items())


def _is_empty(folder: Path) -> bool:
    """Whether a folder has only hidden files; mount points often have a `.keep`."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except OSError:
        return False
