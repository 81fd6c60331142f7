"""Videos side by side in blocks that are never changed: how a corpus follows a library without being laid out anew.

An update makes new blocks and shares the others with the corpus before, which searches go on with. What was removed
leaves a hole; a block of which more than a quarter is holes is made anew. Blocks are joined with others of about their
size, so that the whole is few blocks, and each video is copied a number of times that grows with the logarithm of the
largest block's size, not with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Int

_MOST_HOLES = 0.25


class Block:
    """Some videos as plain arrays, in memory or memory-mapped; `ids` of the arrays are those of the videos."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.ids: list[str] = arrays["ids"].tolist()

    @property
    def sizes(self) -> Int[np.ndarray, " V"]:
        """How much of the block each video takes: one unit each, unless a subclass counts rows."""
        return np.ones(len(self.ids), dtype=np.int64)


B = TypeVar("B", bound=Block)
T = TypeVar("T")
Rows = Int[np.ndarray, " _"]  # of a block


@dataclass(frozen=True, eq=False)
class Split(Generic[B]):
    """Some videos of some blocks: `row[i]` of block `number[i]`."""

    blocks: Sequence[B]
    number: Int[np.ndarray, " N"]
    row: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, groups: Iterable[tuple[B, Rows]]) -> Split[B]:
        """Some rows of each block."""
        blocks, rows = zip(*groups, strict=True)
        return cls(blocks, np.repeat(np.arange(len(rows)), [*map(len, rows)]), np.concatenate(rows))

    @classmethod
    def joined(cls, splits: Sequence[Split[B]]) -> Split[B]:
        """One after the other, of the same blocks."""
        number, row = (np.concatenate([getattr(split, name) for split in splits]) for name in ("number", "row"))
        return cls(splits[0].blocks, number, row)

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[tuple[B, Rows]]:
        """Those that follow each other in one block, by this and their rows there."""
        cuts = (np.flatnonzero(self.number[1:] != self.number[:-1]) + 1).tolist()
        for start, stop in zip([0, *cuts], [*cuts, len(self)], strict=True):
            if start < stop:
                yield self.blocks[self.number[start]], self.row[start:stop]

    @property
    def ids(self) -> list[str]:
        """Of its videos."""
        places = zip(self.number.tolist(), self.row.tolist(), strict=True)
        return [self.blocks[number].ids[row] for number, row in places]

    def at(self, places: Int[np.ndarray, " K"] | slice) -> Split[B]:
        """Those of them that stand at these places."""
        return Split(self.blocks, self.number[places], self.row[places])


@dataclass(frozen=True)
class Part(Generic[B]):
    """A block, and which of its videos the corpus has."""

    block: B
    present: Bool[np.ndarray, " V"]

    @property
    def size(self) -> int:
        """What the videos that are there take of it."""
        return int(self.block.sizes[self.present].sum())


class Blocks(Generic[B]):
    """The blocks of a corpus; `join` makes one of several that together have a size of `most` at most."""

    def __init__(self, join: Callable[[Sequence[Part[B]]], B], most: int, parts: Sequence[Part[B]] = ()):
        self._join, self._most = join, most
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
        """The block of a video, and its row there.

        Raises: KeyError for one that is not there.
        """
        number, row = self._place[video_id]
        return self.parts[number].block, row

    def split(self, video_ids: Iterable[str]) -> Split[B]:
        """The block of each video, and its row there.

        Raises: KeyError for one that is not there.
        """
        number, row = np.array([self._place[video_id] for video_id in video_ids], np.int64).reshape(-1, 2).T
        return Split(self._each, number.copy(), row.copy())

    def update(self, added: Iterable[B], removed: Iterable[str]) -> Blocks[B]:
        """With more blocks and without some videos; videos that were added take the places of those with their ids."""
        new = [_whole(block) for block in added]
        gone = {*removed, *(video_id for part in new for video_id in part.block.ids)}
        parts = sorted([*self._without(gone), *new], key=lambda part: part.size, reverse=True)
        groups: list[list[Part[B]]] = []
        for part in parts:
            group, size = [part], part.size
            while groups and (before := _size(groups[-1])) < 2 * size and before + size <= self._most:
                group, size = groups.pop() + group, before + size
            groups.append(group)
        return self.of([self._joined(group) for group in groups])

    def of(self, parts: Sequence[Part[B]]) -> Blocks[B]:
        """These parts in the places of all."""
        return Blocks(self._join, self._most, parts)

    def each(self, change: Callable[[B], B]) -> Blocks[B]:
        """With other blocks of the same videos in the places of these."""
        return self.of([Part(change(part.block), part.present) for part in self.parts])

    def among(self, video_ids: Collection[str] | None) -> Split[B]:
        """All videos, or those of these ids that are there, one block after the other."""
        if video_ids is None:
            return self._all
        places = sorted(filter(None, map(self._place.get, video_ids)))
        number, row = np.array(places, dtype=np.int64).reshape(-1, 2).T
        return Split(self._each, number.copy(), row.copy())

    @cached_property
    def _each(self) -> Sequence[B]:
        return tuple(part.block for part in self.parts)

    @cached_property
    def _all(self) -> Split[B]:
        rows = [np.flatnonzero(part.present) for part in self.parts]
        number = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
        return Split(self._each, number, np.concatenate([np.empty(0, dtype=np.int64), *rows]))

    def _without(self, gone: Collection[str]) -> list[Part[B]]:
        present = {number: part.present for number, part in enumerate(self.parts)}
        for number, row in filter(None, map(self._place.get, gone)):
            if present[number] is self.parts[number].present:
                present[number] = present[number].copy()
            present[number][row] = False
        return [Part(self.parts[number].block, rows) for number, rows in present.items() if rows.any()]

    def _joined(self, group: Sequence[Part[B]]) -> Part[B]:
        if len(group) == 1 and group[0].size >= (1 - _MOST_HOLES) * group[0].block.sizes.sum():
            return group[0]
        return _whole(self._join(group))


def gathered(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield lists of items whose sizes add up to `least` or more; the last list may be smaller.

    >>> list(gathered([1, 2, 3, 4, 5], lambda item: item, least=3))
    [[1, 2], [3], [4], [5]]
    """
    some: list[T] = []
    total = 0
    for item in items:
        some.append(item)
        total += size(item)
        if total >= least:
            yield some
            some = []
            total = 0
    if some:
        yield some


def _whole(block: B) -> Part[B]:
    return Part(block, np.ones(len(block.ids), dtype=bool))


def _size(group: Sequence[Part[B]]) -> int:
    return sum(part.size for part in group)
