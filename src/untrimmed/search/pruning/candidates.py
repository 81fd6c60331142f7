"""Which of many videos can be among the best, when a score is the sum of what a query's vectors find best in them.

All vectors look at the codes of all videos, unless what they find at most is known already (`Together`). Where it is
known by how much codes of means fall short of the scores of the best videos (`Shortfalls`), they look at these first,
and at codes only of the videos that are left. Of what codes leave, rows are read by one vector after the other, the
longest first, while a video can still reach what is needed, were the others to find all that codes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Float32, Int

from untrimmed.search.cache.blocks import Block, Split
from untrimmed.search.pruning.coded_blocks import CodedBlocks
from untrimmed.search.pruning.coded_videos import GROUP
from untrimmed.search.pruning.codes import Probe
from untrimmed.search.pruning.ranking import Bound
from untrimmed.search.pruning.threads import share

B = TypeVar("B", bound=Block)
Places = Int[np.ndarray, " _"]
Bounds = tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]  # see `ranking.Bound`
# What the best row of each video is not above, for a probe of a branch; minus infinity where none is as good as needed.
ByRows = Callable[[str, Probe, Split[B], Float[np.ndarray, " N"]], Float32[np.ndarray, " N"]]


class Candidates(Generic[B]):
    """One search for them, with what is known of each video so far."""

    def __init__(
        self,
        coded: Mapping[str, CodedBlocks[Any]],
        by_rows: ByRows[B],
        probes: Sequence[tuple[str, Probe]],
        *,
        fuzz: float,
        allowance: float | None = None,
        known: Callable[[], Float32[np.ndarray, " V"]] | None = None,
    ):
        """`coded` by branch, of all blocks; `probes` with the branches they look at; an exact score is off by `fuzz`.

        With an `allowance` (see `Shortfalls`) means are looked at first; with what is `known`, which all probes find
        at most in every video of all blocks, neither means nor codes nor rows are.
        """
        self._coded, self._by_rows_of, self._fuzz, self._known = coded, by_rows, fuzz, known
        order = sorted(range(len(probes)), key=lambda number: -probes[number][1].length)
        self._probes = [probes[number] for number in order]
        self._lengths = sum(probe.length for _, probe in probes)
        self.allowance = allowance
        self._most = np.empty((len(probes), 0), dtype=np.float32)  # what each finds at most in each video

    @property
    def bounds(self) -> Sequence[Bound[B]]:
        """The first sees all videos."""
        if self._known is not None:
            return (self._as_known,)
        means = () if self.allowance is None else (self._by_means,)
        return (*means, self._by_codes, self._by_rows)

    @cached_property
    def _alike(self) -> Float32[np.ndarray, "P P"]:
        """What vectors of different branches are off is independent: their axes are turned by themselves."""
        alike = [[float(a == b) and one.likeness(two) for b, two in self._probes] for a, one in self._probes]
        return np.array(alike, dtype=np.float32)

    @cached_property
    def _at_a_time(self) -> int:
        """Videos of which one thread looks at codes at once: so few that they stay in its cache from probe to probe."""
        branches = [branch for branch, _ in self._probes]
        return min(max(1, self._coded[branch].at_a_time // branches.count(branch)) for branch in branches)

    def shortfalls(self, split: Split[B], scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """By how much what all probes find among means falls short of scores, for probes of length 1 together."""
        return (scores - self._of_means(split)) / self._lengths

    def _of_means(self, split: Split[B]) -> Float32[np.ndarray, " N"]:
        found = np.empty((len(self._probes), len(split)), dtype=np.float32)

        def scan(start: int, stop: int) -> None:
            for (branch, probe), own in zip(self._probes, found, strict=True):
                self._coded[branch].by_means(probe, split, start, stop, own)

        share(len(split), GROUP * self._at_a_time, scan)
        return found.sum(axis=0)

    def _by_means(self, split: Split[B], places: Places, _: float) -> Bounds:
        assert self.allowance is not None
        self._most = np.full((len(self._probes), len(places)), np.inf, dtype=np.float32)
        total = self._of_means(split)
        return total, total + np.float32(self.allowance * self._lengths)

    def _as_known(self, split: Split[B], places: Places, _: float) -> Bounds:
        assert self._known is not None
        before, total = next(iter(self._coded.values())).before, self._known()
        if len(split) < len(total):
            total = total[before[split.number] + split.row]
        return total, total + np.float32(self._fuzz)

    def _by_codes(self, split: Split[B], places: Places, _: float) -> Bounds:
        from untrimmed.search.pruning.kernels import add_up

        found = np.empty((3, len(self._probes), len(places)), dtype=np.float32)
        said = np.empty(len(places), dtype=np.float32), np.empty(len(places), dtype=np.float32)
        given = *found, self._alike, np.float32(self._fuzz)

        def scan(start: int, stop: int) -> None:
            for number, (branch, probe) in enumerate(self._probes):
                self._coded[branch].by_codes(probe, split, start, stop, found[:, number])
            add_up(*given, start, stop, *said)

        share(len(split), self._at_a_time, scan)
        if self._most.size:
            self._most[:, places] = found[1]
        else:
            self._most = found[1]
        return said

    def _by_rows(self, split: Split[B], places: Places, least: float) -> Bounds:
        most = self._most[:, places]
        total = most.sum(axis=0, dtype=np.float64)
        left = np.flatnonzero(np.isfinite(total))
        for (branch, probe), allowed in zip(self._probes, most, strict=True):
            others = total[left] - allowed[left]
            found = self._by_rows_of(branch, probe, split.at(left), least - self._fuzz - others)
            total[left] = others + found
            left = left[total[left] + self._fuzz >= least]
        return total, total + self._fuzz
