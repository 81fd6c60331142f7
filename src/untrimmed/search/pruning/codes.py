"""Rows rounded twice: to 4 bits a number, which rule most videos out, and to 8 bits, which rule out most of the rest.

A row is turned along the axes in which a corpus varies most (`Axes`). Its *codes* are the first `CODED` numbers in 4
bits; what they leave out adds at most the product of two lengths. Both parts of a row are turned at random besides, so
that the error of rounding has a random direction to any query. A product with a random direction is as good as never
more than `MARGIN` times its standard deviation (RaBitQ, SIGMOD 2024, Theorem 3.2: the chance falls as
exp(-MARGIN^2 / 2), 2e-11 here).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numkong
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int8, Int16, Shaped, UInt8

from untrimmed.search.cache.blocks import Split
from untrimmed.search.pruning.products import LANES, along
from untrimmed.search.pruning.threads import share

CODED = 320  # numbers of a row in 4 bits: more cost bytes in every scan, fewer leave more videos undecided
MARGIN = 7.0  # standard deviations
FITTED_TO = 2**15  # rows at most, to which axes are
_MOST_CODE, _MOST_8, _MOST_16 = 7, 127, 32000
_ROWS_AT_A_TIME = 2**15  # that are turned at once
_SCANNED_AT_A_TIME = 2**17  # rows that one thread takes at once
_READ_AT_A_TIME = 256  # videos
_MULTIPLIED_AT_A_TIME = 1024  # rows: few enough for the processor's cache
_LINE = 64  # bytes that the processor fetches at once


class Rounded(NamedTuple):
    """Rows along the axes, in units of their own."""

    codes: UInt8[
        np.ndarray, "R C"
    ]  # numbers i and C + i, C being CODED / 2, each 8 too large, in the low and the high half of a byte
    code_unit: Float32[np.ndarray, " R"]
    rest_length: Float32[np.ndarray, " R"]  # of the numbers that codes leave out
    rows: Int8[np.ndarray, "R W"]
    row_unit: Float32[np.ndarray, " R"]


@dataclass(frozen=True)
class Axes:
    """The directions along which rows are rounded: first those in which rows vary most."""

    matrix: Float32[np.ndarray, "D D"]  # orthogonal

    @classmethod
    def of(cls, rows: Float[np.ndarray, "R D"], seed: int = 0) -> Axes:
        """Axes that fit some rows of a corpus. Bounds hold for any rows. `seed` is that of the random turn."""
        rows = rows.astype(np.float32)
        _, directions = np.linalg.eigh((rows.T @ rows).astype(np.float64))
        rng = np.random.default_rng(seed)
        parts = np.split(directions[:, ::-1], [CODED], axis=1)
        turned = [part @ _turn(part.shape[1], rng) for part in parts]
        return cls(np.concatenate(turned, axis=1).astype(np.float32))

    @property
    def width(self) -> int:
        """Numbers of a rounded row."""
        return -(-max(len(self.matrix), CODED) // (2 * LANES)) * 2 * LANES

    def rounded(self, rows: Float[np.ndarray, "R D"]) -> Rounded:
        """Finite rows in 4 and 8 bits."""
        starts = range(0, len(rows), _ROWS_AT_A_TIME)
        parts = [self._rounded(rows[start : start + _ROWS_AT_A_TIME]) for start in starts]
        return Rounded(*map(np.concatenate, zip(*parts, strict=True)))

    def probe(self, vector: Float[np.ndarray, " D"]) -> Probe:
        """A query's vector along the axes."""
        return Probe(along(vector.astype(np.float32), self.matrix), self.width)

    def _rounded(self, rows: Float[np.ndarray, "R D"]) -> Rounded:
        turned = rows.astype(np.float32) @ self.matrix
        numbers, code_unit = _in_units(turned[:, :CODED], _MOST_CODE, np.uint8, CODED, offset=8)
        whole, row_unit = _in_units(turned, _MOST_8, np.int8, self.width)
        low, high = np.split(numbers, 2, axis=1)
        codes = low | high << 4
        return Rounded(codes, code_unit, np.linalg.norm(turned[:, CODED:], axis=1), whole, row_unit)


@dataclass(frozen=True, eq=False)
class Probe:
    """A query's vector along the axes of rows, and how far its products with rounded rows can be off."""

    turned: Float32[np.ndarray, " D"]
    width: int  # of rows

    @cached_property
    def length(self) -> float:
        """Of the vector."""
        return float(np.linalg.norm(self.turned))

    @cached_property
    def rest_length(self) -> np.float32:
        """Of the numbers that codes leave out."""
        return np.float32(np.linalg.norm(self.turned[CODED:]))

    @cached_property
    def numbers(self) -> tuple[Int16[np.ndarray, " W"], np.float32]:
        """In 16 bits, and their unit: as large as sums in 32 bits allow."""
        return self._numbers(min(_MOST_16, (2**31 - 1) // (_MOST_8 * self.width)), np.int16)

    @cached_property
    def short_numbers(self) -> tuple[Int8[np.ndarray, " W"], np.float32]:
        """In 8 bits, which are multiplied faster for many queries."""
        return self._numbers(_MOST_8, np.int8)

    def rounding(self, unit: np.float32, longest: float) -> tuple[np.float32, np.float32]:
        """Return (a, b): a product with a row of unit u, at most `longest` long, is off by a * u + b at most.

        `unit` is that of the query's own numbers. What both rounded off, and both together, is random.
        """
        deviation = MARGIN / 12**0.5
        of_row = deviation * (self.length + (self.width / 12) ** 0.5 * float(unit))
        return np.float32(of_row), np.float32(deviation * float(unit) * longest + 1e-6)

    def _numbers(self, most: int, kind: type[np.integer[Any]]) -> tuple[np.ndarray, np.float32]:
        numbers, unit = _in_units(self.turned[None], most, kind, self.width)
        return numbers[0], unit[0]


def _in_units(
    rows: Float32[np.ndarray, "R D"], most: int, kind: type[np.integer[Any]], width: int, *, offset: int = 0
) -> tuple[Shaped[np.ndarray, "R W"], Float32[np.ndarray, " R"]]:
    """Whole numbers from -`most` to `most` with zeros behind, all plus `offset`; and the unit of each row."""
    unit = (np.maximum(np.abs(rows).max(axis=1), np.float32(1e-20)) / most).astype(np.float32)
    numbers = np.full((len(rows), width), offset, dtype=kind)
    numbers[:, : rows.shape[1]] = np.rint(rows / unit[:, None]) + offset
    return numbers, unit


def _turn(dim: int, rng: np.random.Generator) -> Float[np.ndarray, "D D"]:
    turn, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
    return turn


@dataclass(frozen=True, eq=False)
class CodedVideos:
    """The rounded rows of some videos, one video after the other.

    Loops read these arrays without a look at each index, so they are checked here.
    """

    axes: Axes
    codes: UInt8[np.ndarray, "R C"]  # see `Rounded`
    code_unit: Float32[np.ndarray, " R"]
    rest_length: Float32[np.ndarray, " R"]
    rows: Int8[np.ndarray, "R W"]
    row_unit: Float32[np.ndarray, " R"]
    first_row: Int[np.ndarray, " _"]  # of each video, and where the last one ends
    unbounded: Bool[np.ndarray, " V"]  # videos with a row that is not finite
    longest: float  # row of all

    def __post_init__(self) -> None:
        """Raises: ValueError where arrays do not belong together."""
        number = len(self.rows)
        shapes = {"codes": (number, CODED // 2), "rows": (number, self.axes.width), "unbounded": (len(self),)}
        shapes |= dict.fromkeys(["code_unit", "rest_length", "row_unit"], (number,))
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} of videos have the shape {getattr(self, name).shape}, expected {shape}")
        if self.first_row[0] != 0 or self.first_row[-1] != number or (np.diff(self.first_row) < 1).any():
            raise ValueError(f"videos of {number} rounded rows do not follow each other, each with a row at least")

    @classmethod
    def of(cls, axes: Axes, rows: Float[np.ndarray, "R D"], counts: Int[np.ndarray, " V"]) -> CodedVideos:
        """Videos with so many rows each, at least one."""
        rows = np.asarray(rows, np.float32)
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            rows = np.where(finite[:, None], rows, 0)
        first_row = np.concatenate([[0], np.cumsum(counts)])
        return cls(
            axes=axes,
            **axes.rounded(rows)._asdict(),
            first_row=first_row,
            unbounded=~np.logical_and.reduceat(finite, first_row[:-1]),
            longest=float(np.sqrt(np.einsum("rd,rd->r", rows, rows).max())),
        )

    @classmethod
    def joined(cls, parts: Sequence[CodedVideos]) -> CodedVideos:
        """The videos of all parts, which have the same axes."""
        names = ("codes", "code_unit", "rest_length", "rows", "row_unit", "unbounded")
        return cls(
            axes=parts[0].axes,
            longest=max(part.longest for part in parts),
            first_row=np.cumsum([0, *np.concatenate([np.diff(part.first_row) for part in parts])]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        )

    def __len__(self) -> int:
        return len(self.first_row) - 1

    @property
    def num_rows(self) -> int:
        """Of all videos."""
        return len(self.rows)

    @cached_property
    def most_rows(self) -> int:
        """Of one video."""
        return int(np.diff(self.first_row).max())

    def by_codes(
        self, probe: Probe, videos: Int[np.ndarray, " N"]
    ) -> tuple[Float32[np.ndarray, " N"], Float32[np.ndarray, " N"]]:
        """The best row of each video by its codes, and what no row of it is above."""
        from untrimmed.search.pruning.kernels import best_codes

        videos = self._checked(videos)
        best = np.empty(len(videos), dtype=np.float32)
        most = np.empty(len(videos), dtype=np.float32)
        given = self.codes, self.code_unit, self.rest_length, self.first_row, videos
        best_codes(*given, *self._query(probe), best, most)
        most[self.unbounded[videos]] = np.inf
        return best, most

    def by_rows(
        self,
        probe: Probe,
        videos: Int[np.ndarray, " N"],
        needed: Float32[np.ndarray, " N"],
        is_open: Bool[np.ndarray, "_ M"],
    ) -> Float32[np.ndarray, " N"]:
        """What no row of each video is above; minus infinity where codes show that none is as good as `needed`.

        Unless it has no rows, `is_open` is told which rows of each video may be the best.
        """
        from untrimmed.search.pruning.kernels import best_rows

        videos = self._checked(videos)
        best = np.empty(len(videos), dtype=np.float32)
        if needed.shape != best.shape or (len(is_open) and is_open.shape != (len(videos), self.most_rows)):
            raise ValueError(f"{len(videos)} videos are asked for {needed.shape} scores and {is_open.shape} rows")
        given = self.codes, self.code_unit, self.rest_length, self.rows, self.row_unit, self.first_row, videos
        best_rows(*given, *self._query(probe), needed, best, is_open)
        unbounded = self.unbounded[videos]
        best[unbounded] = np.inf
        if len(is_open):
            is_open[unbounded] = np.arange(self.most_rows) < np.diff(self.first_row)[videos[unbounded], None]
        return best

    def _checked(self, videos: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """Raises: IndexError for a video that is not there."""
        if len(videos) and not (videos.min() >= 0 and videos.max() < len(self)):
            raise IndexError(f"videos {videos.min()} to {videos.max()} of {len(self)}")
        return np.ascontiguousarray(videos)

    def _query(self, probe: Probe) -> tuple[Any, ...]:
        """A query as loops take it: its numbers, their unit, its rest, and how far rounding puts a product off.

        Raises: ValueError for one with other axes.
        """
        numbers, unit = probe.numbers
        if len(numbers) != self.rows.shape[1]:
            raise ValueError(f"the query has {len(numbers)} numbers, rows have {self.rows.shape[1]}")
        return numbers, unit, probe.rest_length, *probe.rounding(unit, self.longest)


class CodedBlocks:
    """Those of all blocks of a corpus, one for each."""

    def __init__(self, each: Sequence[CodedVideos]):
        self.each = each
        self.axes = each[0].axes  # of all of them
        self.longest = max(coded.longest for coded in each)
        self.before = np.cumsum([0, *map(len, each)])  # videos before each block, and all of them

    @cached_property
    def at_a_time(self) -> int:
        """Videos that one thread takes at once."""
        return max(1, _SCANNED_AT_A_TIME * int(self.before[-1]) // sum(coded.num_rows for coded in self.each))

    def by_codes(self, probe: Probe, split: Split[Any], start: int, stop: int) -> Float32[np.ndarray, "2 N"]:
        """Of some of the videos: the best row by its codes, and what no row is above."""
        found = [coded.by_codes(probe, split.row[begin:end]) for coded, begin, end in self._runs(split, start, stop)]
        return np.concatenate(found, axis=1)

    def by_rows(self, probe: Probe, split: Split[Any], needed: Float[np.ndarray, " N"]) -> Float32[np.ndarray, " N"]:
        """What no row of each video is above; minus infinity where codes show that none is as good as `needed`."""
        least = (needed - 1e-5).astype(np.float32)  # rounded
        return self._read(probe, split, least, np.empty((0, 0), dtype=bool))

    def open_rows(self, probes: Sequence[Probe], split: Split[Any]) -> Bool[np.ndarray, "N R"]:
        """Which rows of each video may be the best for one of the probes."""
        is_open = np.zeros((len(split), max(coded.most_rows for coded in self.each)), dtype=bool)
        needed = np.full(len(split), -np.inf, dtype=np.float32)
        for probe in probes:
            own = np.zeros_like(is_open)
            self._read(probe, split, needed, own)
            is_open |= own
        return is_open

    def _runs(self, split: Split[Any], start: int, stop: int) -> Iterator[tuple[CodedVideos, int, int]]:
        """The videos that follow each other in one block."""
        number = split.number[start:stop]
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
        for begin, end in itertools.pairwise(cuts):
            if begin < end:
                yield self.each[number[begin]], start + begin, start + end

    def _read(
        self, probe: Probe, split: Split[Any], needed: Float32[np.ndarray, " N"], is_open: Bool[np.ndarray, "_ R"]
    ) -> Float32[np.ndarray, " N"]:
        found = np.empty(len(split), dtype=np.float32)

        def read(start: int, stop: int) -> None:
            for coded, begin, end in self._runs(split, start, stop):
                own = np.zeros((end - begin if len(is_open) else 0, coded.most_rows), dtype=bool)
                found[begin:end] = coded.by_rows(probe, split.row[begin:end], needed[begin:end], own)
                if len(is_open):
                    is_open[begin:end, : coded.most_rows] = own

        share(len(split), _READ_AT_A_TIME, read)
        return found

    def by_rows_of_many(self, probes: Sequence[Probe]) -> Float32[np.ndarray, "P V"]:
        """What no row of each video of all blocks is above, for each of many probes: rows are read once for all."""
        from untrimmed.search.pruning.kernels import best_of_videos

        queries, units = zip(*(probe.short_numbers for probe in probes), strict=True)
        margins = [probe.rounding(unit, self.longest) for probe, unit in zip(probes, units, strict=True)]
        of_row, of_query = np.array(margins, dtype=np.float32).T.copy()
        packed = numkong.dots_pack(np.stack(queries))
        most = np.empty((len(probes), int(self.before[-1])), dtype=np.float32)
        pieces = [
            (coded, before, start, min(start + step, len(coded)))
            for coded, before in zip(self.each, self.before.tolist(), strict=False)
            for step in [max(1, _MULTIPLIED_AT_A_TIME * len(coded) // coded.num_rows)]
            for start in range(0, len(coded), step)
        ]

        def look(first: int, last: int) -> None:
            for coded, before, start, stop in pieces[first:last]:
                ends = coded.first_row[start : stop + 1]
                rows = slice(ends[0], ends[-1])
                coded.rows[rows].reshape(-1)[::_LINE].max()  # rows are in the cache then; a product waits for each
                products = np.asarray(numkong.dots_packed(coded.rows[rows], packed))
                best = np.empty((stop - start, len(probes)), dtype=np.float32)
                best_of_videos(products, coded.row_unit[rows], ends - ends[0], np.array(units), of_row, best)
                most[:, before + start : before + stop] = best.T + of_query[:, None]

        share(len(pieces), 1, look)
        most[:, np.concatenate([coded.unbounded for coded in self.each])] = np.inf
        return most
