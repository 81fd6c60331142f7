"""What the vectors of many queries find in all videos, by one pass over all rows.

Each query alone reads codes of all rows; one product for many reads each row once. So the rows themselves, of 8 bits a
number, are multiplied in tiles, of which only the best of each video stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float32

from untrimmed.search.blocks import Block
from untrimmed.search.coded_videos import CodedVideos
from untrimmed.search.codes import Probe

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
