"""Compute dot products of a sentence and stored float16 vectors: fast in float16, or as exact as in float32."""

import numkong
import numpy as np
from jaxtyping import Float, Float16, Float32, Float64

from untrimmed.search.pruning.threads import share_work

ROUNDING = 2e-3  # upper bound of the error of float16 products of vectors up to unit length
LANES = 16  # numbers per SIMD register; rows are padded to a multiple of this
_LOW = 2.0**11  # scale of rounding errors in `halves`, because float16 has 11 significant bits
_ROWS_AT_A_TIME = 2**13  # number of rows that a thread multiplies at a time


def padded_width(dim: int) -> int:
    """Return the width of a block's rows for vectors of width `dim`."""
    return -(-dim // LANES) * LANES


def halves(sentence: Float[np.ndarray, " D"]) -> Float16[np.ndarray, "2 E"]:
    """Return a padded vector as two float16 vectors: rounded numbers, and their rounding errors times `_LOW`."""
    high = _padded_float16(sentence)
    return np.stack([high, _padded_float16((sentence - high[: len(sentence)].astype(np.float32)) * _LOW)])


def exact_products(rows: Float16[np.ndarray, "T E"], both: Float16[np.ndarray, "2 E"]) -> Float64[np.ndarray, " T"]:
    """Return the products of rows with a sentence, as exact as in float32. `both` is the result of `halves`."""
    # two calls are twice as fast as one call with both halves
    high, low = (products(rows, both[half : half + 1])[:, 0] for half in (0, 1))
    return high + low / _LOW


def products(rows: Float16[np.ndarray, "T E"], queries: Float16[np.ndarray, "Q E"]) -> Float64[np.ndarray, "T Q"]:
    """Return the products of rows and queries, summed in float32. They do not depend on the number of threads."""
    values = np.empty((len(rows), len(queries)))

    def multiply(start: int, stop: int) -> None:
        values[start:stop] = numkong.cdist(rows[start:stop], queries, "dot", threads=1)

    share_work(len(rows), _ROWS_AT_A_TIME, multiply)
    return values


def project(vector: Float32[np.ndarray, " D"], axes: Float32[np.ndarray, "D E"]) -> Float32[np.ndarray, " E"]:
    """Return the projection of a vector on axes.

    It does not use BLAS, whose threads keep running for a while and would slow down the following scan.
    """
    return np.einsum("d,de->e", vector, axes)


def _padded_float16(query: Float[np.ndarray, " D"]) -> Float16[np.ndarray, " E"]:
    return np.pad(query, (0, -len(query) % LANES)).astype(np.float16)
