"""A sentence times stored vectors: all of a library in float16 and fast, those of one video as exact as in float32."""

from __future__ import annotations

import numkong
import numpy as np
from jaxtyping import Float, Float16, Float32, Float64

from untrimmed.search.pruning.threads import share

ROUNDING = 2e-3  # more than a score from float16 products of vectors up to unit length can be off
LANES = 16  # numbers that are worked on at once: rows are as wide as a multiple of it, so that none ends in a register
_LOW = 2.0**11  # the low half of a number is stored this many times larger: float16 holds 11 bits of each half
_ROWS_AT_A_TIME = 2**13  # that one thread takes at once


def padded_width(dim: int) -> int:
    """How wide rows of a block are for vectors of this width."""
    return -(-dim // LANES) * LANES


def halves(sentence: Float[np.ndarray, " D"]) -> Float16[np.ndarray, "2 E"]:
    """The sentence's vector as wide as rows are: rounded to float16, and what that leaves out."""
    high = _half(sentence)
    return np.stack([high, _half((sentence - high[: len(sentence)].astype(np.float32)) * _LOW)])


def exact_products(rows: Float16[np.ndarray, "T E"], both: Float16[np.ndarray, "2 E"]) -> Float64[np.ndarray, " T"]:
    """Every row times the sentence, as exact as in float32: the sentence is the sum of its two `halves`."""
    high, low = (products(rows, both[half : half + 1])[:, 0] for half in (0, 1))  # in half the time of both at once
    return high + low / _LOW


def products(rows: Float16[np.ndarray, "T E"], queries: Float16[np.ndarray, "Q E"]) -> Float64[np.ndarray, "T Q"]:
    """Every row times every query, added up in float32; each product is one thread's, however many there are."""
    made = np.empty((len(rows), len(queries)))

    def multiply(start: int, stop: int) -> None:
        made[start:stop] = numkong.cdist(rows[start:stop], queries, "dot", threads=1)

    share(len(rows), _ROWS_AT_A_TIME, multiply)
    return made


def along(vector: Float32[np.ndarray, " D"], axes: Float32[np.ndarray, "D E"]) -> Float32[np.ndarray, " E"]:
    """A vector along axes, without BLAS, whose threads stay awake for more and take a core from the scan behind."""
    return np.einsum("d,de->e", vector, axes)


def _half(query: Float[np.ndarray, " D"]) -> Float16[np.ndarray, " E"]:
    return np.pad(query, (0, -len(query) % LANES)).astype(np.float16)
