"""Which files an indexing run looks at, and how their content is recognised."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from untrimmed.errors import FeatureError, UntrimmedError, shown
from untrimmed.search.store.records import VideoRecord, absolute
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


@dataclass(frozen=True)
class FoundFile:
    """A file as it was when its turn came."""

    path: Path
    size: int
    mtime_ns: int
    digest: str = ""  # of its content; empty for what is no regular file

    def require_unchanged(self) -> None:
        """Raise a FeatureError if it is not the one that was hashed: its frames would stand for other content."""
        stat = self.path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            raise FeatureError(f"{shown(self.path)}: changed while it was read; index it again when it is complete")


def recognise(path: Path, known: VideoRecord | None, sampling: str, stop: Event) -> FoundFile:
    """The file with its content's hash, unread if it lies as the library knows it and was sampled like this.

    Raises:
        FeatureError: Its name is no text.
        OSError: It cannot be read.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise FeatureError(f"{shown(path)}: its name is not valid UTF-8, which the index needs; rename it") from None
    stat = path.stat()
    file = FoundFile(path, stat.st_size, stat.st_mtime_ns)
    if known is not None and known.sampling == sampling and (known.size, known.mtime_ns) == (file.size, file.mtime_ns):
        return replace(file, digest=known.content_hash)
    if path.is_dir():
        os.scandir(path).close()  # says why a folder cannot be read
    # The reader refuses anything but regular files, unread.
    return replace(file, digest=content_hash(path, stop) if path.is_file() else "")


def why_unusable(path: Path, error: FeatureError | OSError) -> str:
    """The reason for a report, in one line."""
    if isinstance(error, FeatureError):
        return str(error)
    return f"{shown(path)}: cannot be read ({error.strerror}); check that it is there and readable"


def content_hash(path: Path, stop: Event) -> str:
    """A hash of all bytes of a file (BLAKE2b, 20 bytes); of those read so far once `stop` is set."""
    digest = hashlib.blake2b(digest_size=20)
    with open(path, "rb") as file:
        while not stop.is_set() and (block := file.read(1 << 20)):
            digest.update(block)
    return digest.hexdigest()
