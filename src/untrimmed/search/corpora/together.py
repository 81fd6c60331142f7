"""What the vectors of many queries find in all videos, by one pass over all rows.

Each query alone reads codes of all rows; one product for many reads each row once. So the rows themselves, of 8 bits a
number, are multiplied in tiles, of which only the best of each video stays. Each query goes on from there until it asks
for the exact scores of a few videos; these are read for all queries at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float32

from untrimmed.search.cache.blocks import Split
from untrimmed.search.corpora.encoded_block import EncodedBlock
from untrimmed.search.corpora.trained_query import TrainedQuery, exact_of
from untrimmed.search.pruning.coded_videos import CodedBlocks
from untrimmed.search.pruning.codes import Probe
from untrimmed.search.pruning.ranking import RankedVideo

_FEWEST = 3  # queries: two cost as much as one after the other
_MOST = 64
_KEPT_BYTES = 2**29  # of what queries find and of their bounds, until the last of them is ranked


class Together:
    """Queries that are asked together; all blocks are looked at for all of them when the first of them asks."""

    def __init__(
        self,
        coded: Callable[[], Mapping[str, CodedBlocks]],
        queries: Callable[[], Iterable[Sequence[tuple[str, Probe]]]],
    ):
        """Once blocks have codes, both give something: `queries` the probes of each, with the branches they look at."""
        self._coded, self._queries = coded, queries
        self._places: list[list[tuple[str, int]]] = []
        self._found: dict[str, Float32[np.ndarray, "P V"]] = {}

    def most(self, number: int) -> Float32[np.ndarray, " V"]:
        """What all probes of a query find at most in each video of all blocks."""
        if not self._places:
            self._look()
        total, *others = (self._found[branch][place] for branch, place in self._places[number])
        for other in others:
            total = total + other
        return total

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
    kept = 4 * num_videos * (2 + max(query.num_vectors for query in queries))
    number = min(_MOST, max(1, _KEPT_BYTES // max(1, kept)))
    are_most = among is None or 2 * len(among) > num_videos
    ranked: list[list[RankedVideo]] = []
    for start in range(0, len(queries), number):
        some = queries[start : start + number]
        ranked += _rank_some(some, limit, among, share=are_most and len(some) >= _FEWEST)
    return ranked


@torch.inference_mode()
def _rank_some(
    queries: Sequence[TrainedQuery], limit: int, among: Collection[str] | None, *, share: bool
) -> list[list[RankedVideo]]:
    """Each goes on until it asks for exact scores; then all are answered together."""
    probes = partial(map, lambda query: query.probes if query.has_finite_vectors else [], queries)
    together = Together(lambda: queries[0].coded, probes)
    rankings = dict(enumerate(query.ranking(limit=limit, among=among) for query in queries))
    scores: dict[int, Float32[np.ndarray, " _"] | None] = dict.fromkeys(rankings)
    ranked: dict[int, list[RankedVideo]] = {}
    try:
        for number, query in enumerate(queries):
            query.known = partial(together.most, number) if share else None
        while scores:
            asked: dict[int, Split[EncodedBlock]] = {}
            for number, answer in scores.items():
                try:
                    # A generator that has not begun takes nothing but None.
                    asked[number] = rankings[number].send(answer)  # type: ignore[arg-type]
                except StopIteration as end:
                    ranked[number] = end.value
            answers = exact_of([(queries[number], split) for number, split in asked.items()])
            scores = dict(zip(asked, answers, strict=True))
    finally:
        for query in queries:
            query.known = None
    return [ranked[number] for number in rankings]
