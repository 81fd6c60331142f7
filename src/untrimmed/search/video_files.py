"""Which files an indexing run looks at, and how their content is recognised."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from untrimmed.errors import UntrimmedError, shown
from untrimmed.search.video_names import absolute
from untrimmed.video.reader import is_video_path


@dataclass(frozen=True)
class FoundVideos:
    """The files that an indexing run looks at, and the linked folders that it did not enter, absolute."""

    files: tuple[Path, ...]
    linked: tuple[Path, ...]


def find_videos(paths: Iterable[Path]) -> FoundVideos:
    """The video files named or found below the folders named, sorted; hidden folders are left out.

    A file that is named is taken whatever its suffix; below a folder the suffix decides. A folder that cannot be read
    stands among the files itself, so that it is reported as what could not be indexed. A link to a folder is entered
    where it is named; one that is met below a folder is not, and listed if it leads out of all folders named.

    Raises:
        UntrimmedError: A path does not exist, or cannot be looked at.
    """
    files: dict[Path, None] = {}
    links: dict[Path, None] = {}
    roots: list[str] = []
    for path in map(absolute, paths):
        try:
            path.lstat()
        except FileNotFoundError:
            raise UntrimmedError(f"{shown(path)}: no such file or folder; check the path") from None
        except OSError as error:
            raise UntrimmedError(f"{shown(path)}: cannot be read ({error.strerror}); check the path") from None
        if path.is_dir():
            roots.append(os.path.realpath(path))
            files.update(dict.fromkeys(_walk(path, links)))
        else:
            files[path] = None
    outside = [link for link in links if not any(Path(os.path.realpath(link)).is_relative_to(root) for root in roots)]
    return FoundVideos(tuple(files), tuple(outside))


def _walk(folder: Path, links: dict[Path, None]) -> Iterator[Path]:
    unreadable: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links.update((Path(parent, name), None) for name in folders if os.path.islink(os.path.join(parent, name)))
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
