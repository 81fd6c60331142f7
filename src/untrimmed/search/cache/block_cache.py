"""Disk cache of a library's blocks. Other processes memory-map it instead of building the blocks from the table.

There are three kinds of files. If they are missing or damaged, they can be built again from the table:

- A block contains arrays of several videos. A video in it is valid as long as its stamp in the block matches its
  record.
- The codes of a block are its vectors, projected on axes and quantized. The name of the file contains a digest of the
  block and a digest of the axes.
- The axes, which all codes share.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from untrimmed.search.cache.blocks import Block
from untrimmed.search.cache.mapped import DamagedError, MappedArrays, remove_damaged_files, write_arrays
from untrimmed.search.store.records import Records, VideoRecord, content_stamp

FOLDER = "cache"
_BLOCK = ".block"
_CODES = ".codes"
_AXES = ".axes"
_STAMPS = "contents"  # name of the array with the content stamps of the videos


Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class CodeFiles:
    """The paths of a block's codes and of their axes. A path is None if the file does not exist."""

    axes: Path | None = None
    codes: Path | None = None


class CachedBlock(NamedTuple):
    """The arrays of a cached block, a mask of the videos that are still valid, and the files of its codes."""

    arrays: Arrays
    present: Bool[np.ndarray, " V"]
    codes: CodeFiles


class BlockCache:
    """A library's cached blocks in one format (`LocalCorpus.block_format`). Any number of processes may use it."""

    def __init__(self, library: Path, block_format: str):
        self.folder = library / FOLDER / block_format.partition(" ")[0]
        self._block_format = block_format

    def read(self, records: Records, damaged: Iterable[Path] = ()) -> Iterator[CachedBlock]:
        """Yield the blocks with valid videos, largest first. Each video is valid in at most one of them.

        Files in `damaged` and other damaged files are skipped.
        """
        damaged = set(damaged)
        stamps = {record.video_id: self._stamp(record) for record in records}
        blocks = []
        for path in self.paths() - damaged:
            with contextlib.suppress(DamagedError, KeyError):
                block = MappedArrays(path)
                blocks.append((block, block["ids"].tolist(), block[_STAMPS].tolist()))
        axes = min(self.paths(_AXES) - damaged, default=None)
        codes = self.paths(_CODES) - damaged
        for arrays, ids, stored in sorted(blocks, key=lambda item: (-len(item[1]), item[0].path.name)):
            present = np.array([stamps.get(video_id) == stamp for video_id, stamp in zip(ids, stored, strict=True)])
            for row in np.flatnonzero(present).tolist():
                del stamps[ids[row]]
            if present.any():
                codes_path = self._codes_path(arrays, axes) if axes else None
                yield CachedBlock(arrays, present, CodeFiles(axes, codes_path if codes_path in codes else None))

    def write(self, blocks: Iterable[Arrays], records: Records) -> bool:
        """Write blocks, and return whether this succeeded. The files of all other blocks and their codes are removed.

        Writing fails if another process is writing, the disk is full, or the folder is read-only.
        """

        def write() -> None:
            current = {self._write_block(block, records) for block in blocks}
            names = {path.stem for path in current}
            codes = {path for path in self.paths(_CODES) if path.name.partition(".")[0] not in names}
            # This process holds the lock, so temporary files are those of killed processes.
            temporary = self.folder.glob(".*.*.*")
            _remove([*(self.paths() - current), *codes, *temporary])

        return self._run_locked(write)

    def write_codes(self, missing: Iterable[tuple[Block, Arrays, Arrays]]) -> None:
        """Write the codes of blocks and their axes, and remove codes for other axes.

        Nothing is written if another process is writing, the disk is full, or the folder is read-only.
        """

        def write() -> None:
            path = None
            for block, codes, axes in missing:
                assert isinstance(block.arrays, MappedArrays), "the block was read from the cache"
                path = path or self._write_axes(axes)
                write_arrays(self._codes_path(block.arrays, path), codes)

        self._run_locked(write)

    def paths(self, suffix: str = _BLOCK) -> set[Path]:
        """Return the cache files with this suffix. By default, return the files of blocks."""
        return set(self.folder.glob(f"[!.]*{suffix}"))

    def _run_locked(self, write: Callable[[], None]) -> bool:
        """Call `write` while holding the lock. Return False if the lock was taken or `write` failed."""
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "lock").acquire(timeout=0):
                write()
        except (OSError, Timeout):
            return False
        return True

    def _write_axes(self, axes: Arrays) -> Path:
        """Write the file of the axes. Remove the files of all other axes, and the codes that use them."""
        new = self.folder / f"new{_AXES}"
        write_arrays(new, axes)
        path = new.replace(new.with_name(f"{MappedArrays(new).digest}{_AXES}"))
        _remove((self.paths(_AXES) - {path}) | {codes for codes in self.paths(_CODES) if path.stem not in codes.name})
        return path

    def _codes_path(self, block: MappedArrays, axes: Path) -> Path:
        return self.folder / f"{block.path.stem}.{block.digest}.{axes.stem}{_CODES}"

    def _write_block(self, block: Arrays, records: Records) -> Path:
        if isinstance(block, MappedArrays) and block.path.is_file():
            return block.path
        ids = block["ids"].tolist()
        # Keep the stamps of a mapped block, because current stamps would make outdated vectors look valid.
        if isinstance(block, MappedArrays):
            stamps = block[_STAMPS].tolist()
        else:
            current = {record.video_id: self._stamp(record) for record in records}
            stamps = [current.get(video_id, "") for video_id in ids]
        name = hashlib.blake2b(repr((ids, stamps)).encode(), digest_size=16).hexdigest()
        path = self.folder / f"{name}{_BLOCK}"
        write_arrays(path, {**block, _STAMPS: np.array(stamps)})
        return path

    def _stamp(self, record: VideoRecord) -> str:
        """Return the content stamp of a video: a digest that changes with its vectors and with the format of blocks."""
        return hashlib.blake2b((content_stamp(record) + self._block_format).encode(), digest_size=8).hexdigest()


def remove_damaged(library: Path) -> list[Path]:
    """Verify every byte of the cached blocks in all formats; remove damaged files and return their paths."""
    paths = sorted((library / FOLDER).glob("*/*"))
    return remove_damaged_files(path for path in paths if path.suffix in (_BLOCK, _CODES, _AXES))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def valid_ids(blocks: Iterable[CachedBlock]) -> Iterator[str]:
    """Yield the ids of the valid videos in these blocks."""
    for block, present, _ in blocks:
        yield from block["ids"][present].tolist()
