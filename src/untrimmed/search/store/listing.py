"""Read the records of a library without opening its table, and find videos whose files were deleted.

Videos on a drive that is not mounted count as missing, not as deleted.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from untrimmed.search.store.readings import StoredReading, read_readings_copy
from untrimmed.search.store.records import (
    PASSAGES,
    Records,
    VideoRecord,
    newest_commit,
    read_records_copy,
    settings_file,
)

# Folders in which drives and network shares are mounted, and how many levels below them mount points can be: 2 for
# /media, as in /media/USB and /media/me/USB.
_DRIVES = {
    "/": 1, "/mnt": 1, "/Volumes": 1, "/media": 2, "/run/media": 2,
    "/net": 2, "/autofs": 2, "/misc": 2, "/run/user": 3,
}  # fmt: skip


def read_records(folder: Path) -> list[VideoRecord]:
    """Return all records sorted by path. They are read from `records.json` if it is valid, otherwise from the table.

    Raises:
        UntrimmedError: There is no library, or it cannot be opened.
    """
    commit = newest_commit(folder)
    if (
        commit is not None
        and settings_file(folder).exists()
        and (records := read_records_copy(folder, commit)) is not None
    ):
        return records
    from untrimmed.search.store.table import VideoIndex

    return VideoIndex(folder).scan()


def read_readings(folder: Path) -> list[StoredReading]:
    """Return the readings with passages or warnings.

    They are read from `readings.json` if it is valid, otherwise from the table.
    """
    commit = newest_commit(folder, PASSAGES)
    if commit is None:
        return []
    readings = read_readings_copy(folder, commit)
    if readings is None:
        from untrimmed.search.store.passages import PassageTable

        readings = [reading for reading in PassageTable(folder).readings() if reading.num_passages or reading.warnings]
    return readings


def path_of(folder: Path, name: str) -> Path:
    """Return the path `name` if it exists, otherwise the path of the library's video with this name.

    If there is no such video, `name` is returned as a path.

    Raises:
        UnknownNameError: Several videos have this name.
    """
    path = Path(name)
    if os.path.lexists(path) or not settings_file(folder).exists():
        return path
    record = Records(read_records(folder)).find(name)
    return path if record is None else Path(record.path)


def is_deleted(path: str) -> bool:
    """Whether a file certainly does not exist. If the drive returns an error, the result is False."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def find_deleted(records: Sequence[VideoRecord]) -> tuple[list[VideoRecord], dict[Path, list[VideoRecord]]]:
    """Return the videos whose files were deleted, and the videos on each missing drive, by the root of the drive.

    A missing file counts as being on a missing drive in these cases:

    - The topmost missing folder of its path, or the file itself, is a broken link.
    - A folder of its path is missing, and drives are mounted beside the topmost missing folder. Or the parent of that
      folder contains no existing video of the library.
    - Only the file is missing. Its folder contains no existing video of the library, and is empty or beside mounted
      drives.

    The root of the drive is the topmost missing folder, or in the last case the file's folder.
    """
    absent = [record for record in records if is_deleted(record.path)]
    present = {record.path for record in records} - {record.path for record in absent}
    in_use = {folder for path in present for name in (path, os.path.realpath(path)) for folder in Path(name).parents}
    deleted: list[VideoRecord] = []
    missing: dict[Path, list[VideoRecord]] = {}
    for record in absent:
        root = _missing_root(Path(record.path), in_use)
        (deleted if root is None else missing.setdefault(root, [])).append(record)
    return deleted, missing


def _missing_root(path: Path, in_use: set[Path]) -> Path | None:
    """Return the root of the missing drive that contained a file, or None if the file was deleted.

    `in_use` contains all folders with existing videos of the library, and all parents of these folders.
    """
    top = path
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        top = folder
        folder = folder.parent
    if top.is_symlink():
        return top
    folders = {folder, Path(os.path.realpath(folder))}  # the folder as written, and with links resolved
    is_in_use = not folders.isdisjoint(in_use)
    if _is_empty(folder) and not is_in_use:
        return folder if top == path else top
    if top != path:
        return top if not is_in_use or any(map(_contains_drives, folders)) else None
    return folder if not is_in_use and any(_contains_drives(name.parent) for name in folders) else None


def _contains_drives(folder: Path) -> bool:
    """Whether drives are mounted in this folder."""
    ancestors = (folder, *folder.parents)
    return any(Path(root) in ancestors[:depth] for root, depth in _DRIVES.items())


def _is_empty(folder: Path) -> bool:
    """Whether a folder has no files or only hidden ones, such as `.keep` in a mount point."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except OSError:
        return False
