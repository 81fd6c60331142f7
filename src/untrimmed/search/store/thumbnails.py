"""The thumbnails of a library: one file for each video content, beside the table.

A thumbnail file is named by the hash of the video's content. So it stays valid when the video is moved, and copies of
the video share it. The file is written before the video's row in the table, and never changes. Later writers remove
files without a row.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.errors import UntrimmedError, shown
from untrimmed.files import whole_file
from untrimmed.search.cache.mapped import DamagedError, MappedArrays, remove_damaged_files, write_arrays
from untrimmed.search.store.records import THUMBNAILS, VideoRecord, content_stamp
from untrimmed.video.thumbnails import Thumbnails

_OPEN_FILES = 64
MAX_DISTANCE_S = 0.5  # a picture can be shown for times at most this far from the time of its frame
_EPSILON_S = 1e-6


class StoredThumbnails:
    """The thumbnails of one video, in a memory-mapped file. Thread-safe.

    All methods and properties raise DamagedError if the file is damaged.
    """

    def __init__(self, path: Path):
        """Map the file. Raises DamagedError if it is missing or damaged."""
        self._arrays = MappedArrays(path)

    @cached_property
    def times_s(self) -> Float[np.ndarray, " T"]:
        """The times of the pictures in seconds, in order."""
        return self._arrays["times_s"]

    @property
    def num_bytes(self) -> int:
        """The total size of the pictures in bytes."""
        return int(self._ends[-1])

    def nearest(self, time_s: float) -> int:
        """Return the number of the picture nearest to a time."""
        after = int(np.searchsorted(self.times_s, time_s))
        candidates = range(max(0, after - 1), min(len(self.times_s), after + 1))
        return min(candidates, key=lambda number: abs(self.times_s[number] - time_s))

    def at(self, time_s: float, start_s: float = 0.0, end_s: float = math.inf) -> bytes | None:
        """Return the picture in [`start_s`, `end_s`) that is nearest to a time, as WebP.

        Returns None if there is no such picture, or if it is more than `MAX_DISTANCE_S` away.
        """
        is_inside = (self.times_s >= start_s - _EPSILON_S) & (self.times_s < end_s - _EPSILON_S)
        distances_s = np.where(is_inside, np.abs(self.times_s - time_s), math.inf)
        number = int(np.argmin(distances_s))
        return self.picture(number) if distances_s[number] <= MAX_DISTANCE_S + _EPSILON_S else None

    def picture(self, number: int) -> bytes:
        """Return the picture with this number, counted from 0, as WebP."""
        row = int(self._rows[number])
        start = int(self._ends[row - 1]) if row else 0
        return self._arrays.row_range("webp", start, int(self._ends[row])).tobytes()

    @cached_property
    def _rows(self) -> np.ndarray:
        return self._arrays["rows"]

    @cached_property
    def _ends(self) -> np.ndarray:
        return self._arrays["ends"]


class ThumbnailFiles:
    """The thumbnail files of a library. Recently used files stay memory-mapped. Thread-safe."""

    def __init__(self, library: Path) -> None:
        self._library = library
        # content stamp -> file, in the order of the last use; stamps change when a video is indexed again
        self._open: OrderedDict[str, StoredThumbnails] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, record: VideoRecord) -> StoredThumbnails | None:
        """Return the thumbnails of a video, or None if it has none or their file is damaged."""
        stamp = content_stamp(record)
        with self._lock:
            if (video := self._open.get(stamp)) is not None:
                self._open.move_to_end(stamp)
                return video
        video = open_thumbnails(self._library, record.content_hash)
        if video is not None:
            with self._lock:
                self._open[stamp] = video
                if len(self._open) > _OPEN_FILES:
                    self._open.popitem(last=False)
        return video

    def at(self, record: VideoRecord, time_s: float, start_s: float = 0.0, end_s: float = math.inf) -> bytes | None:
        """Return the picture in [`start_s`, `end_s`) that is nearest to a time, as WebP.

        Returns None if no such picture is within 0.5 s. A time after the end of the video is treated as its end.
        """
        try:
            video = self.of(record)
            return None if video is None else video.at(min(time_s, record.duration_s), start_s, end_s)
        except DamagedError:
            return None


def thumbnails_file(library: Path, content_hash: str) -> Path:
    """Return the path of the thumbnails of a video with this content hash. The file may not exist."""
    return library / THUMBNAILS / content_hash


def open_thumbnails(library: Path, content_hash: str) -> StoredThumbnails | None:
    """Return the thumbnails of a video with this content hash, or None if there are none or the file is damaged."""
    path = thumbnails_file(library, content_hash)
    if not path.is_file():
        return None
    with contextlib.suppress(DamagedError):
        return StoredThumbnails(path)
    return None


def write_thumbnails(library: Path, content_hash: str, thumbnails: Thumbnails) -> None:
    """Write the thumbnails of the video with this content hash, atomically.

    Raises:
        UntrimmedError: The disk is full or read-only.
    """
    path = thumbnails_file(library, content_hash)
    arrays = {
        "times_s": thumbnails.times_s,
        "rows": np.array(thumbnails.rows, dtype=np.int64),
        "ends": np.cumsum([len(picture) for picture in thumbnails.pictures], dtype=np.int64),
        "webp": np.frombuffer(b"".join(thumbnails.pictures), dtype=np.uint8),
    }
    try:
        write_arrays(path, arrays)
    except OSError as error:
        raise _write_error(path, error) from error


def copy_thumbnails(source: Path, target: Path, content_hashes: Iterable[str]) -> None:
    """Copy the thumbnails with these content hashes to another library, unless it already has them.

    If both libraries are on the same file system, they share the files (hard links).
    """
    for content_hash in content_hashes:
        old = thumbnails_file(source, content_hash)
        new = thumbnails_file(target, content_hash)
        if not old.is_file() or new.is_file():
            continue
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # another file system, or one without hard links
                os.link(old, new)
                continue
            with whole_file(new) as temporary:
                shutil.copyfile(old, temporary)
        except OSError as error:
            raise _write_error(new, error) from error


def remove_unused_thumbnails(library: Path, content_hashes: Iterable[str]) -> None:
    """Remove all thumbnails except those with these content hashes. The caller holds the writer's lock."""
    used = set(content_hashes)
    with contextlib.suppress(OSError):  # the library may have no folder of thumbnails
        for file in (library / THUMBNAILS).iterdir():
            if file.name not in used:
                file.unlink(missing_ok=True)


def remove_damaged_thumbnails(library: Path) -> list[Path]:
    """Verify every byte of the thumbnails, remove damaged files, and return their paths."""
    return remove_damaged_files(sorted((library / THUMBNAILS).glob("[!.]*")))


def _write_error(path: Path, error: OSError) -> UntrimmedError:
    return UntrimmedError(
        f"{shown(path)}: cannot be written ({error.strerror}); free space or change the folder's permissions, then run "
        "the same command again (finished work is not lost)"
    )
