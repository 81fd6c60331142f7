"""Which of many videos can be among the best, when a score is the sum of what a query's vectors find best in them.

All vectors look at the codes of all videos, unless what they find at most is known already (`Together`). Where it is
known by how much codes of means fall short of the scores of the best videos (`Shortfalls`), they look at these first,
and at codes only of the videos that are left. Of what codes leave, rows are read by one vector after the other, the
longest first, while a video can still reach what is needed, were the others to find all that codes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Float, Float32, Int

from untrimmed.search.blocks import Block, Bounding, Split
from untrimmed.search.codes import Probe
from untrimmed.search.threads import cores, share

_BLOCKS_PER_THREAD = 3  # fewer share the work within each

Places = Int[np.ndarray, " _"]


class Coded(Protocol):
    """Codes of a branch of some videos: see `CodedVideos`, whose rows they may be or not."""

    def by_means(self, probe: Probe, videos: Places, found: Float32[np.ndarray, " N"], /) -> None:
        """The best mean of rows of each video, by codes."""
        ...

    def by_codes(self, probe: Probe, videos: Places, found: Float32[np.ndarray, "3 N"], /) -> None:
        """Its best row by codes, what the true one is not above, what a row's code may be off."""
        ...

    def by_rows(
        self, probe: Probe, videos: Places, needed: Float[np.ndarray, " N"], found: Float32[np.ndarray, " N"], /
    ) -> None:
        """What its best row is not above, minus infinity where none is as good as needed."""
        ...


B = TypeVar("B", bound=Block)


class Candidates(Generic[B]):
    """One search for them, with what is known of each video so far."""

    def __init__(
        self,
        coded: Callable[[B], Mapping[str, Coded]],
        probes: Sequence[tuple[str, Probe]],
        *,
        fuzz: float,
        allowance: float | None = None,
        known: Callable[[B], Float32[np.ndarray, "P V"]] | None = None,
    ):
        """`probes` with the branches they look at, by which blocks have codes; an exact score is off by `fuzz`.

        With an `allowance` (see `Shortfalls`) means are looked at first; with what is `known`, which each probe finds
        at most in every video of a block, no codes are.
        """
        self._coded, self._fuzz, self._known = coded, fuzz, known
        order = sorted(range(len(probes)), key=lambda number: -probes[number][1].length)
        self._order, self._probes = order, [probes[number] for number in order]
        self._lengths = sum(probe.length for _, probe in probes)
        self.allowance = allowance
        self._most = np.empty((len(probes), 0), dtype=np.float32)  # what each finds at most in each video

    @property
    def bounds(self) -> Sequence[Bounding[B]]:
        """The first sees all videos."""
        if self._known is not None:
            return (self._as_known, self._by_rows)
        means = () if self.allowance is None else (self._by_means,)
        return (*means, self._by_codes, self._by_rows)

    @cached_property
    def _alike(self) -> Float32[np.ndarray, "P P"]:
        """What vectors of different branches are off is independent: their axes are turned by themselves."""
        alike = [[float(a == b) and one.likeness(two) for b, two in self._probes] for a, one in self._probes]
        return np.array(alike, dtype=np.float32)

    def shortfalls(self, split: Split[B], scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """By how much what all probes find among means falls short of scores, for probes of length 1 together."""
        return (scores - self._of_means(split)) / self._lengths

    def _of_means(self, split: Split[B]) -> Float32[np.ndarray, " N"]:
        found = np.empty((len(self._probes), sum(len(rows) for _, rows in split)), dtype=np.float32)

        def scan(block: B, rows: Int[np.ndarray, " K"], here: slice) -> None:
            coded = self._coded(block)
            for number, (branch, probe) in enumerate(self._probes):
                coded[branch].by_means(probe, rows, found[number, here])

        _each(split, scan)
        return found.sum(axis=0)

    def _by_means(self, split: Split[B], places: Places, _: float) -> Float32[np.ndarray, "2 N"]:
        assert self.allowance is not None
        self._most = np.full((len(self._probes), len(places)), np.inf, dtype=np.float32)
        total = self._of_means(split)
        return np.stack([total, total + np.float32(self.allowance * self._lengths)])

    def _as_known(self, split: Split[B], places: Places, _: float) -> Float32[np.ndarray, "2 N"]:
        assert self._known is not None
        self._most = np.concatenate([self._known(block)[:, rows] for block, rows in split], axis=1)[self._order]
        total = self._most.sum(axis=0)
        return np.stack([total, total + np.float32(self._fuzz)])

    def _by_codes(self, split: Split[B], places: Places, _: float) -> Float32[np.ndarray, "2 N"]:
        from untrimmed.search.kernels import add_up

        found = np.empty((3, len(self._probes), len(places)), dtype=np.float32)
        said = np.empty((2, len(places)), dtype=np.float32)
        given = *found, self._alike, np.float32(self._fuzz)

        def scan(block: B, rows: Int[np.ndarray, " K"], here: slice) -> None:
            coded = self._coded(block)
            for number, (branch, probe) in enumerate(self._probes):
                coded[branch].by_codes(probe, rows, found[:, number, here])
            add_up(*given, here.start, here.stop, *said)

        _each(split, scan)
        if self._most.size:
            self._most[:, places] = found[1]
        else:
            self._most = found[1]
        return said

    def _by_rows(self, split: Split[B], places: Places, least: float) -> Float[np.ndarray, "2 N"]:
        most = self._most[:, places]
        total = most.sum(axis=0, dtype=np.float64)
        left = np.flatnonzero(np.isfinite(total))
        for (branch, probe), allowed in zip(self._probes, most, strict=True):
            others = total[left] - allowed[left]
            found = self._read(branch, probe, _of(split, left), least - self._fuzz - others)
            total[left] = others + found
            left = left[total[left] + self._fuzz >= least]
        return np.stack([total, total + self._fuzz])

    def _read(
        self, branch: str, probe: Probe, split: Split[B], needed: Float[np.ndarray, " N"]
    ) -> Float32[np.ndarray, " N"]:
        found = np.empty(len(needed), dtype=np.float32)

        def read(block: B, rows: Int[np.ndarray, " K"], here: slice) -> None:
            self._coded(block)[branch].by_rows(probe, rows, needed[here], found[here])

        _each(split, read)
        return found


def _each(split: Split[B], work: Callable[[B, Int[np.ndarray, " K"], slice], None]) -> None:
    """Work on the rows of every block, which stand at a part of all; where blocks are many, each is one thread's."""
    ends = np.cumsum([0, *(len(rows) for _, rows in split)]).tolist()

    def run(start: int, stop: int) -> None:
        for number in range(start, stop):
            work(*split[number], slice(ends[number], ends[number + 1]))

    if len(split) < _BLOCKS_PER_THREAD * cores():
        run(0, len(split))
    else:
        share(len(split), 1, run)


def _of(split: Split[B], left: Int[np.ndarray, " K"]) -> Split[B]:
    """Those that are left, by their places among all."""
    ends = np.cumsum([0, *(len(rows) for _, rows in split)])
    cuts = np.searchsorted(left, ends)
    each = zip(split, ends, cuts, cuts[1:], strict=False)
    return [(block, rows[left[a:b] - start]) for (block, rows), start, a, b in each if b > a]
