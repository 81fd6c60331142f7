"""What is read of many vectors in their stead: codes of a ninth of their bytes, which say how far off they can be.

A vector is turned (`Axes`). Along the directions in which a corpus varies most, the 16 numbers of its *head* have 8
bits each and the 48 of its *body* 4; of its *tail*, all others, signs are kept and one length. Each of the three is
turned at random besides, so that what rounding and signs leave out has a random direction to whichever query: its
product with the query's is as good as never more than `MARGIN` times what is to be expected (RaBitQ, SIGMOD 2024,
Theorem 3.2: the chance falls as exp(-MARGIN^2 / 2), 2e-11 here). Of what codes leave in doubt the rows are read that
have 8 bits for every number, half of float16's bytes (`whole_rows`): turned at random too, their bounds hold likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int8, Int16, Shaped, UInt8, UInt64

from untrimmed.search.pruning.products import LANES, along

HEAD, BODY = 16, 48  # numbers
MARGIN, _LEAST_MARGIN = 7.0, 1e-3  # standard deviations
FITTED_TO = 2**15  # rows at most, to which axes are
_CODED = ("head", "head_scale", "body", "body_scale", "tail", "tail_scale", "tail_error")  # as kernels take them
_ROWS_AT_A_TIME = 2**15  # that are turned at once


@dataclass(frozen=True)
class Axes:
    """The directions along which codes are taken: those in which rows vary most first."""

    matrix: Float32[np.ndarray, "D D"]  # orthogonal
    mixed: Float32[np.ndarray, "D D"]  # too, and at random: along them no number of a row is much larger than others
    splits: tuple[int, int]  # where body and tail begin

    @classmethod
    def of(cls, rows: Float[np.ndarray, "R D"], seed: int = 0) -> Axes:
        """Fitted to some rows of a corpus; whatever they are, bounds hold. `seed` is that of the random turn."""
        dim = rows.shape[1]
        splits = min(HEAD, dim), min(HEAD + BODY, dim)
        rows = rows.astype(np.float32)
        _, directions = np.linalg.eigh((rows.T @ rows).astype(np.float64))
        rng = np.random.default_rng(seed)
        parts = []
        for begin, end in zip((0, *splits), (*splits, dim), strict=True):
            parts.append(directions[:, ::-1][:, begin:end] @ _turn(end - begin, rng))
        return cls(np.concatenate(parts, axis=1).astype(np.float32), _turn(dim, rng).astype(np.float32), splits)

    def turned(self, rows: Float[np.ndarray, "R D"]) -> list[Float32[np.ndarray, "R _"]]:
        """Heads, bodies and tails."""
        return np.split(rows.astype(np.float32) @ self.matrix, self.splits, axis=1)

    def probe(self, vector: Float[np.ndarray, " D"], recall: float = 1.0) -> Probe:
        """A query's vector, turned and rounded as codes are.

        With a `recall` below 1 bounds hold for that share of rows at least: of the best rows each is found unless its
        own bound fails.
        """
        margin = MARGIN if recall >= 1 else max(_LEAST_MARGIN, NormalDist().inv_cdf(recall))
        head, body, tail = np.split(along(vector.astype(np.float32), self.matrix), self.splits)
        unit = np.float32(max(float(tail.max(initial=0.0)) / 7.49, float(-tail.min(initial=0.0)) / 8.49, 1e-20))
        levels = np.clip(np.rint(tail / unit), -8, 7).astype(np.int64)
        missed = tail - levels * unit
        short_head, head_unit, of_head = _short(head, 127)
        short_body, body_unit, of_body = _short(body, 7)
        parts = of_head, of_body, tail, missed
        squares = of_head @ of_head, of_body @ of_body, tail @ tail / max(1, len(tail)), missed @ missed
        return Probe(
            vector=vector.astype(np.float32),
            mixed=along(vector.astype(np.float32), self.mixed),
            margin=margin,
            head=short_head,
            body=short_body,
            planes=_words(levels >> np.arange(4)[:, None] & 1 == 1),
            units=(head_unit, body_unit, unit),
            sums=(
                np.int32(128 * short_head.astype(np.int64).sum()),
                np.int32(8 * short_body.astype(np.int64).sum()),
                np.int32(levels.sum()),
            ),
            margins=tuple(np.float32(margin**2 * square) for square in squares),
            length=float(np.linalg.norm(vector)),
            parts=parts,
        )


@dataclass(frozen=True, eq=False)
class Probe:
    """A query's vector as codes are compared with it."""

    vector: Float32[np.ndarray, " D"]
    mixed: Float32[np.ndarray, " D"]  # along mixed axes
    margin: float  # in standard deviations
    head: Int8[np.ndarray, " _"]
    body: Int8[np.ndarray, " _"]
    planes: UInt64[np.ndarray, "4 W"]  # the bits of levels from -8 to 7, the lowest first
    units: tuple[np.float32, np.float32, np.float32]  # of head, body and levels
    sums: tuple[np.int32, np.int32, np.int32]  # of 128 times the head, of eights times the body, and of levels
    margins: tuple[np.float32, ...]  # squared, for what head, body, signs and levels leave out
    length: float
    # What a code is off is as good as the product of a random vector with each of these: of head, body, signs, levels.
    parts: tuple[Float[np.ndarray, " _"], ...]

    def likeness(self, other: Probe) -> float:
        """The correlation at most, not below 0, of what the code of one row is off for two queries."""
        if self is other:
            return 1.0
        pairs = [(one, two) for one, two in zip(self.parts, other.parts, strict=True) if one.any() and two.any()]
        return max([0.0, *(float(one @ two / (np.linalg.norm(one) * np.linalg.norm(two))) for one, two in pairs)])

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What is compared with codes."""
        return self.head, self.body, self.planes, *self.units, *self.sums

    @cached_property
    def of_rows(self) -> tuple[Int16[np.ndarray, " E"], np.float32]:
        """What is compared with rows of 8 bits, and its unit: as large as sums in 32 bits allow."""
        numbers, unit = _in_units(
            _padded(self.mixed[None], 2 * LANES), min(32000, (2**31 - 1) // (127 * len(self.mixed))), np.int16
        )
        return numbers[0], unit[0]

    @cached_property
    def of_many_rows(self) -> tuple[Int8[np.ndarray, " E"], np.float32]:
        """The same in 8 bits, which are multiplied faster."""
        numbers, unit = _in_units(_padded(self.mixed[None], 2 * LANES), 127, np.int8)
        return numbers[0], unit[0]

    @cached_property
    def sure(self) -> Probe:
        """The same with bounds that hold, whatever recall it is for."""
        if self.margin == MARGIN:
            return self
        wider = (MARGIN / self.margin) ** 2
        return replace(self, margin=MARGIN, margins=tuple(np.float32(wider * square) for square in self.margins))

    def row_margins(self, unit: np.float32, longest: float) -> tuple[np.float32, np.float32]:
        """(a, b): sqrt(a * u**2 + b) is what its product with a row of unit u can be off, which is not longer.

        Here the query is rounded to numbers of this unit; what both rounded off, and both together, is random.
        """
        square, own = self.margin**2 / 12, float(unit) ** 2
        of_row = square * (self.length**2 + len(self.mixed) / 12 * own)
        return np.float32(of_row), np.float32(square * own * longest**2)


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of rows, in blocks of 16; the last row of all fills the last block.

    Within a block what all rows have stands side by side: fours of a head's numbers, eights of a body's, words of a
    tail's signs.
    """

    axes: Axes
    head: UInt8[np.ndarray, " _"]
    head_scale: Float32[np.ndarray, " B"]
    body: UInt8[np.ndarray, " _"]
    body_scale: Float32[np.ndarray, " B"]
    tail: UInt64[np.ndarray, "B W 16"]
    tail_scale: Float32[np.ndarray, "B 16"]  # a row's signs times this have the row's own product with itself
    tail_error: Float32[np.ndarray, " B"]  # what signs leave out of a row, in units of `tail_scale`; of none is it more

    @classmethod
    def of(cls, axes: Axes, rows: Float[np.ndarray, "R D"], order: Int[np.ndarray, " N"] | None = None) -> Codes:
        """Codes of rows, which are finite; or of these of them, some of them twice."""
        number = np.arange(len(rows)) if order is None else order
        number = np.pad(number, (0, -len(number) % LANES), mode="edge")
        starts = range(0, len(number), _ROWS_AT_A_TIME)
        parts = [_coded(axes, rows[number[start : start + _ROWS_AT_A_TIME]]) for start in starts]
        return cls(axes, *map(np.concatenate, zip(*parts, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Codes]) -> Codes:
        """The blocks of all parts, which have the same axes."""
        return cls(parts[0].axes, *map(np.concatenate, zip(*(part.arrays for part in parts), strict=True)))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """As kernels take them."""
        return tuple(getattr(self, name) for name in _CODED)

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return sum(array.nbytes for array in self.arrays)


def whole_rows(axes: Axes, rows: Float[np.ndarray, "R D"]) -> tuple[Int8[np.ndarray, "R E"], Float32[np.ndarray, " R"]]:
    """Rows along mixed axes in 8 bits, as wide as a multiple of 32, and each one's unit."""
    starts = range(0, len(rows), _ROWS_AT_A_TIME)
    mixed = (rows[start : start + _ROWS_AT_A_TIME].astype(np.float32) @ axes.mixed for start in starts)
    parts = [_in_units(_padded(some, 2 * LANES), 127, np.int8) for some in mixed]
    numbers, units = (np.concatenate(some) for some in zip(*parts, strict=True))
    return numbers, units


def _in_units(
    rows: Float32[np.ndarray, "R D"], most: int, kind: type[np.integer[Any]]
) -> tuple[Int[np.ndarray, "R D"], Float32[np.ndarray, " R"]]:
    """Whole numbers from -`most` to `most`, and the unit of each row."""
    unit = (np.maximum(np.abs(rows).max(axis=1), np.float32(1e-20)) / most).astype(np.float32)
    return np.rint(rows / unit[:, None]).astype(kind), unit


def _turn(dim: int, rng: np.random.Generator) -> Float[np.ndarray, "D D"]:
    turn, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
    return turn


def _coded(axes: Axes, rows: Float[np.ndarray, "R D"]) -> tuple[np.ndarray, ...]:
    head, body, tail = axes.turned(rows)
    squares, sums = (tail * tail).sum(axis=1), np.abs(tail).sum(axis=1)
    scale = np.divide(squares, sums, out=np.zeros_like(squares), where=sums > 0)
    left_out = np.sqrt(np.maximum(scale * scale * tail.shape[1] - squares, 0))
    error = np.divide(left_out, scale, out=np.zeros_like(scale), where=scale > 0)
    words = _words(tail > 0).reshape(len(rows) // LANES, LANES, -1).transpose(0, 2, 1)
    in_blocks = scale.reshape(-1, LANES), error.reshape(-1, LANES).max(axis=1)
    return (*_bytes(head), *_nibbles(body), np.ascontiguousarray(words), *in_blocks)


def _bytes(part: Float32[np.ndarray, "R P"]) -> tuple[UInt8[np.ndarray, " _"], Float32[np.ndarray, " B"]]:
    """A head in 8 bits from 1 to 255, of which 128 is zero, four numbers of a row side by side; each block's unit."""
    numbers, unit = _rounded(part, 127)
    return np.ascontiguousarray(numbers + 128, dtype=np.uint8).reshape(-1), unit


def _nibbles(part: Float32[np.ndarray, "R P"]) -> tuple[UInt8[np.ndarray, " _"], Float32[np.ndarray, " B"]]:
    """A body in 4 bits from 1 to 15, of which 8 is zero, every other four numbers in the high halves of bytes."""
    numbers, unit = _rounded(part, 7)
    halves = (numbers + 8).astype(np.uint8)
    return np.ascontiguousarray(halves[:, ::2] | halves[:, 1::2] << 4).reshape(-1), unit


def _rounded(part: Float32[np.ndarray, "R P"], most: int) -> tuple[Int[np.ndarray, "B _ 16 4"], np.ndarray]:
    """Whole numbers from -`most` to `most`, in fours, those of all rows of a block side by side; each block's unit."""
    blocks = _padded(part, 8).reshape(len(part) // LANES, LANES, -1)
    unit = np.maximum(np.abs(blocks).max(axis=(1, 2), initial=0.0), np.float32(1e-20)) / most
    numbers = np.rint(blocks / unit[:, None, None]).astype(np.int16)
    return numbers.reshape(*blocks.shape[:2], -1, 4).transpose(0, 2, 1, 3), unit.astype(np.float32)


def _short(
    part: Float32[np.ndarray, " P"], most: int
) -> tuple[Int8[np.ndarray, " _"], np.float32, Float32[np.ndarray, " _"]]:
    """Whole numbers, their unit, and a vector as long as a product with a code may be off, for both are rounded.

    That is in units of the code, whose numbers are from -`most` to `most`.
    """
    numbers, unit = _in_units(_padded(part[None], 8), 127, np.int8)
    missed = part - numbers[0, : len(part)] * unit[0]
    return numbers[0], unit[0], np.concatenate([part / np.float32(12**0.5), np.float32(most) * missed])


def _padded(part: Shaped[np.ndarray, "R P"], multiple: int, least: int = 1) -> Shaped[np.ndarray, "R Q"]:
    """With zeros behind, as wide as a multiple of a number, and at least as so many of it."""
    padded = np.zeros((len(part), max(least, -(-part.shape[1] // multiple)) * multiple), dtype=part.dtype)
    padded[:, : part.shape[1]] = part  # in a tenth of the time of np.pad
    return padded


def _words(bits: Bool[np.ndarray, "R P"]) -> UInt64[np.ndarray, "R W"]:
    """Bits in words of 64."""
    return np.packbits(_padded(bits, 64, least=0), axis=-1, bitorder="little").view(np.uint64)
