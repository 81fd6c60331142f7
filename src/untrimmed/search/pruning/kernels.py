"""Loops over quantized rows, compiled by numba on first use.

Each loop has one signature, so an array of another type, number of axes or memory order raises a TypeError.
`CodedVideos` checks shapes and indices.

Sums are cast to int32 at each step. Otherwise numba would widen them to 64 bits, and LLVM could not use instructions
that multiply pairs of 16-bit numbers (`vpmaddwd` and `vpdpwssd` on x86, and similar ones on ARM).
"""

from collections.abc import Callable
from typing import Any, no_type_check

import numba
import numpy as np
from numba import types

ROUNDING = np.float32(1e-6)  # tolerance for rounding errors of sums in float32
# number of bytes of a row's codes, `CODED` / 2; a literal, because numba does not notice changes in another file
HALF = 160

_F4 = types.float32
_INT = types.intp


def _array(kind: Any, axes: int) -> Any:
    """Return a read-only array type. It also accepts writable and unaligned arrays."""
    return types.Array(kind, axes, "C", readonly=True, aligned=False)


_CODES = _array(types.uint8, 2)
_ROWS = _array(types.int8, 2)
_UNITS = _array(_F4, 1)
_PLACES = _array(_INT, 1)
_QUERY = _array(types.int16, 1)


def compiled(*signature: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function for one signature. If possible, the result is cached on disk."""
    compile_now: Any = numba.njit

    def decorate(function: Any) -> Any:
        signatures = (types.void(*signature),) if signature else ()
        try:
            return compile_now(*signatures, nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache is writable: neither the package's nor the user's
            return compile_now(*signatures, nogil=True, **options)(function)

    return decorate


@compiled(inline="always")
@no_type_check
def _product_of_codes(codes, row, low, high, query_sum):
    total = np.int32(0)
    for place in range(HALF):  # a constant number of steps makes the loop twice as fast
        pair = codes[row, place]
        total = np.int32(total + np.int32(np.uint8(pair & np.uint8(15))) * np.int32(low[place]))
        total = np.int32(total + np.int32(np.uint8(pair >> np.uint8(4))) * np.int32(high[place]))
    return np.float32(total - np.int32(8) * query_sum)


@compiled(inline="always")
@no_type_check
def _product(rows, row, query):
    total = np.int32(0)
    for place in range(rows.shape[1]):
        total = np.int32(total + np.int32(rows[row, place]) * np.int32(query[place]))
    return np.float32(total)


@compiled(inline="always")
@no_type_check
def _sum(low, high):
    total = np.int32(0)
    for place in range(HALF):
        total = np.int32(total + np.int32(low[place]) + np.int32(high[place]))
    return total


@compiled(*(_CODES, _UNITS, _UNITS, _PLACES, _PLACES), *(_QUERY, _F4, _F4, _F4, _F4, _F4[::1], _F4[::1], _F4[::1]))
@no_type_check
def best_codes(
    codes,
    unit,
    rest_length,
    first_row,
    videos,
    query,
    query_unit,
    query_rest,
    row_error,
    query_error,
    products,
    best,
    upper,
):
    """Write the largest product of the query with a row of video videos[i] to best[i].

    An upper bound of the exact product is written to upper[i]. Unless `products` is empty, the product of each row is
    written to it.

    Products are computed from codes. Their error is at most query_rest * rest_length + row_error * unit + query_error.
    """
    # Two arrays, because LLVM cannot prove that an index into one array is not negative.
    low = query[:HALF]
    high = query[HALF : 2 * HALF]
    query_sum = _sum(low, high)
    for place in range(len(videos)):
        top = reach = np.float32(-np.inf)
        for row in range(first_row[videos[place]], first_row[videos[place] + 1]):
            product = query_unit * unit[row] * _product_of_codes(codes, row, low, high, query_sum)
            if len(products):
                products[row] = product
            top = max(top, product)
            reach = max(reach, product + query_rest * rest_length[row] + row_error * unit[row])
        best[place] = top
        upper[place] = reach + query_error


@compiled(
    *(_CODES, _UNITS, _UNITS, _ROWS, _UNITS, _PLACES, _PLACES),
    *(_QUERY, _F4, _F4, _F4, _F4, _UNITS, _UNITS, _F4[::1], types.boolean[:, ::1]),
)
@no_type_check
def best_rows(
    codes,
    code_unit,
    rest_length,
    rows,
    row_unit,
    first_row,
    videos,
    query,
    query_unit,
    query_rest,
    row_error,
    query_error,
    products,
    needed,
    best,
    is_open,
):
    """Write an upper bound of the largest product of video videos[i], computed from 8-bit rows, to best[i].

    A row is skipped if its codes show that it cannot have the largest product, or cannot reach needed[i]. If all rows
    are skipped, best[i] is minus infinity. Unless `is_open` is empty, is_open[i, row] becomes True if that row may have
    the largest product. Unless `products` is empty, it has the products from `best_codes`, which saves time.
    """
    # Two arrays, because LLVM cannot prove that an index into one array is not negative.
    low = query[:HALF]
    high = query[HALF : 2 * HALF]
    query_sum = _sum(low, high)
    bound = np.empty(1, np.float32)
    for place in range(len(videos)):
        begin = first_row[videos[place]]
        end = first_row[videos[place] + 1]
        if len(bound) < end - begin:
            bound = np.empty(end - begin, np.float32)
        target = needed[place]
        likely = begin
        for row in range(begin, end):
            if len(products):
                product = products[row]
            else:
                product = query_unit * code_unit[row] * _product_of_codes(codes, row, low, high, query_sum)
            bound[row - begin] = product + query_rest * rest_length[row] + row_error * code_unit[row] + query_error
            if bound[row - begin] > bound[likely - begin]:
                likely = row
        top = np.float32(-np.inf)
        for turn in range(end - begin + 1):  # the most likely row first, because its product excludes other rows
            row = likely if turn == 0 else begin + turn - 1
            if turn and row == likely:
                continue
            if bound[row - begin] < target - ROUNDING:
                bound[row - begin] = -np.inf
                continue
            product = query_unit * row_unit[row] * _product(rows, row, query)
            error = row_error * row_unit[row] + query_error
            bound[row - begin] = product + error
            top = max(top, product + error)
            target = max(target, product - error)
        best[place] = top
        if len(is_open):
            for row in range(begin, end):
                is_open[place, row - begin] = bound[row - begin] >= target - ROUNDING and bound[row - begin] > -np.inf


@compiled(_array(types.int32, 2), _UNITS, _PLACES, _UNITS, _UNITS, _F4[:, ::1])
@no_type_check
def best_of_videos(products, unit, ends, query_unit, row_error, best):
    """Write an upper bound of the largest product of the query with the video's rows to best[video, query]."""
    best[:] = -np.inf
    for video in range(len(best)):
        for row in range(ends[video], ends[video + 1]):
            for place in range(products.shape[1]):
                product = unit[row] * (query_unit[place] * np.float32(products[row, place]) + row_error[place])
                best[video, place] = max(best[video, place], product)
