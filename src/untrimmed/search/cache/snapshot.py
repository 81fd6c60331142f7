"""What corpora have laid out, kept beside the table, so that another process maps it instead of laying it out again.

A block of a corpus is a file of arrays. It can be missing or damaged at any time, for the table has all that it was
made of. Each video in it counts for as long as its record says the same of its vectors. Codes of a block are a file of
their own, whose name says of which block they are, to the bit, and by which axes; these are one more, the same for all.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from untrimmed.search.cache.mapped import DamagedError, MappedArrays, write_arrays
from untrimmed.search.corpora.local import CachedBlock, LocalCorpus
from untrimmed.search.pruning.kept_codes import KeptCodes
from untrimmed.search.store.records import Records, VideoRecord, content_stamp

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

FOLDER = "laid_out"
_SUFFIX, _CODES, _AXES = ".block", ".codes", ".axes"
_CONTENTS = "contents"  # what each video's record says of its vectors
_FRAMES_AT_A_TIME = 2**18  # are in memory while they are laid out; some times the rows of a block


class LaidOut:
    """The cached blocks of one library in one layout (`LocalCorpus.layout`); any number of processes may use them."""

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
                yield CachedBlock(block, present, KeptCodes(axes, next(iter(own), None)))

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

    def keep_codes(self, corpus: LocalCorpus[Any]) -> None:
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
    empty: LocalCorpus[Any],
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
            for some in _some_at_a_time([record for record in records if record.video_id not in there]):
                corpus = empty.restored(blocks).update(read(some) if some else ())
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


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def ids_of(blocks: Iterable[CachedBlock]) -> Iterator[str]:
    """The videos of blocks that are meant."""
    for block, present, _ in blocks:
        yield from block["ids"][present].tolist()


def _some_at_a_time(records: Sequence[VideoRecord]) -> Iterator[list[str]]:
    """Ids of videos that together have about so many frames; at least one list, if an empty one."""
    ids: list[str] = []
    num_frames = 0
    for record in records:
        ids.append(record.video_id)
        num_frames += record.num_frames
        if num_frames >= _FRAMES_AT_A_TIME:
            yield ids
            ids, num_frames = [], 0
    if ids or not records:
        yield ids
