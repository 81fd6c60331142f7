"""Which files an indexing run looks at, and how their content is recognised."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event

from untrimmed.errors import UntrimmedError
from untrimmed.video.process import shown
from untrimmed.video.reader import is_video_path


def find_videos(paths: Iterable[Path]) -> list[Path]:
    """The video files named or found below the folders named, sorted and absolute; hidden folders are left out.

    A file that is named is taken whatever its suffix; below a folder the suffix decides. A folder that cannot be read
    stands in the list itself, so that it is reported as what could not be indexed.

    Raises:
        UntrimmedError: A path does not exist, or cannot be looked at.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        path = Path(os.path.abspath(path.expanduser()))
        try:
            path.lstat()
        except FileNotFoundError:
            raise UntrimmedError(f"{shown(path)}: no such file or folder; check the path") from None
        except OSError as error:
            raise UntrimmedError(f"{shown(path)}: cannot be read ({error.strerror}); check the path") from None
        found.update(dict.fromkeys(_walk(path) if path.is_dir() else [path]))
    return list(found)


def _walk(folder: Path) -> Iterator[Path]:
    unreadable: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and is_video_path(Path(parent, name)):
                yield Path(parent, name)
    yield from unreadable


def content_hash(path: Path, stop: Event) -> str:
    """A hash of all bytes of a file (BLAKE2b, 20 bytes); of those read so far once `stop` is set."""
    digest = hashlib.blake2b(digest_size=20)
    with open(path, "rb") as file:
        while not stop.is_set() and (block := file.read(1 << 20)):
            digest.update(block)
    return digest.hexdigest()
