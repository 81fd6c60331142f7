"""Rows rounded twice: to 4 bits a number, which rule most videos out, and to 8 bits, which rule out most of the rest.

A row is turned along the axes in which a corpus varies most (`Axes`). Its *codes* are the first `CODED` numbers in 4
bits; what they leave out adds at most the product of two lengths. Both parts of a row are turned at random besides, so
that the error of rounding has a random direction to any query. A product with a random direction is as good as never
more than `MARGIN` times its standard deviation (RaBitQ, SIGMOD 2024, Theorem 3.2: the chance falls as
exp(-MARGIN^2 / 2), 2e-11 here).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int8, Int16, Shaped, UInt8

from untrimmed.search.pruning.products import LANES, along

CODED = 320  # numbers of a row in 4 bits: more cost bytes in every scan, fewer leave more videos undecided
MARGIN = 7.0  # standard deviations
FITTED_TO = 2**15  # rows at most, to which axes are
_MOST_CODE, _MOST_8, _MOST_16 = 7, 127, 32000
_ROWS_AT_A_TIME = 2**15  # that are turned at once


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
