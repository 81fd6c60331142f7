"""Curves under a Gaussian that is cut off, without the weight that falls outside a video."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Float16, Float32

_REACH = 3.0  # standard deviations after which a Gaussian is cut off
_OF_ONE_THREAD = 2**18  # multiplications: of more BLAS wakes threads, which stay awake and slow what follows


def gaussian(deviation: float) -> Float[np.ndarray, " K"]:
    """Weights at whole steps up to the reach."""
    reach = max(1, math.ceil(_REACH * deviation))  # at least one, so that a gap follows every video of the block
    return np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)


def weight_inside(length: int, deviation: float) -> Float[np.ndarray, " T"]:
    """For each position of a sequence, how much of a Gaussian's weight falls inside it."""
    weights = gaussian(deviation)
    reach = len(weights) // 2
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    position = np.arange(length)
    return cumulative[np.minimum(reach + length - position, len(weights))] - cumulative[np.maximum(reach - position, 0)]


def gaussian_filter(curve: Float[np.ndarray, " T"], deviation: float) -> Float[np.ndarray, " T"]:
    """The curve under a Gaussian; weight outside the video is left out of the mean."""
    weights = gaussian(deviation)
    reach = len(weights) // 2
    return np.convolve(curve, weights)[reach : reach + len(curve)] / weight_inside(len(curve), deviation)


def filter_long(
    values: Float32[np.ndarray, " T"], weights: Float[np.ndarray, " K"], piece: int = 32
) -> Float32[np.ndarray, " T"]:
    """A sequence of millions under a short symmetric filter: each piece of it, with its surroundings, times a band.

    As matrix products it takes a tenth of the time that a convolution of one channel does.
    """
    reach, num_pieces = len(weights) // 2, -(-len(values) // piece)
    band = _band(weights, piece)
    surrounded = np.pad(values, (reach, reach + num_pieces * piece - len(values)))
    pieces = np.lib.stride_tricks.sliding_window_view(surrounded, len(band))[::piece]
    filtered = np.empty((num_pieces, piece), dtype=np.float32)
    at_once = max(1, _OF_ONE_THREAD // band.size)
    for start in range(0, num_pieces, at_once):
        some = slice(start, start + at_once)
        np.matmul(np.ascontiguousarray(pieces[some]), band, out=filtered[some])
    return filtered.ravel()[: len(values)]


def filter_rows(
    rows: Float16[np.ndarray, "R D"], weights: Float[np.ndarray, " K"], piece: int = 64
) -> Float32[np.ndarray, "R D"]:
    """Every column of rows under a short symmetric filter."""
    reach, band = len(weights) // 2, _band(weights, piece)
    filtered = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), piece):
        own = filtered[start : start + piece]
        low, high = max(0, start - reach), min(len(rows), start + len(own) + reach)
        np.matmul(
            band[low - start + reach : high - start + reach, : len(own)].T, rows[low:high].astype(np.float32), out=own
        )
    return filtered


def _band(weights: Float[np.ndarray, " K"], piece: int) -> Float32[np.ndarray, "S P"]:
    """What a piece of a sequence with its surroundings is multiplied with, to be filtered."""
    band = np.zeros((piece + len(weights) - 1, piece), dtype=np.float32)
    for position in range(piece):
        band[position : position + len(weights), position] = weights
    return band
