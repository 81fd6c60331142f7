"""Codes of a branch of many blocks: loops go through all of them in one call, by the addresses of their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numkong
import numpy as np
from jaxtyping import Bool, Float, Float32

from untrimmed.search.cache.blocks import Split
from untrimmed.search.pruning.coded_videos import CodedRows, CodedVideos
from untrimmed.search.pruning.codes import Probe
from untrimmed.search.pruning.threads import share

_SCANNED_AT_A_TIME = 2**17  # rows that one thread takes at once
_READ_AT_A_TIME = 64  # videos
_MULTIPLIED_AT_A_TIME = 1024  # rows: few enough for the processor's cache

C = TypeVar("C", bound=CodedRows)


class CodedBlocks(Generic[C]):
    """Those of all blocks of a corpus, one for each."""

    def __init__(self, each: Sequence[C]):
        self.each = each
        self.axes = each[0].codes.axes  # of all of them
        self._addresses = np.stack([coded.addresses for coded in each])
        self._table = self._addresses.ctypes.data  # where loops find all that is kept here
        self.longest = max(coded.longest for coded in each)
        self.before = np.cumsum([0, *map(len, each)])  # videos before each block, and all of them

    @cached_property
    def at_a_time(self) -> int:
        """Videos that one thread takes at once."""
        return max(1, _SCANNED_AT_A_TIME * int(self.before[-1]) // sum(coded.num_rows for coded in self.each))

    def by_means(
        self, probe: Probe, split: Split[Any], start: int, stop: int, found: Float32[np.ndarray, " N"]
    ) -> None:
        """The best mean of some of the videos, by codes."""
        from untrimmed.search.pruning.kernels import scan_means

        scan_means(self._table, split.number, split.row, probe.numbers, probe.margins, start, stop, found)

    def by_codes(
        self, probe: Probe, split: Split[Any], start: int, stop: int, found: Float32[np.ndarray, "3 N"]
    ) -> None:
        """Of some of the videos: the best row by codes, what the true one is not above, what its code may be off."""
        from untrimmed.search.pruning.kernels import scan_codes

        scan_codes(self._table, split.number, split.row, probe.numbers, probe.margins, start, stop, *found)


class CodedVideoBlocks(CodedBlocks[CodedVideos]):
    """With rows in 8 bits."""

    def by_rows(self, probe: Probe, split: Split[Any], needed: Float[np.ndarray, " N"]) -> Float32[np.ndarray, " N"]:
        """What no row of each video is above, of those of which codes leave it open.

        Minus infinity where none is as good as `needed`.
        """
        found = np.empty(len(split), dtype=np.float32)
        self._read(probe, split, (needed - 1e-5).astype(np.float32), found, np.empty((0, 0), dtype=bool))  # rounded
        return found

    def open_rows(self, probes: Sequence[Probe], split: Split[Any]) -> Bool[np.ndarray, "N R"]:
        """Which rows of each video may be the best for one of the probes, whatever recall these are for."""
        is_open = np.zeros((len(split), max(coded.most_rows for coded in self.each)), dtype=bool)
        found, needed = np.empty(len(split), dtype=np.float32), np.full(len(split), -np.inf, dtype=np.float32)
        for probe in probes:
            own = np.zeros_like(is_open)
            self._read(probe.sure, split, needed, found, own)
            is_open |= own
        return is_open

    def _read(
        self,
        probe: Probe,
        split: Split[Any],
        needed: Float32[np.ndarray, " N"],
        found: Float32[np.ndarray, " N"],
        is_open: Bool[np.ndarray, "_ R"],
    ) -> None:
        from untrimmed.search.pruning.kernels import score_rows

        query, unit = probe.of_rows
        asked = query, unit, *probe.row_margins(unit, self.longest)
        given = split.number, split.row, probe.numbers, probe.margins, asked, needed

        def read(start: int, stop: int) -> None:
            score_rows(self._table, *given, start, stop, found, is_open)  # `self` keeps what lies at addresses

        share(len(split), _READ_AT_A_TIME, read)

    def by_rows_of_many(self, probes: Sequence[Probe]) -> Float32[np.ndarray, "P V"]:
        """What no row of each video of all blocks is above, for each of many probes: rows are read once for all."""
        from untrimmed.search.pruning.kernels import best_of_videos, bring

        queries, units = zip(*(probe.of_many_rows for probe in probes), strict=True)
        margins = [probe.row_margins(unit, self.longest) for probe, unit in zip(probes, units, strict=True)]
        packed, given = numkong.dots_pack(np.stack(queries)), (np.array(units), np.array(margins))
        most = np.empty((len(probes), int(self.before[-1])), dtype=np.float32)
        pieces = [
            (coded, before, start, min(start + step, len(coded)))
            for coded, before in zip(self.each, self.before.tolist(), strict=False)
            for step in [max(1, _MULTIPLIED_AT_A_TIME * len(coded) // coded.num_rows)]
            for start in range(0, len(coded), step)
        ]

        def look(first: int, last: int) -> None:
            for coded, before, start, stop in pieces[first:last]:
                rows = coded.rows[coded.first_row[start] : coded.first_row[stop]]
                bring(rows)
                products = np.asarray(numkong.dots_packed(rows, packed))
                best_of_videos(products, coded.first_row, coded.row_unit, *given, start, stop, most[:, before:])

        share(len(pieces), 1, look)
        most[:, np.concatenate([coded.unbounded for coded in self.each])] = np.inf
        return most
