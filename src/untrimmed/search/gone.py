"""Which videos are gone for good, and which only seem so because their drive is not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from untrimmed.search.records import VideoRecord

_DRIVES = tuple(map(Path, ("/", "/mnt", "/media", "/run/media", "/Volumes")))  # or below a user's name in these


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

    A root is missing where a folder is empty, as a drive leaves it that is not mounted, or where it is not there and
    lies where drives are mounted, or in a folder below which the library has no video that is still there.
    """
    lost = [record for record in records if is_gone(record.path)]
    there = {record.path for record in records} - {record.path for record in lost}
    alive = {folder for path in there for folder in Path(path).parents}
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
    if _is_empty(folder):
        return folder if top == path else top
    is_drive = folder in _DRIVES or folder.parent in _DRIVES[2:4]
    return top if top != path and (is_drive or folder not in alive) else None


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False
