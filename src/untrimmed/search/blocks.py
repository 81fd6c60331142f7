"""Videos side by side in blocks that are never changed: how a corpus follows a library without being laid out anew.

An update makes new blocks and shares the others with the corpus before, which searches go on with. What was removed
leaves a hole; a block of which more than a quarter is holes is made anew. Blocks are joined with others of about their
size, so that the whole is few blocks, and each video is copied a number of times that grows with the logarithm of the
largest block's size, not with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.search.corpus import RankedVideo

_MOST_HOLES = 0.25


@runtime_checkable
class Block(Protocol):
    """Some videos."""

    @property
    def ids(self) -> Sequence[str]:
        """Of each, by its row."""
        ...

    @property
    def sizes(self) -> Int[np.ndarray, " V"]:
        """How much of the block each of them takes."""
        ...


B = TypeVar("B", bound=Block)


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
        return Blocks(self._join, self._most, [self._joined(group) for group in groups])

    def each(self, change: Callable[[B], B]) -> Blocks[B]:
        """With other blocks of the same videos in the places of these."""
        return Blocks(self._join, self._most, [Part(change(part.block), part.present) for part in self.parts])

    def rank(
        self,
        rough: Callable[[B], Float[np.ndarray, " V"]],
        exact: Callable[[B, int], float],
        *,
        rounding: float,
        limit: int,
        among: Collection[str] | None,
    ) -> list[RankedVideo]:
        """`PreparedQuery.rank` by exact scores, taken of the videos that rough scores leave in doubt.

        `rounding` is more than a rough score can be off, for scores up to 1; for larger ones it grows with them.
        """
        scores = np.concatenate([np.empty(0), *self._scores(rough, among)])
        finite = scores[np.isfinite(scores)]
        if (limit := min(limit, len(finite))) <= 0:
            return []
        doubt = 2 * rounding * max(1.0, float(np.abs(finite).max()))
        worst_kept = np.partition(finite, len(finite) - limit)[len(finite) - limit]
        starts = np.cumsum([0, *(len(part.block.ids) for part in self.parts)])
        found = []
        for place in np.flatnonzero(scores >= worst_kept - doubt):
            number = int(np.searchsorted(starts, place, side="right")) - 1
            block, row = self.parts[number].block, int(place - starts[number])
            found.append(RankedVideo(block.ids[row], exact(block, row)))
        found.sort(key=lambda video: -video.score)
        return [video for video in found if video.score >= found[limit - 1].score]

    def _scores(
        self, rough: Callable[[B], Float[np.ndarray, " V"]], among: Collection[str] | None
    ) -> Iterable[Float[np.ndarray, " V"]]:
        wanted = [part.present for part in self.parts]
        if among is not None:
            wanted = [np.zeros_like(present) for present in wanted]
            for number, row in filter(None, map(self._place.get, among)):
                wanted[number][row] = True
        for part, rows in zip(self.parts, wanted, strict=True):
            yield np.where(rows, rough(part.block), -np.inf) if rows.any() else np.full(len(rows), -np.inf)

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


def _whole(block: B) -> Part[B]:
    return Part(block, np.ones(len(block.ids), dtype=bool))


def _size(group: Sequence[Part[B]]) -> int:
    return sum(part.size for part in group)
