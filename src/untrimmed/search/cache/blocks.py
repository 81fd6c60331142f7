"""Videos side by side in blocks that are never changed: how a corpus follows a library without being laid out anew.

An update makes new blocks and shares the others with the corpus before, which searches go on with. What was removed
leaves a hole; a block of which more than a quarter is holes is made anew. Blocks are joined with others of about their
size, so that the whole is few blocks, and each video is copied a number of times that grows with the logarithm of the
largest block's size, not with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.search.corpora.corpus import RankedVideo

_MOST_HOLES = 0.25
_SCOUTS = 2  # times as many are looked at to find the likeliest, for each bound that is left


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

    def at(self, places: Int[np.ndarray, " K"] | slice) -> Split[B]:
        """Those of them that stand at these places."""
        return Split(self.blocks, self.number[places], self.row[places])


Scored = tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]  # places among those that are asked about, and scores
Rating = Callable[[Split[B]], Float[np.ndarray, " _"]]  # their scores, one after the other
# Gives videos whose exact scores it has to know, gets these, and comes to a result.
Asking = Generator[Split[B], Float[np.ndarray, " _"], T]
# Of some of the videos that are to be ranked, which stand at these places among all: what each is likely to score, and
# what no exact score is above; given what a score has to reach.
Bounding = Callable[[Split[B], Int[np.ndarray, " _"], float], tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]]


def answered(asking: Asking[B, T], exact: Rating[B]) -> T:
    """What comes of questions that are answered."""
    try:
        split = next(asking)
        while True:
            split = asking.send(exact(split))
    except StopIteration as end:
        result: T = end.value
        return result


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

    def rank(
        self,
        rough: Rating[B],
        exact: Rating[B],
        *,
        rounding: float,
        limit: int,
        among: Collection[str] | None,
        bounds: Sequence[Bounding[B]] = (),
    ) -> list[RankedVideo]:
        """See `ranking`, whose questions `exact` answers."""
        return answered(self.ranking(rough, rounding=rounding, limit=limit, among=among, bounds=bounds), exact)

    def ranking(
        self,
        rough: Rating[B],
        *,
        rounding: float,
        limit: int,
        among: Collection[str] | None,
        bounds: Sequence[Bounding[B]] = (),
    ) -> Asking[B, list[RankedVideo]]:
        """`PreparedQuery.rank` by exact scores, taken of the videos that others leave in doubt.

        Those are rough scores, which `rounding` is more than they can be off, for scores up to 1; for larger ones it
        grows with them. Or they are `bounds`, the first of which sees all videos.
        """
        asked = self._all if among is None else self._those(among)
        if not len(asked) or limit < 1:
            return []
        if bounds:
            places, scores = yield from _bounded(asked, bounds, limit)
        else:
            places, scores = yield from _exact_of_best(asked, rough(asked), limit, rounding)
        if (limit := min(limit, int(np.isfinite(scores).sum()))) <= 0:
            return []
        order = np.lexsort((places, -scores))
        order = order[: np.searchsorted(-scores[order], -scores[order[limit - 1]], side="right")]
        where = zip(asked.number[places[order]].tolist(), asked.row[places[order]].tolist(), strict=True)
        ids = (self.parts[number].block.ids[row] for number, row in where)
        return [RankedVideo(*named) for named in zip(ids, scores[order].tolist(), strict=True)]

    @cached_property
    def _each(self) -> Sequence[B]:
        return tuple(part.block for part in self.parts)

    @cached_property
    def _all(self) -> Split[B]:
        rows = [np.flatnonzero(part.present) for part in self.parts]
        number = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
        return Split(self._each, number, np.concatenate([np.empty(0, dtype=np.int64), *rows]))

    def _those(self, among: Collection[str]) -> Split[B]:
        """Those that are there, one block after the other."""
        places = sorted(filter(None, map(self._place.get, among)))
        number, row = np.array(places, dtype=np.int64).reshape(-1, 2).T
        return Split(self._each, number.copy(), row.copy())

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


def _bounded(asked: Split[B], bounds: Sequence[Bounding[B]], limit: int) -> Asking[B, Scored]:
    """Those that may be among the best.

    Each bound but the first looks at fewer: at those that can reach what the best do of a few that all bounds have
    looked at before.
    """
    first, *others = bounds
    likely = np.arange(len(asked))
    guess, most = first(asked, likely, -np.inf)
    for wider, bound in zip(range(len(others), 0, -1), others, strict=True):
        if 2 * (number := limit * _SCOUTS**wider) > len(likely):
            break  # so many cost as much as all
        likely = likely[_largest(guess, number)]
        guess, _ = bound(asked.at(likely), likely, -np.inf)
    likely = likely[_largest(guess, limit if others else limit * 5 // 4)]  # few are left behind so close a bound
    scores = yield from _scored(asked.at(likely))
    least = float(np.partition(scores, -limit)[-limit]) if len(scores) >= limit else -np.inf
    left = most >= least
    left[likely] = False
    places = np.flatnonzero(left)
    for bound in others:
        if len(places):
            _, most = bound(asked.at(places), places, least)
            places = places[most >= least]
    others_scores = yield from _scored(asked.at(places))
    return np.concatenate([likely, places]), np.concatenate([scores, others_scores])


def _scored(split: Split[B]) -> Asking[B, Float[np.ndarray, " _"]]:
    if not len(split):
        return np.empty(0)
    scores = yield split
    return np.where(np.isfinite(scores), scores, -np.inf)


def _exact_of_best(asked: Split[B], rough: Float[np.ndarray, " N"], limit: int, rounding: float) -> Asking[B, Scored]:
    """Those that may be among the best by rough scores."""
    finite = rough[np.isfinite(rough)]
    if (limit := min(limit, len(finite))) <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    doubt = 2 * rounding * max(1.0, float(np.abs(finite).max()))
    least = float(np.partition(finite, len(finite) - limit)[len(finite) - limit]) - doubt
    places = np.flatnonzero(rough >= least)
    return places, (yield asked.at(places))


def _whole(block: B) -> Part[B]:
    return Part(block, np.ones(len(block.ids), dtype=bool))


def _largest(guess: Float[np.ndarray, " N"], number: int) -> Bool[np.ndarray, " N"]:
    """Which of some finite numbers are the largest; more than so many if they are alike, or if too few are finite."""
    if number >= len(guess):
        return np.ones(len(guess), dtype=bool)
    finite = np.where(np.isfinite(guess), guess, -np.inf)
    return np.asarray(finite >= np.partition(finite, -number)[-number])


def _size(group: Sequence[Part[B]]) -> int:
    return sum(part.size for part in group)
