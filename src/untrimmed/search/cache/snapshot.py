"""What corpora have laid out, kept beside the table, so that another process maps it instead of laying it out again.

A block of a corpus is a file of arrays. It can be missing or damaged at any time, for the table has all that it was
made of. Each video in it counts for as long as its record says the same of its vectors. Codes of a block are a file of
their own, whose name says of which block they are, to the bit, and by which axes; these are one more, the same for all.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool

from untrimmed.search.cache.blocks import Block, gathered
from untrimmed.search.cache.mapped import DamagedError, MappedArrays, write_arrays
from untrimmed.search.store.records import Records, VideoRecord, content_stamp

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

FOLDER = "laid_out"
_SUFFIX, _CODES, _AXES = ".block", ".codes", ".axes"
_CONTENTS = "contents"  # what each video's record says of its vectors
_FRAMES_AT_A_TIME = 2**18  # about as many are in memory while they are laid out


Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class CodeFiles:
    """The files of a block's codes and of the axes that all codes of a library share, where they exist."""

    axes: Path | None = None
    codes: Path | None = None


class CachedBlock(NamedTuple):
    """The arrays of a block, which of its videos are still valid, and where its codes are stored."""

    arrays: Arrays
    present: Bool[np.ndarray, " V"]
    codes: CodeFiles


class Cached(Protocol):
    """A corpus that consists of blocks."""

    @property
    def layout(self) -> str:
        """Names the form of the blocks with every setting that it depends on; the first word names a folder."""

    def arrays(self) -> Sequence[Arrays]:
        """Return the arrays of each block."""

    def restored(self, cached: Iterable[CachedBlock]) -> Cached:
        """Return the corpus of blocks that `arrays` gave."""

    def update(self, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> Cached:
        """Return the corpus with more videos and without some."""

    def missing_codes(self) -> Iterable[tuple[Block, Arrays, Arrays]]:
        """Yield each block without codes on disk, with the arrays of its new codes and of the axes."""


class LaidOut:
    """The cached blocks of one library in one layout (`Cached.layout`); any number of processes may use them."""

    def __init__(self, library: Path, layout: str):
        self.folder = library / FOLDER / layout.partition(" ")[0]
        self._layout = layout

    def read(self, records: Records, damaged: Iterable[Path] = ()) -> Iterator[CachedBlock]:
        """Blocks, the largest first, and which of their videos are as the records say; none twice.

        Files that are `damaged`, or turn out so, are passed over.
        """
        damaged = set(damaged)
        wanted = {record.video_id: self._content(record) for record in records}
        found = []
        for path in self.paths() - damaged:
            with contextlib.suppress(DamagedError, KeyError):
                block = MappedArrays(path)
                found.append((block, block["ids"].tolist(), block[_CONTENTS].tolist()))
        axes = min(self.paths(_AXES) - damaged, default=None)
        codes = self.paths(_CODES) - damaged
        for block, ids, contents in sorted(found, key=lambda block: (-len(block[1]), block[0].path.name)):
            present = np.array([wanted.get(v) == content for v, content in zip(ids, contents, strict=True)])
            for row in np.flatnonzero(present).tolist():
                del wanted[ids[row]]
            if present.any():
                own = {self._codes_of(block, axes)} & codes if axes else set()
                yield CachedBlock(block, present, CodeFiles(axes, next(iter(own), None)))

    def keep(self, blocks: Iterable[Mapping[str, np.ndarray]], records: Records) -> bool:
        """Write those blocks that are not kept already, and remove all files that are none of them, nor their codes.

        Where another process is at it, the disk is full, or the folder cannot be written to, nothing happens, and so it
        says.
        """

        def write() -> None:
            kept = {self._keep(block, records) for block in blocks}
            names = {path.stem for path in kept}
            codes = {path for path in self.paths(_CODES) if path.name.partition(".")[0] not in names}
            killed = self.folder.glob(".*.*.*")  # what processes have left that were: the lock is ours
            _remove([*(self.paths() - kept), *codes, *killed])

        return self._alone(write)

    def keep_codes(self, corpus: Cached) -> None:
        """Write codes that blocks lack, and remove those of other axes; where that cannot be done, nothing happens."""

        def write() -> None:
            path = None
            for block, codes, axes in corpus.missing_codes():
                assert isinstance(block.arrays, MappedArrays), "it was kept"
                path = path or self._keep_axes(axes)
                write_arrays(self._codes_of(block.arrays, path), codes)

        self._alone(write)

    def paths(self, suffix: str = _SUFFIX) -> set[Path]:
        """The files of all blocks, whatever is in them; or of codes, or of axes."""
        return set(self.folder.glob(f"[!.]*{suffix}"))

    def _alone(self, write: Callable[[], None]) -> bool:
        """Write where nobody else does; whether that was so, and all went well."""
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "lock").acquire(timeout=0):
                write()
        except (OSError, Timeout):
            return False
        return True

    def _keep_axes(self, axes: Mapping[str, np.ndarray]) -> Path:
        """Write axes, and remove others with the codes that have them."""
        new = self.folder / f"new{_AXES}"
        write_arrays(new, axes)
        path = new.replace(new.with_name(f"{MappedArrays(new).digest}{_AXES}"))
        _remove((self.paths(_AXES) - {path}) | {codes for codes in self.paths(_CODES) if path.stem not in codes.name})
        return path

    def _codes_of(self, block: MappedArrays, axes: Path) -> Path:
        """The file of a block's codes."""
        return self.folder / f"{block.path.stem}.{block.digest}.{axes.stem}{_CODES}"

    def _keep(self, block: Mapping[str, np.ndarray], records: Records) -> Path:
        if isinstance(block, MappedArrays) and block.path.is_file():
            return block.path
        ids = block["ids"].tolist()
        if isinstance(block, MappedArrays):  # its file has gone; it may hold what records no longer say of a video
            contents = block[_CONTENTS].tolist()
        else:
            known = {record.video_id: self._content(record) for record in records}
            contents = [known.get(video_id, "") for video_id in ids]
        name = hashlib.blake2b(repr((ids, contents)).encode(), digest_size=16).hexdigest()
        path = self.folder / f"{name}{_SUFFIX}"
        write_arrays(path, {**block, _CONTENTS: np.array(contents)})
        return path

    def _content(self, record: VideoRecord) -> str:
        """What a record says of its video's vectors, and how they are laid out, in short."""
        return hashlib.blake2b((content_stamp(record) + self._layout).encode(), digest_size=8).hexdigest()


def lay_out(
    library: Path,
    empty: Cached,
    records: Records,
    read: Callable[[Sequence[str]], Iterable[StoredVideo]],
    *,
    codes: bool,
) -> None:
    """Bring what is laid out up to date with a version of a library, some of its videos at a time in memory.

    With `codes` those that blocks lack are made, too. What turns out to be damaged is made anew.
    """
    kept, damaged = LaidOut(library, empty.layout), set[Path]()
    while True:
        try:
            blocks = list(kept.read(records, damaged))
            there = set(ids_of(blocks))
            new = [record for record in records if record.video_id not in there]
            for some in list(gathered(new, _get_num_frames, _FRAMES_AT_A_TIME)) or [[]]:
                added = read([record.video_id for record in some]) if some else ()
                corpus = empty.restored(blocks).update(added)
                if not kept.keep(corpus.arrays(), records):
                    return
                blocks = list(kept.read(records))
            if codes:
                kept.keep_codes(empty.restored(blocks))
            return
        except DamagedError as error:
            if error.path in damaged:
                return  # nor can it be written anew
            damaged.add(error.path)


def remove_damaged(library: Path) -> list[Path]:
    """Look at every byte of what is laid out, in any layout, and remove the files that are not as they were written."""
    damaged = []
    for path in sorted(path for path in (library / FOLDER).glob("*/*") if path.suffix in (_SUFFIX, _CODES, _AXES)):
        try:
            dict(MappedArrays(path))
        except DamagedError:
            path.unlink(missing_ok=True)
            damaged.append(path)
    return damaged


def _get_num_frames(record: VideoRecord) -> int:
    return record.num_frames


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def ids_of(blocks: Iterable[CachedBlock]) -> Iterator[str]:
    """The videos of blocks that are meant."""
    for block, present, _ in blocks:
        yield from block["ids"][present].tolist()
