"""Quantized rows: 4-bit codes prune most videos, and 8-bit rows prune most of the remaining ones.

A row is one vector of a video. It is projected on `Axes`, in the order of their variance. Its *codes* are the first
`CODED` numbers in 4 bits, and the other numbers are its *rest*. The product of the rests of a row and a query is at
most the product of their lengths. Codes and rest are rotated at random, so the rounding error has a random direction
for any query. A product with a random direction almost never exceeds `MARGIN` times its standard deviation (RaBitQ,
SIGMOD 2024, Theorem 3.2: the probability is about exp(-MARGIN^2 / 2), 2e-11 here).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numkong
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int8, Int16, Shaped, UInt8

from untrimmed.search.cache.blocks import Selection
from untrimmed.search.pruning.products import LANES, project
from untrimmed.search.pruning.threads import share_work

CODED = 320  # number of 4-bit values per row; with more values the scan is slower, with fewer it prunes less
MARGIN = 7.0  # upper bounds include rounding errors of up to this many standard deviations
FITTED_TO = 2**15  # largest number of rows to which axes are fitted
_MAX_CODE = 7
_MAX_8 = 127
_MAX_16 = 32000
_ROWS_AT_A_TIME = 2**15  # rows to rotate at a time
_SCANNED_AT_A_TIME = 2**17  # rows that a thread scans at a time
_READ_AT_A_TIME = 256  # number of videos whose rows a thread reads at a time
_MULTIPLIED_AT_A_TIME = 1024  # rows that fit into the processor's cache
_LINE = 64  # bytes in a cache line of the processor

# Products of a query with the codes of each row of some videos. An empty array means that they are not kept.
RowProducts = Float32[np.ndarray, " _"]


@dataclass(frozen=True)
class Axes:
    """The directions onto which rows are projected: the `CODED` directions of largest variance, then the others.

    In each of the two parts, the directions are rotated at random.
    """

    matrix: Float32[np.ndarray, "D D"]  # an orthogonal matrix

    @classmethod
    def of(cls, rows: Float[np.ndarray, "R D"], seed: int = 0) -> Axes:
        """Return axes fitted to rows of a corpus.

        Bounds also hold for other rows. `seed` selects the random rotation.
        """
        rows = rows.astype(np.float32)
        _, directions = np.linalg.eigh((rows.T @ rows).astype(np.float64))
        rng = np.random.default_rng(seed)
        parts = np.split(directions[:, ::-1], [CODED], axis=1)
        rotated = [part @ np.linalg.qr(rng.standard_normal((part.shape[1],) * 2))[0] for part in parts]
        return cls(np.concatenate(rotated, axis=1).astype(np.float32))

    @property
    def width(self) -> int:
        """The width of 8-bit rows, including padding."""
        return -(-max(len(self.matrix), CODED) // (2 * LANES)) * 2 * LANES

    def quantized(self, rows: Float[np.ndarray, "R D"]) -> dict[str, np.ndarray]:
        """Return finite rows in quantized form: the fields of `CodedVideos` by name."""
        starts = range(0, len(rows), _ROWS_AT_A_TIME)
        parts = [self._quantized(rows[start : start + _ROWS_AT_A_TIME]) for start in starts]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def probe(self, vector: Float[np.ndarray, " D"]) -> Probe:
        """Return the projection of a query's vector."""
        return Probe(project(vector.astype(np.float32), self.matrix), self.width)

    def _quantized(self, rows: Float[np.ndarray, "R D"]) -> dict[str, np.ndarray]:
        projected = rows.astype(np.float32) @ self.matrix
        numbers, code_unit = _quantize(projected[:, :CODED], _MAX_CODE, np.uint8, CODED, offset=8)
        whole, row_unit = _quantize(projected, _MAX_8, np.int8, self.width)
        low, high = np.split(numbers, 2, axis=1)
        rest_length = np.linalg.norm(projected[:, CODED:], axis=1)
        codes = low | high << 4
        return {"codes": codes, "code_unit": code_unit, "rest_length": rest_length, "rows": whole, "row_unit": row_unit}


@dataclass(frozen=True, eq=False)
class Probe:
    """A projected query vector, and bounds on the error of its products with quantized rows."""

    projected: Float32[np.ndarray, " D"]
    width: int  # number of values in an 8-bit row

    @cached_property
    def length(self) -> float:
        """The length of the vector."""
        return float(np.linalg.norm(self.projected))

    @cached_property
    def rest_length(self) -> np.float32:
        """The length of the part of the vector that has no codes."""
        return np.float32(np.linalg.norm(self.projected[CODED:]))

    @cached_property
    def numbers(self) -> tuple[Int16[np.ndarray, " W"], np.float32]:
        """The vector as integers, and their step size. Products of the integers with rows fit into 32 bits."""
        return self._numbers(min(_MAX_16, (2**31 - 1) // (_MAX_8 * self.width)), np.int16)

    @cached_property
    def short_numbers(self) -> tuple[Int8[np.ndarray, " W"], np.float32]:
        """The vector as 8-bit integers, and their step size. These are faster for many queries."""
        return self._numbers(_MAX_8, np.int8)

    def rounding(self, unit: np.float32, longest: float) -> tuple[np.float32, np.float32]:
        """Return (a, b) such that the error of the product with a row of step size u is at most a * u + b.

        This holds for rows up to the length `longest`, if rounding errors are random. `unit` is the step size of the
        query's numbers.
        """
        deviation = MARGIN / 12**0.5
        row_error = deviation * (self.length + (self.width / 12) ** 0.5 * float(unit))
        return np.float32(row_error), np.float32(deviation * float(unit) * longest + 1e-6)

    def _numbers(self, largest: int, kind: type[np.integer[Any]]) -> tuple[np.ndarray, np.float32]:
        numbers, unit = _quantize(self.projected[None], largest, kind, self.width)
        return numbers[0], unit[0]


def _quantize(
    rows: Float32[np.ndarray, "R D"], largest: int, kind: type[np.integer[Any]], width: int, *, offset: int = 0
) -> tuple[Shaped[np.ndarray, "R W"], Float32[np.ndarray, " R"]]:
    """Return rows as integers between -`largest` and `largest`, plus `offset`, and the step size of each row.

    Rows are padded with zeros to `width`.
    """
    unit = (np.maximum(np.abs(rows).max(axis=1), np.float32(1e-20)) / largest).astype(np.float32)
    numbers = np.full((len(rows), width), offset, dtype=kind)
    numbers[:, : rows.shape[1]] = np.rint(rows / unit[:, None]) + offset
    return numbers, unit


@dataclass(frozen=True, eq=False)
class CodedVideos:
    """The quantized rows of some videos, in order. This class checks indices, because the compiled loops do not."""

    axes: Axes
    # C = CODED / 2. Byte i contains number i in its low half and number C + i in its high half, each plus 8.
    codes: UInt8[np.ndarray, "R C"]
    code_unit: Float32[np.ndarray, " R"]
    rest_length: Float32[np.ndarray, " R"]  # length of the part of a row that has no codes
    rows: Int8[np.ndarray, "R W"]
    row_unit: Float32[np.ndarray, " R"]
    first_row: Int[np.ndarray, " _"]  # index of each video's first row, and at the end the number of rows
    unbounded: Bool[np.ndarray, " V"]  # videos with an infinite or NaN row; their upper bound is infinite
    longest: float  # length of the longest row

    def __post_init__(self) -> None:
        """Raise a ValueError if shapes are inconsistent."""
        number = len(self.rows)
        shapes = {"codes": (number, CODED // 2), "rows": (number, self.axes.width), "unbounded": (len(self),)}
        shapes |= dict.fromkeys(["code_unit", "rest_length", "row_unit"], (number,))
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} of videos have the shape {getattr(self, name).shape}, expected {shape}")
        if self.first_row[0] != 0 or self.first_row[-1] != number or (np.diff(self.first_row) < 1).any():
            raise ValueError(f"first_row does not split {number} rows into videos with at least one row each")

    @classmethod
    def of(cls, axes: Axes, rows: Float[np.ndarray, "R D"], counts: Int[np.ndarray, " V"]) -> CodedVideos:
        """Return the quantized rows of several videos. `counts` is the number of rows of each video, at least one."""
        rows = np.asarray(rows, np.float32)
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            rows = np.where(finite[:, None], rows, 0)
        first_row = np.concatenate([[0], np.cumsum(counts)])
        return cls(
            axes=axes,
            **axes.quantized(rows),
            first_row=first_row,
            unbounded=~np.logical_and.reduceat(finite, first_row[:-1]),
            longest=float(np.sqrt(np.einsum("rd,rd->r", rows, rows).max())),
        )

    @classmethod
    def joined(cls, parts: Sequence[CodedVideos]) -> CodedVideos:
        """Concatenate videos with the same axes."""
        names = ("codes", "code_unit", "rest_length", "rows", "row_unit", "unbounded")
        return cls(
            axes=parts[0].axes,
            longest=max(part.longest for part in parts),
            first_row=np.cumsum([0, *np.concatenate([np.diff(part.first_row) for part in parts])]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        )

    def __len__(self) -> int:
        return len(self.first_row) - 1

    @cached_property
    def max_rows(self) -> int:
        """The largest number of rows of a video."""
        return int(np.diff(self.first_row).max())

    def bounds_by_codes(
        self, probe: Probe, videos: Int[np.ndarray, " N"], products: RowProducts
    ) -> tuple[Float32[np.ndarray, " N"], Float32[np.ndarray, " N"]]:
        """Return two arrays: each video's largest product with a query, computed from codes, and its upper bound.

        The products of the videos' rows are written to `products`, unless this array is empty.
        """
        from untrimmed.search.pruning.kernels import best_codes

        videos = self._checked_indices(videos)
        best = np.empty(len(videos), dtype=np.float32)
        upper = np.empty(len(videos), dtype=np.float32)
        arrays = self.codes, self.code_unit, self.rest_length, self.first_row, videos
        best_codes(*arrays, *self._loop_arguments(probe), self._checked_products(products), best, upper)
        upper[self.unbounded[videos]] = np.inf
        return best, upper

    def bounds_by_rows(
        self,
        probe: Probe,
        videos: Int[np.ndarray, " N"],
        products: RowProducts,
        needed: Float32[np.ndarray, " N"],
        may_be_best: Bool[np.ndarray, "_ M"],
    ) -> Float32[np.ndarray, " N"]:
        """Return an upper bound of each video's largest product, or minus infinity if no row can reach `needed`.

        `products` are those of `bounds_by_codes`; if this array is empty, they are computed again. A mask of the rows
        that may have the largest product is written to `may_be_best`, unless this array is empty.
        """
        from untrimmed.search.pruning.kernels import best_rows

        videos = self._checked_indices(videos)
        best = np.empty(len(videos), dtype=np.float32)
        if needed.shape != best.shape or (len(may_be_best) and may_be_best.shape != (len(videos), self.max_rows)):
            raise ValueError(f"needed {needed.shape}, may_be_best {may_be_best.shape} do not fit {len(videos)} videos")
        arrays = self.codes, self.code_unit, self.rest_length, self.rows, self.row_unit, self.first_row, videos
        best_rows(*arrays, *self._loop_arguments(probe), self._checked_products(products), needed, best, may_be_best)
        unbounded = self.unbounded[videos]
        best[unbounded] = np.inf
        if len(may_be_best):
            may_be_best[unbounded] = np.arange(self.max_rows) < np.diff(self.first_row)[videos[unbounded], None]
        return best

    def _checked_indices(self, videos: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """Return the indices for compiled loops. Raises IndexError if an index is out of range."""
        if len(videos) and not (videos.min() >= 0 and videos.max() < len(self)):
            raise IndexError(f"videos {videos.min()} to {videos.max()} of {len(self)}")
        return np.ascontiguousarray(videos)

    def _checked_products(self, products: RowProducts) -> RowProducts:
        """Return products for compiled loops. Raises ValueError unless there is one per row, or none."""
        if products.shape not in ((0,), (len(self.rows),)):
            raise ValueError(
                f"products have the shape {products.shape}, expected one for each of {len(self.rows)} rows"
            )
        return products

    def _loop_arguments(self, probe: Probe) -> tuple[Any, ...]:
        """Return a query as arguments of the compiled loops.

        These are its numbers, their step size, the length of the part of the vector without codes, and the rounding
        errors.

        Raises:
            ValueError: The query has another width.
        """
        numbers, unit = probe.numbers
        if len(numbers) != self.rows.shape[1]:
            raise ValueError(f"the query has {len(numbers)} numbers, rows have {self.rows.shape[1]}")
        return numbers, unit, probe.rest_length, *probe.rounding(unit, self.longest)


class CodedBlocks:
    """The quantized rows of all blocks of a corpus. All have the same axes."""

    def __init__(self, blocks: Sequence[CodedVideos]):
        self.blocks = blocks
        self.axes = blocks[0].axes
        self.longest = max(coded.longest for coded in blocks)
        self.num_rows = sum(len(coded.rows) for coded in blocks)
        # index of each block's first video, and at the end the number of all videos
        self.first_video = np.cumsum([0, *map(len, blocks)])

    @cached_property
    def at_a_time(self) -> int:
        """The number of videos that a thread scans at a time."""
        return max(1, _SCANNED_AT_A_TIME * int(self.first_video[-1]) // self.num_rows)

    def empty_products(self, num_rows: int) -> list[RowProducts]:
        """Return one array per block for the products of its rows. With over `num_rows` rows, all arrays are empty."""
        return [np.empty(len(coded.rows) * (self.num_rows <= num_rows), np.float32) for coded in self.blocks]

    def bounds_by_codes(
        self, probe: Probe, videos: Selection[Any], start: int, stop: int, products: Sequence[RowProducts]
    ) -> Float32[np.ndarray, "2 N"]:
        """Return the two arrays of `CodedVideos.bounds_by_codes` for the videos `start` to `stop` - 1.

        `products` has an array for each block.
        """
        runs = videos.at(slice(start, stop)).runs()
        bounds = [
            self.blocks[block].bounds_by_codes(probe, videos.row_index[start + i : start + j], products[block])
            for block, i, j in runs
        ]
        return np.concatenate(bounds, axis=1)

    def bounds_by_rows(
        self, probe: Probe, videos: Selection[Any], products: Sequence[RowProducts], needed: Float[np.ndarray, " N"]
    ) -> Float32[np.ndarray, " N"]:
        """Return an upper bound of each video's largest product, or minus infinity if no row can reach `needed`.

        `products` are those of `bounds_by_codes`.
        """
        least = (needed - 1e-5).astype(np.float32)  # subtract the rounding tolerance
        return self._bounds_by_rows(probe, videos, products, least, np.empty((0, 0), dtype=bool))

    def possible_best_rows(self, probes: Sequence[Probe], videos: Selection[Any]) -> Bool[np.ndarray, "N R"]:
        """Return a mask of the rows of each video that may have the largest product with one of the probes."""
        may_be_best = np.zeros((len(videos), max(coded.max_rows for coded in self.blocks)), dtype=bool)
        needed = np.full(len(videos), -np.inf, dtype=np.float32)
        none = self.empty_products(0)
        for probe in probes:
            probe_mask = np.zeros_like(may_be_best)
            self._bounds_by_rows(probe, videos, none, needed, probe_mask)
            may_be_best |= probe_mask
        return may_be_best

    def _bounds_by_rows(
        self,
        probe: Probe,
        videos: Selection[Any],
        products: Sequence[RowProducts],
        needed: Float32[np.ndarray, " N"],
        may_be_best: Bool[np.ndarray, "_ R"],
    ) -> Float32[np.ndarray, " N"]:
        upper = np.empty(len(videos), dtype=np.float32)

        def read(start: int, stop: int) -> None:
            for block, begin, end in videos.at(slice(start, stop)).runs():
                coded = self.blocks[block]
                run = slice(start + begin, start + end)
                run_mask = np.zeros((end - begin if len(may_be_best) else 0, coded.max_rows), dtype=bool)
                rows = videos.row_index[run]
                upper[run] = coded.bounds_by_rows(probe, rows, products[block], needed[run], run_mask)
                if len(may_be_best):
                    may_be_best[run, : coded.max_rows] = run_mask

        share_work(len(videos), _READ_AT_A_TIME, read)
        return upper

    def bounds_of_many(self, probes: Sequence[Probe]) -> Float32[np.ndarray, "P V"]:
        """Return an upper bound of each video's largest product with each of many probes.

        Each row is read only once.
        """
        from untrimmed.search.pruning.kernels import best_of_videos

        queries, units = zip(*(probe.short_numbers for probe in probes), strict=True)
        margins = [probe.rounding(unit, self.longest) for probe, unit in zip(probes, units, strict=True)]
        row_error, query_error = np.array(margins, dtype=np.float32).T.copy()
        packed = numkong.dots_pack(np.stack(queries))
        upper = np.empty((len(probes), int(self.first_video[-1])), dtype=np.float32)
        pieces = [
            (coded, first_video, start, min(start + step, len(coded)))
            for coded, first_video in zip(self.blocks, self.first_video.tolist(), strict=False)
            for step in [max(1, _MULTIPLIED_AT_A_TIME * len(coded) // len(coded.rows))]
            for start in range(0, len(coded), step)
        ]

        def multiply(first: int, last: int) -> None:
            for coded, first_video, start, stop in pieces[first:last]:
                ends = coded.first_row[start : stop + 1]
                rows = slice(ends[0], ends[-1])
                coded.rows[rows].reshape(-1)[::_LINE].max()  # load the rows into the cache first
                products = np.asarray(numkong.dots_packed(coded.rows[rows], packed))
                best = np.empty((stop - start, len(probes)), dtype=np.float32)
                best_of_videos(products, coded.row_unit[rows], ends - ends[0], np.array(units), row_error, best)
                upper[:, first_video + start : first_video + stop] = best.T + query_error[:, None]

        share_work(len(pieces), 1, multiply)
        upper[:, np.concatenate([coded.unbounded for coded in self.blocks])] = np.inf
        return upper
