"""Immutable blocks of videos. A corpus that follows a library replaces few of its blocks with each update.

An update adds new blocks and shares the others with the previous corpus, which running searches still use. A removed
video leaves a hole; a block with more than a quarter of holes is copied without them. Blocks of similar size are
joined, so the number of blocks stays small and each video is copied O(log n) times (n: size of the largest block).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Int

_MAX_HOLES = 0.25


class Block:
    """Videos as plain arrays, in memory or memory-mapped; the array `ids` has their ids."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.ids: list[str] = arrays["ids"].tolist()

    @property
    def sizes(self) -> Int[np.ndarray, " V"]:
        """Size of each video: 1, unless a subclass counts rows."""
        return np.ones(len(self.ids), dtype=np.int64)


B = TypeVar("B", bound=Block)
T = TypeVar("T")
Rows = Int[np.ndarray, " _"]  # videos of a block, by index


@dataclass(frozen=True, eq=False)
class Split(Generic[B]):
    """Videos of several blocks: video i is `row[i]` of block `number[i]`."""

    blocks: Sequence[B]
    number: Int[np.ndarray, " N"]
    row: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, groups: Iterable[tuple[B, Rows]]) -> Split[B]:
        """Combine rows of several blocks."""
        blocks, rows = zip(*groups, strict=True)
        return cls(blocks, np.repeat(np.arange(len(rows)), [*map(len, rows)]), np.concatenate(rows))

    @classmethod
    def joined(cls, splits: Sequence[Split[B]]) -> Split[B]:
        """Concatenate splits of the same blocks."""
        number, row = (np.concatenate([getattr(split, name) for split in splits]) for name in ("number", "row"))
        return cls(splits[0].blocks, number, row)

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[tuple[B, Rows]]:
        """Yield the block and the rows of each run, see `runs`."""
        for number, start, stop in self.runs():
            yield self.blocks[number], self.row[start:stop]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the block, start, stop) for each run of consecutive videos of one block."""
        cuts = (np.flatnonzero(self.number[1:] != self.number[:-1]) + 1).tolist()
        for start, stop in itertools.pairwise([0, *cuts, len(self)]):
            if start < stop:
                yield int(self.number[start]), start, stop

    @property
    def ids(self) -> list[str]:
        """Ids of the videos."""
        places = zip(self.number.tolist(), self.row.tolist(), strict=True)
        return [self.blocks[number].ids[row] for number, row in places]

    def at(self, places: Int[np.ndarray, " K"] | slice) -> Split[B]:
        """Return the videos at these places."""
        return Split(self.blocks, self.number[places], self.row[places])


@dataclass(frozen=True)
class PartialBlock(Generic[B]):
    """A block, and which of its videos the corpus contains."""

    block: B
    present: Bool[np.ndarray, " V"]

    @classmethod
    def whole(cls, block: B) -> PartialBlock[B]:
        """Return a block with all of its videos."""
        return cls(block, np.ones(len(block.ids), dtype=bool))

    @property
    def size(self) -> int:
        """Total size of the videos that are present."""
        return int(self.block.sizes[self.present].sum())


class Blocks(Generic[B]):
    """The blocks of a corpus. `join` makes one block of several whose sizes add up to at most `max_size`."""

    def __init__(
        self, join: Callable[[Sequence[PartialBlock[B]]], B], max_size: int, parts: Sequence[PartialBlock[B]] = ()
    ):
        self._join = join
        self._max_size = max_size
        self.parts = tuple(parts)
        self._place = {
            part.block.ids[row]: (number, row)
            for number, part in enumerate(parts)
            for row in np.flatnonzero(part.present).tolist()
        }

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, video_id: str) -> bool:
        return video_id in self._place

    def find(self, video_id: str) -> tuple[B, int]:
        """Return the block of a video and its row there.

        Raises: KeyError for an unknown id.
        """
        number, row = self._place[video_id]
        return self._each[number], row

    def split(self, video_ids: Iterable[str]) -> Split[B]:
        """Return videos in this order.

        Raises: KeyError for an unknown id.
        """
        return self._split([self._place[video_id] for video_id in video_ids])

    def among(self, video_ids: Collection[str] | None) -> Split[B]:
        """Return all videos, or those of these ids, ordered by block; unknown ids are ignored."""
        if video_ids is None:
            return self._all
        return self._split(sorted(filter(None, map(self._place.get, video_ids))))

    def update(self, added: Iterable[B], removed: Iterable[str]) -> Blocks[B]:
        """Return blocks with added videos, which replace those with the same ids, and without removed ones."""
        new = [PartialBlock.whole(block) for block in added]
        removed = {*removed, *(video_id for part in new for video_id in part.block.ids)}
        parts = sorted([*self._without(removed), *new], key=lambda part: part.size, reverse=True)
        groups: list[list[PartialBlock[B]]] = []
        for part in parts:
            group = [part]
            size = part.size
            while groups and (previous := sum(p.size for p in groups[-1])) < 2 * size:
                if previous + size > self._max_size:
                    break
                group = groups.pop() + group
                size += previous
            groups.append(group)
        return self.of([self._joined(group) for group in groups])

    def of(self, parts: Sequence[PartialBlock[B]]) -> Blocks[B]:
        """Return blocks with the same settings and these parts."""
        return Blocks(self._join, self._max_size, parts)

    def each(self, change: Callable[[B], B]) -> Blocks[B]:
        """Return blocks changed by a function that keeps their videos."""
        return self.of([PartialBlock(change(part.block), part.present) for part in self.parts])

    @cached_property
    def _each(self) -> Sequence[B]:
        return tuple(part.block for part in self.parts)

    @cached_property
    def _all(self) -> Split[B]:
        if not self.parts:
            return self._split([])
        return Split.of((part.block, np.flatnonzero(part.present)) for part in self.parts)

    def _split(self, places: Sequence[tuple[int, int]]) -> Split[B]:
        number, row = np.array(places, np.int64).reshape(-1, 2).T
        return Split(self._each, number.copy(), row.copy())

    def _without(self, removed: Collection[str]) -> list[PartialBlock[B]]:
        present = {number: part.present for number, part in enumerate(self.parts)}
        for number, row in filter(None, map(self._place.get, removed)):
            if present[number] is self.parts[number].present:
                present[number] = present[number].copy()
            present[number][row] = False
        return [PartialBlock(self._each[number], rows) for number, rows in present.items() if rows.any()]

    def _joined(self, group: Sequence[PartialBlock[B]]) -> PartialBlock[B]:
        if len(group) == 1 and group[0].size >= (1 - _MAX_HOLES) * group[0].block.sizes.sum():
            return group[0]
        return PartialBlock.whole(self._join(group))


def batched_by_size(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield lists of items whose sizes add up to `least` or more; the last list may be smaller.

    >>> list(batched_by_size([1, 2, 3, 4, 5], lambda item: item, least=3))
    [[1, 2], [3], [4], [5]]
    """
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= least:
            yield batch
            batch = []
            total = 0
    if batch:
        yield batch
