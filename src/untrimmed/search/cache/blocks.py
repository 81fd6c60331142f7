"""Blocks of videos. A block contains the arrays of some videos and never changes.

An update creates a new corpus, which shares unchanged blocks with the previous corpus. Running searches still use the
previous corpus. A removed video leaves a hole in its block. When holes make up more than a quarter of a block, the
remaining videos are copied to a new block. Blocks of similar size are joined, so there are few blocks. A video in a
block of n videos has been copied O(log n) times. A *row* is the index of a video in its block.
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
    """Arrays of some videos, in memory or memory-mapped. The array `ids` contains the ids of the videos."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.ids: list[str] = arrays["ids"].tolist()

    @property
    def sizes(self) -> Int[np.ndarray, " V"]:
        """The size of each video: 1, or the number of its vectors in some subclasses."""
        return np.ones(len(self.ids), dtype=np.int64)


B = TypeVar("B", bound=Block)
T = TypeVar("T")
Rows = Int[np.ndarray, " _"]


@dataclass(frozen=True, eq=False)
class Selection(Generic[B]):
    """Selected videos of several blocks, in any order: video i is in row `row_index[i]` of block `block_index[i]`."""

    blocks: Sequence[B]
    block_index: Int[np.ndarray, " N"]
    row_index: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, groups: Iterable[tuple[B, Rows]]) -> Selection[B]:
        """Return the selection of these rows of several blocks."""
        blocks, rows = zip(*groups, strict=True)
        return cls(blocks, np.repeat(np.arange(len(rows)), [*map(len, rows)]), np.concatenate(rows))

    @classmethod
    def joined(cls, selections: Sequence[Selection[B]]) -> Selection[B]:
        """Concatenate selections of the same blocks."""
        block_index = np.concatenate([selection.block_index for selection in selections])
        return cls(selections[0].blocks, block_index, np.concatenate([selection.row_index for selection in selections]))

    def __len__(self) -> int:
        return len(self.row_index)

    def __iter__(self) -> Iterator[tuple[B, Rows]]:
        """Yield the block and the rows of each run of consecutive videos from the same block."""
        for block, start, stop in self.runs():
            yield self.blocks[block], self.row_index[start:stop]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (index of the block, start, stop) for each run of consecutive videos from the same block."""
        cuts = (np.flatnonzero(self.block_index[1:] != self.block_index[:-1]) + 1).tolist()
        for start, stop in itertools.pairwise([0, *cuts, len(self)]):
            if start < stop:
                yield int(self.block_index[start]), start, stop

    @property
    def ids(self) -> list[str]:
        """The ids of the selected videos."""
        positions = zip(self.block_index.tolist(), self.row_index.tolist(), strict=True)
        return [self.blocks[block].ids[row] for block, row in positions]

    def at(self, indices: Int[np.ndarray, " K"] | slice) -> Selection[B]:
        """Return the videos at these indices of the selection."""
        return Selection(self.blocks, self.block_index[indices], self.row_index[indices])


@dataclass(frozen=True)
class PartialBlock(Generic[B]):
    """A block, and a mask of the videos that the corpus still contains. The other videos are holes."""

    block: B
    present: Bool[np.ndarray, " V"]

    @classmethod
    def whole(cls, block: B) -> PartialBlock[B]:
        """Return a block without holes."""
        return cls(block, np.ones(len(block.ids), dtype=bool))

    @property
    def size(self) -> int:
        """The total size of the videos that are present."""
        return int(self.block.sizes[self.present].sum())


class Blocks(Generic[B]):
    """The blocks of a corpus. `join` combines several blocks into one if their sizes add up to at most `max_size`."""

    def __init__(
        self, join: Callable[[Sequence[PartialBlock[B]]], B], max_size: int, parts: Sequence[PartialBlock[B]] = ()
    ):
        self._join = join
        self._max_size = max_size
        self.parts = tuple(parts)
        self._positions = {
            part.block.ids[row]: (number, row)
            for number, part in enumerate(parts)
            for row in np.flatnonzero(part.present).tolist()
        }

    def __len__(self) -> int:
        return len(self._positions)

    def find(self, video_id: str) -> tuple[B, int]:
        """Return the block of a video and its row in the block. Raises KeyError if the id is unknown."""
        number, row = self._positions[video_id]
        return self.parts[number].block, row

    def select(self, video_ids: Collection[str] | None) -> Selection[B]:
        """Return all videos, or those with these ids, in the order of the blocks. Unknown ids are ignored."""
        if video_ids is None:
            return self._all_videos
        return self._selection(sorted(filter(None, map(self._positions.get, video_ids))))

    def update(self, added: Iterable[B], removed: Iterable[str]) -> Blocks[B]:
        """Return blocks with the added videos and without the removed ones.

        An added video replaces the video with the same id.
        """
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

    def map_blocks(self, change: Callable[[B], B]) -> Blocks[B]:
        """Return these blocks, with each replaced by `change(block)`, which must have the same videos."""
        return self.of([PartialBlock(change(part.block), part.present) for part in self.parts])

    @cached_property
    def _all_videos(self) -> Selection[B]:
        if not self.parts:
            return self._selection([])
        return Selection.of((part.block, np.flatnonzero(part.present)) for part in self.parts)

    def _selection(self, positions: Sequence[tuple[int, int]]) -> Selection[B]:
        block_index, row_index = np.array(positions, np.int64).reshape(-1, 2).T
        return Selection(tuple(part.block for part in self.parts), block_index.copy(), row_index.copy())

    def _without(self, removed: Collection[str]) -> list[PartialBlock[B]]:
        present = {number: part.present for number, part in enumerate(self.parts)}
        for number, row in filter(None, map(self._positions.get, removed)):
            if present[number] is self.parts[number].present:
                present[number] = present[number].copy()
            present[number][row] = False
        return [PartialBlock(self.parts[number].block, rows) for number, rows in present.items() if rows.any()]

    def _joined(self, group: Sequence[PartialBlock[B]]) -> PartialBlock[B]:
        if len(group) == 1 and group[0].size >= (1 - _MAX_HOLES) * group[0].block.sizes.sum():
            return group[0]
        return PartialBlock.whole(self._join(group))
