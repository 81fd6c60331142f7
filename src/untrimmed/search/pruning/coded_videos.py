"""Videos whose best rows are found by codes of all rows, and what makes the codes while searches go on without."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int8

from untrimmed.search.cache.blocks import Blocks
from untrimmed.search.cache.mapped import DamagedError, MappedArrays
from untrimmed.search.pruning.codes import FITTED_TO, Axes, Codes, whole_rows
from untrimmed.search.pruning.kept_codes import KeptCodes, arrays_of, arrays_of_axes, codes_of, read_axes
from untrimmed.search.pruning.products import LANES

LEAST_SEARCHES = 2
_MOST_LEFT = 0.5  # of all videos
_TRIED_EACH = 32  # searches
NUM_ARRAYS = 20  # at most: see `kernels`
_KINDS = (*("u1", "f4", "u1", "f4", "u8", "f4", "f4") * 2, "i8", "i8", "i8", "b1", "i1", "f4")  # of their numbers
GROUP = 4  # rows of which there is a mean


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Codes of the rows of some videos, one video after the other, each in blocks of its own."""

    codes: Codes
    means: Codes  # of every `GROUP` rows of a video that follow each other, one video after the other
    longest: float  # of what is read where codes leave it open
    first_row: Int[np.ndarray, " _"]  # of each video, and where the last one ends
    first: Int[np.ndarray, " _"]  # block of each video, and where the last one ends
    first_mean: Int[np.ndarray, " V"]  # of each video
    unbounded: Bool[np.ndarray, " V"]  # videos with a row that is not finite

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def num_rows(self) -> int:
        """Of all videos."""
        return int(self.first_row[-1])

    @cached_property
    def most_rows(self) -> int:
        """Of one video."""
        return int(np.diff(self.first_row).max())

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """As loops take them, see `kernels`."""
        own = self.first, self.first_mean, self.first_row, self.unbounded
        return (*self.codes.arrays, *self.means.arrays, *own)

    @cached_property
    def addresses(self) -> Int[np.ndarray, " _"]:
        """Where its arrays lie."""
        assert all(array.flags.c_contiguous for array in self.arrays)
        kinds = tuple(f"{array.dtype.kind}{array.dtype.itemsize}" for array in self.arrays)
        if kinds != _KINDS[: len(kinds)]:
            raise TypeError(f"codes have numbers of the kinds {kinds}, loops read {_KINDS}")
        found = np.zeros(NUM_ARRAYS, dtype=np.int64)
        found[: len(self.arrays)] = [array.ctypes.data for array in self.arrays]
        return found


def codes_of_rows(axes: Axes, rows: Float[np.ndarray, "R D"], counts: Int[np.ndarray, " V"]) -> dict[str, Any]:
    """What `CodedRows` has of videos with so many rows each, at least one, but for `longest`."""
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        rows = np.where(finite[:, None], rows, 0)
    padded = -(-counts // LANES) * LANES
    first_row, first = (np.concatenate([[0], np.cumsum(some)]) for some in (counts, padded // LANES))
    place = np.arange(padded.sum()) - np.repeat(first[:-1] * LANES, padded)
    order = np.repeat(first_row[:-1], padded) + np.minimum(place, np.repeat(counts, padded) - 1)
    groups = -(-counts // GROUP)
    first_mean = np.cumsum(groups) - groups
    inside = np.arange(groups.sum()) - np.repeat(first_mean, groups)
    starts = np.repeat(first_row[:-1], groups) + GROUP * inside
    sizes = np.minimum(GROUP, np.repeat(first_row[1:], groups) - starts)
    return {
        "codes": Codes.of(axes, rows, order),
        "means": Codes.of(axes, np.add.reduceat(rows, starts) / sizes[:, None]),
        "first_row": first_row,
        "first": first,
        "first_mean": first_mean,
        "unbounded": ~np.logical_and.reduceat(finite, first_row[:-1]),
    }


def longest_of(rows: Float[np.ndarray, "R D"]) -> float:
    """How long the longest row is."""
    return float(np.sqrt(np.einsum("rd,rd->r", rows, rows, dtype=np.float32).max()))


@dataclass(frozen=True, eq=False)
class CodedVideos(CodedRows):
    """With the rows in 8 bits, one video after the other."""

    rows: Int8[np.ndarray, "R E"]  # along mixed axes, see `whole_rows`
    row_unit: Float32[np.ndarray, " R"]

    @classmethod
    def of(cls, axes: Axes, rows: Float[np.ndarray, "R D"], counts: Int[np.ndarray, " V"]) -> CodedVideos:
        """Codes of videos with so many rows each, at least one."""
        rows = np.asarray(rows, np.float32)
        finite = np.where(np.isfinite(rows).all(axis=1)[:, None], rows, 0)
        whole, unit = whole_rows(axes, finite)
        return cls(rows=whole, row_unit=unit, longest=longest_of(finite), **codes_of_rows(axes, rows, counts))

    @classmethod
    def joined(cls, parts: Sequence[CodedVideos]) -> CodedVideos:
        """The videos of all parts, which have the same axes."""
        before = LANES * np.cumsum([0, *(len(part.means.tail) for part in parts[:-1])])
        return cls(
            codes=Codes.joined([part.codes for part in parts]),
            means=Codes.joined([part.means for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            row_unit=np.concatenate([part.row_unit for part in parts]),
            longest=max(part.longest for part in parts),
            first_row=_joined_ends([part.first_row for part in parts]),
            first=_joined_ends([part.first for part in parts]),
            first_mean=np.concatenate([part.first_mean + at for part, at in zip(parts, before, strict=True)]),
            unbounded=np.concatenate([part.unbounded for part in parts]),
        )

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """With those of rows."""
        return (*super().arrays, self.rows, self.row_unit)


Arrays = Mapping[str, np.ndarray]
K = TypeVar("K")
C = TypeVar("C")
J = TypeVar("J")


class Coder(Generic[K, C]):
    """Codes of blocks of videos by branch, from disk or made after some searches, and kept as long as the block.

    To code a video takes as long as to compare it with dozens of queries, so that a thread of its own does it: whoever
    searches once or twice is better off without, and nobody waits for them. Loops over codes have to be loaded, too.
    """

    def __init__(self, kind: type[C]) -> None:
        """`kind`: what the codes of a branch are."""
        self._kind = kind
        self._lock = threading.Lock()
        self._axes: dict[str, Axes] = {}
        self._axes_read: dict[Path, dict[str, Axes]] = {}
        self._kept: WeakKeyDictionary[K, tuple[KeptCodes, str]] = WeakKeyDictionary()
        self._codes: WeakKeyDictionary[K, dict[str, C]] = WeakKeyDictionary()
        self._together: WeakKeyDictionary[Blocks[Any], dict[str, Any]] = WeakKeyDictionary()
        self._searches = 0
        self._left = (
            0.0  # of all videos, the share that codes left in doubt: the mean of searches, the last counts most
        )
        self._maker: threading.Thread | None = None

    def keep(self, block: K, kept: KeptCodes, context: str = "") -> None:
        """Note where the codes of a block are on disk; those that depend on another `context` do not count."""
        self._kept[block] = kept, context

    def ready(self, blocks: Sequence[K], make: Callable[[K], dict[str, C]], *, many: bool = False) -> bool:
        """Whether all blocks have their codes, and these help; after a few searches those that lack begin to be made.

        Where codes leave most videos in doubt they are of no use: they are tried now and then only. Those on disk are
        read when so `many` videos are searched that it is worth it at once, or after as many searches.

        Raises: DamagedError where those on disk are not as they were written.
        """
        with self._lock:
            self._searches += 1
            often = self._searches > LEAST_SEARCHES
            if not ((often or many) and can_scan()):
                return False
            for block in blocks:
                if block not in self._codes and (found := self._read(block)) is not None:
                    self._codes[block] = found
            lacking = [block for block in blocks if block not in self._codes]
            idle = self._maker is None or not self._maker.is_alive()
            if lacking and idle and often:
                self._maker = threading.Thread(target=self._make, args=(lacking, make), name="codes", daemon=True)
                _makers.add(self._maker)
                self._maker.start()
            return not lacking and (self._left < _MOST_LEFT or self._searches % _TRIED_EACH == 0)

    def lacking(self, blocks: Sequence[K], make: Callable[[K], dict[str, C]]) -> Iterator[tuple[K, Arrays, Arrays]]:
        """Blocks that have no codes on disk, with the arrays of their codes and of the axes; each is made in its turn.

        Raises: DamagedError where what is there is not as it was written.
        """
        for block in blocks:
            if can_scan() and self._where(block) is None:
                codes, (_, context) = make(block), self._kept.get(block, (None, ""))
                yield block, arrays_of(codes, context), arrays_of_axes(self._axes, self._kind)

    def learn(self, share: float) -> None:
        """Remember how many of all videos the last search by codes had to look at besides."""
        with self._lock:
            self._left += (share - self._left) / 4

    def of(self, block: K) -> dict[str, C]:
        """The codes of a block that is ready."""
        return self._codes[block]

    def together(self, blocks: Blocks[Any], join: Callable[[Sequence[C]], J]) -> dict[str, J]:
        """The codes of all blocks, which are ready, joined by branch; they are kept as long as these are together."""
        if (found := self._together.get(blocks)) is None:
            each = [self._codes[part.block] for part in blocks.parts]
            found = {branch: join([codes[branch] for codes in each]) for branch in each[0]}
            self._together[blocks] = found
        return found

    def axes(self, branch: str, vectors: Float[np.ndarray, "R D"]) -> Axes:
        """For all blocks those on disk, or else the axes that fit the first of them; only `make` may ask."""
        if _ending.is_set():
            raise _EndingError
        for kept, _ in [*self._kept.values()]:
            if not self._axes and kept.axes is not None:
                with contextlib.suppress(DamagedError):  # others do as well
                    self._axes = dict(self._axes_at(kept.axes))
        if branch not in self._axes:
            self._axes[branch] = Axes.of(vectors[np.isfinite(vectors).all(axis=1)][:FITTED_TO], len(self._axes))
        return self._axes[branch]

    def wait(self) -> None:
        """Until what is being made is there."""
        if self._maker is not None:
            self._maker.join()

    def _axes_at(self, path: Path) -> dict[str, Axes]:
        if path not in self._axes_read:
            self._axes_read[path] = read_axes(path, self._kind)
        return self._axes_read[path]

    def _where(self, block: K) -> tuple[MappedArrays, dict[str, Axes]] | None:
        """The codes of a block on disk, and their axes; None where there are none that count."""
        kept, context = self._kept.get(block, (KeptCodes(), ""))
        if kept.axes is None or kept.codes is None or not (axes := self._axes_at(kept.axes)):
            return None
        arrays = MappedArrays(kept.codes)
        return (arrays, axes) if arrays["context"] == context else None

    def _read(self, block: K) -> dict[str, C] | None:
        found = self._where(block)
        return None if found is None else codes_of(*found, self._kind)

    def _make(self, blocks: Sequence[K], make: Callable[[K], dict[str, C]]) -> None:
        if sys.platform == "linux":  # there alone threads have a priority of their own; searches come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        with contextlib.suppress(_EndingError):
            for block in blocks:
                made = make(block)
                with self._lock:
                    self._codes[block] = made


class _EndingError(Exception):
    """Nobody needs what is being made."""


_ending = threading.Event()
_makers: WeakSet[threading.Thread] = WeakSet()


def _end() -> None:
    """Let those that make codes come to an end: torch aborts a process that ends while another thread is in it."""
    _ending.set()
    for maker in [*_makers]:
        maker.join()


atexit.register(_end)


def can_scan() -> bool:
    """Whether what scans codes is installed."""
    return find_spec("numba") is not None


def _joined_ends(lists: Sequence[Int[np.ndarray, " _"]]) -> Int[np.ndarray, " _"]:
    """Where each video begins and the last one ends, of lists that each begin at 0."""
    return np.cumsum([0, *np.concatenate([np.diff(ends) for ends in lists])])
