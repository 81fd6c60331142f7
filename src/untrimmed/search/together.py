"""What the vectors of many queries find in all videos, by one pass over all rows.

Each query alone reads codes of all rows; one product for many reads each row once. So the rows themselves, of 8 bits a
number, are multiplied in tiles, of which only the best of each video stays. Each query goes on by itself from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from untrimmed.search.coded_blocks import CodedVideoBlocks
from untrimmed.search.codes import Probe
from untrimmed.search.corpus import RankedVideo
from untrimmed.search.threads import cores
from untrimmed.search.torch_threads import each_alone

if TYPE_CHECKING:
    from untrimmed.search.trained_query import TrainedQuery

_FEWEST = 3  # queries: two cost as much as one after the other
_MOST = 64
_KEPT_BYTES = 2**29  # of what queries find, until the last of them is ranked


class Together:
    """Queries that are asked together; all blocks are looked at for all of them when the first of them asks."""

    def __init__(
        self,
        coded: Callable[[], Mapping[str, CodedVideoBlocks]],
        queries: Callable[[], Iterable[Sequence[tuple[str, Probe]]]],
    ):
        """Once blocks have codes, both give something: `queries` the probes of each, with the branches they look at."""
        self._coded, self._queries = coded, queries
        self._places: list[list[tuple[str, int]]] = []
        self._found: dict[str, Float32[np.ndarray, "P V"]] = {}
        self._lock = threading.Lock()

    def most(self, number: int) -> Float32[np.ndarray, "M V"]:
        """What each probe of a query finds at most in each video of all blocks."""
        with self._lock:
            if not self._places:
                self._look()
        places = self._places[number]
        return np.stack([self._found[branch][place] for branch, place in places])

    def _look(self) -> None:
        probes: dict[str, list[Probe]] = {}
        places: list[list[tuple[str, int]]] = []
        for own in self._queries():
            places.append([])
            for branch, probe in own:
                among = probes.setdefault(branch, [])
                places[-1].append((branch, len(among)))
                among.append(probe)
        coded = self._coded()
        self._found = {branch: coded[branch].by_rows_of_many(some) for branch, some in probes.items()}
        self._places = places


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
    probes = partial(map, lambda query: query.probes if query.is_finite else [], queries)
    together = Together(lambda: queries[0].coded, probes)
    try:
        for number, query in enumerate(queries):
            query.known = partial(together.most, number) if share else None
        for start in range(0, len(queries), cores()):
            ranked += each_alone(lambda query: query.rank(limit=limit, among=among), queries[start : start + cores()])
    finally:
        for query in queries:
            query.known = None
    return ranked
