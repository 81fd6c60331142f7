"""What the vectors of many queries find in all videos, by one pass over all rows.

Each query alone reads codes of all rows; one product for many reads each row once. So the rows themselves, of 8 bits a
number, are multiplied in tiles, of which only the best of each video stays. Each query goes on by itself from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from jaxtyping import Float32

from untrimmed.search.blocks import Block
from untrimmed.search.coded_videos import CodedVideos
from untrimmed.search.codes import Probe
from untrimmed.search.corpus import RankedVideo
from untrimmed.search.threads import cores
from untrimmed.search.torch_threads import each_alone

if TYPE_CHECKING:
    from untrimmed.search.trained import TrainedQuery

_FEWEST = 3  # queries: two cost as much as one after the other
_MOST = 64
_KEPT_BYTES = 2**29  # of what queries find, until the last of them is ranked

B = TypeVar("B", bound=Block)


class Together(Generic[B]):
    """Queries that are asked together; a block is looked at for all when it is first asked about."""

    def __init__(
        self,
        coded: Callable[[B], Mapping[str, CodedVideos]],
        queries: Callable[[], Sequence[Sequence[tuple[str, Probe]]]],
    ):
        """`queries` gives, once blocks have codes, the probes of each query with the branches they look at."""
        self._coded, self._queries = coded, queries
        self._probes: dict[str, list[Probe]] = {}
        self._places: list[list[tuple[str, int]]] = []
        self._found: dict[B, dict[str, Float32[np.ndarray, "P V"]]] = {}
        self._lock = threading.Lock()

    def most(self, number: int, block: B) -> Float32[np.ndarray, "M V"]:
        """What each probe of a query finds at most in each video."""
        with self._lock:
            if not self._places:
                self._gather()
            if block not in self._found:
                coded = self._coded(block)
                self._found[block] = {
                    some: coded[some].by_rows_of_many(probes) for some, probes in self._probes.items()
                }
        found = self._found[block]
        return np.stack([found[branch][place] for branch, place in self._places[number]])

    def _gather(self) -> None:
        for probes in self._queries():
            self._places.append([])
            for branch, probe in probes:
                among = self._probes.setdefault(branch, [])
                self._places[-1].append((branch, len(among)))
                among.append(probe)


def rank_together(
    queries: Sequence[TrainedQuery], *, limit: int, among: Collection[str] | None = None
) -> list[list[RankedVideo]]:
    """As each of some queries of one corpus ranks; where it pays, the first looks at all videos for the others, too."""
    if len(queries) < 2:
        return [query.rank(limit=limit, among=among) for query in queries]
    num_videos = len(queries[0].blocks)
    kept = 4 * num_videos * max(1, *(query.num_vectors for query in queries))
    number = min(_MOST, max(1, _KEPT_BYTES // kept))
    are_most = among is None or 2 * len(among) > num_videos
    ranked: list[list[RankedVideo]] = []
    for start in range(0, len(queries), number):
        some = queries[start : start + number]
        ranked += _rank_some(some, limit, among, share=are_most and len(some) >= _FEWEST)
    return ranked


def _rank_some(
    queries: Sequence[TrainedQuery], limit: int, among: Collection[str] | None, *, share: bool
) -> list[list[RankedVideo]]:
    """As many at a time as there are cores, so that searches of other threads find their turn between."""
    ranked: list[list[RankedVideo]] = []
    together = Together(queries[0].coder.of, lambda: [query.probes if query.is_finite else [] for query in queries])
    try:
        for number, query in enumerate(queries):
            query.known = partial(together.most, number) if share else None
        for start in range(0, len(queries), cores()):
            ranked += each_alone(lambda query: query.rank(limit=limit, among=among), queries[start : start + cores()])
    finally:
        for query in queries:
            query.known = None
    return ranked
