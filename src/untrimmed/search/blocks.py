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
# Of some rows of a block: scores; and scores with what no exact one is above, one below the other.
Rating = Callable[[B, Int[np.ndarray, " K"]], Float[np.ndarray, " K"]]
Bounding = Callable[[B, Int[np.ndarray, " K"]], Float[np.ndarray, "2 K"]]


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
        return self.of([self._joined(group) for group in groups])

    def of(self, parts: Sequence[Part[B]]) -> Blocks[B]:
        """These parts in the places of all."""
        return Blocks(self._join, self._most, parts)

    def each(self, change: Callable[[B], B]) -> Blocks[B]:
        """With other blocks of the same videos in the places of these."""
        return self.of([Part(change(part.block), part.present) for part in self.parts])

    def rank(
        self,
        rough: Rating[B],
        exact: Callable[[B, int], float],
        *,
        rounding: float,
        limit: int,
        among: Collection[str] | None,
        bounds: Sequence[Bounding[B]] = (),
    ) -> list[RankedVideo]:
        """`PreparedQuery.rank` by exact scores, taken of the videos that rough scores leave in doubt.

        `rounding` is more than a rough score can be off, for scores up to 1; for larger ones it grows with them. With
        `bounds` rough scores are taken only of videos that each of them leaves in doubt, the first of which sees all.
        """
        asked = _Asked.of(self, among)
        scores = asked.bounded(rough, bounds, limit, rounding) if bounds else asked.each(rough, asked.all)
        finite = scores[np.isfinite(scores)]
        if (limit := min(limit, len(finite))) <= 0:
            return []
        found = []
        for place in np.flatnonzero(scores >= _least_kept(finite, limit, rounding)):
            block, row = self.parts[asked.number[place]].block, int(asked.row[place])
            found.append(RankedVideo(block.ids[row], exact(block, row)))
        found.sort(key=lambda video: -video.score)
        return [video for video in found if video.score >= found[limit - 1].score]

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


@dataclass(frozen=True, eq=False)
class _Asked(Generic[B]):
    """The videos that are to be ranked: `row[i]` of the block of part `number[i]`."""

    parts: Sequence[Part[B]]
    number: Int[np.ndarray, " N"]
    row: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, blocks: Blocks[B], among: Collection[str] | None) -> _Asked[B]:
        """All that are there, or those with these ids."""
        if among is not None:
            places = sorted(filter(None, map(blocks._place.get, among)))
            number, row = np.array(places, dtype=np.int64).reshape(-1, 2).T
            return cls(blocks.parts, number, row)
        rows = [np.flatnonzero(part.present) for part in blocks.parts]
        number = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
        return cls(blocks.parts, number, np.concatenate([np.empty(0, dtype=np.int64), *rows]))

    @property
    def all(self) -> Int[np.ndarray, " N"]:
        """The places of all of them."""
        return np.arange(len(self.row))

    def each(self, rate: Callable[[B, Int[np.ndarray, " K"]], np.ndarray], places: Int[np.ndarray, " K"]) -> np.ndarray:
        """What each block says of those of the videos that are in it; the last axis is that of videos."""
        ends = np.searchsorted(self.number[places], np.arange(len(self.parts) + 1))
        split = [(part.block, self.row[places[a:b]]) for part, a, b in zip(self.parts, ends, ends[1:], strict=False)]
        said = [np.asarray(rate(block, rows)) for block, rows in split if len(rows)]
        return np.concatenate(said, axis=-1) if said else np.empty(0)

    def bounded(
        self, rough: Rating[B], bounds: Sequence[Bounding[B]], limit: int, rounding: float
    ) -> Float[np.ndarray, " N"]:
        """Rough scores of those that may be among the best, of all others minus infinity.

        What the best by the first bound's own scores reach, others have to: bound after bound says of fewer that they
        can. Of the rest, the rough score decides.
        """
        scores = np.full(len(self.row), -np.inf)
        if not len(scores) or limit < 1:
            return scores
        guess, most = self.each(bounds[0], self.all)
        limit = min(limit, len(scores))
        known = np.sort(np.argpartition(guess, len(guess) - limit)[len(guess) - limit :])
        scores[known] = self.each(rough, known)
        most[known] = -np.inf
        finite = scores[known][np.isfinite(scores[known])]
        least = _least_kept(finite, limit, rounding) if len(finite) == limit else -np.inf
        for bound in bounds[1:]:
            left = np.flatnonzero(most >= least)
            most[left] = self.each(bound, left)[1] if len(left) else []
        left = np.flatnonzero(most >= least)
        scores[left] = self.each(rough, left)
        return scores


def _least_kept(scores: Float[np.ndarray, " N"], limit: int, rounding: float) -> float:
    """The rough score that a video among the best may have at least."""
    doubt = 2 * rounding * max(1.0, float(np.abs(scores).max()))
    return float(np.partition(scores, len(scores) - limit)[len(scores) - limit]) - doubt


def _whole(block: B) -> Part[B]:
    return Part(block, np.ones(len(block.ids), dtype=bool))


def _size(group: Sequence[Part[B]]) -> int:
    return sum(part.size for part in group)
