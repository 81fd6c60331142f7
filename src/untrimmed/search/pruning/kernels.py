"""The loops over rounded rows that neither NumPy nor a library has: compiled by numba when they are first needed.

Each loop has one signature. So an array of another type, number of axes or order of memory is a TypeError, not a wrong
read. `CodedVideos` checks the rest: shapes, and that every index is inside its array.

Sums are made of int32 at each step (`np.int32(...)`), or numba would widen them to 64 bits. LLVM then multiplies pairs
of 16 bits at once on any x86 processor with SSE2 or more (`vpmaddwd`, `vpdpwssd`), and on ARM likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import numba
import numpy as np
from numba import types

FUZZ = np.float32(1e-6)  # of sums in float32
HALF = 160  # bytes of the codes of a row: `CODED` / 2, repeated here since numba compiles again if this file changes

_F4, _INT = types.float32, types.intp


def _array(kind: Any, axes: int) -> Any:
    """An array that is read; one that may be written, or lies at an odd address, is taken, too."""
    return types.Array(kind, axes, "C", readonly=True, aligned=False)


_CODES, _ROWS, _UNITS = _array(types.uint8, 2), _array(types.int8, 2), _array(_F4, 1)
_PLACES, _QUERY = _array(_INT, 1), _array(types.int16, 1)


def compiled(*signature: Any, **options: Any) -> Callable[[Any], Any]:
    """Compile a function for one signature, once and for all where a folder can be written to."""
    compile_now: Any = numba.njit

    def decorate(function: Any) -> Any:
        given = (types.void(*signature),) if signature else ()
        try:
            return compile_now(*given, nogil=True, cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written to
            return compile_now(*given, nogil=True, **options)(function)

    return decorate


@compiled(inline="always")
@no_type_check
def _product_of_codes(codes, row, low, high, query_sum):
    total = np.int32(0)
    for place in range(HALF):  # a number that is known, for which the loop is in half the time
        both = codes[row, place]
        total = np.int32(total + np.int32(np.uint8(both & np.uint8(15))) * np.int32(low[place]))
        total = np.int32(total + np.int32(np.uint8(both >> np.uint8(4))) * np.int32(high[place]))
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


@compiled(_CODES, _UNITS, _UNITS, _PLACES, _PLACES, _QUERY, _F4, _F4, _F4, _F4, _F4[::1], _F4[::1])
@no_type_check
def best_codes(
    codes, unit, rest_length, first_row, videos, query, query_unit, query_rest, of_row, of_query, best, most
):
    """best[i]: the largest product of a query with the codes of a row of video videos[i]; most[i]: with a row at most.

    A product is off by `query_rest` times the row's rest_length and by `of_row` times its unit and by `of_query`.
    """
    # One array each: LLVM does not see that an index is not negative where one array has both halves.
    low, high = query[:HALF], query[HALF : 2 * HALF]
    query_sum = _sum(low, high)
    for place in range(len(videos)):
        top = reach = np.float32(-np.inf)
        for row in range(first_row[videos[place]], first_row[videos[place] + 1]):
            product = query_unit * unit[row] * _product_of_codes(codes, row, low, high, query_sum)
            top = max(top, product)
            reach = max(reach, product + query_rest * rest_length[row] + of_row * unit[row])
        best[place] = top
        most[place] = reach + of_query


@compiled(
    *(_CODES, _UNITS, _UNITS, _ROWS, _UNITS, _PLACES, _PLACES),
    *(_QUERY, _F4, _F4, _F4, _F4, _UNITS, _F4[::1], types.boolean[:, ::1]),
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
    of_row,
    of_query,
    needed,
    best,
    is_open,
):
    """best[i]: what no row of video videos[i] is above.

    Rows are read that may be the best, and not below needed[i], by their codes. If there is none, best[i] is minus
    infinity. is_open[i, row], unless it is empty: whether that row may be the best by all of its numbers, too.
    """
    # One array each: LLVM does not see that an index is not negative where one array has both halves.
    low, high = query[:HALF], query[HALF : 2 * HALF]
    query_sum = _sum(low, high)
    bound = np.empty(1, np.float32)
    for place in range(len(videos)):
        begin, end = first_row[videos[place]], first_row[videos[place] + 1]
        if len(bound) < end - begin:
            bound = np.empty(end - begin, np.float32)
        least = needed[place]
        first = begin
        for row in range(begin, end):
            product = query_unit * code_unit[row] * _product_of_codes(codes, row, low, high, query_sum)
            bound[row - begin] = product + query_rest * rest_length[row] + of_row * code_unit[row] + of_query
            if bound[row - begin] > bound[first - begin]:
                first = row
        top = np.float32(-np.inf)
        for turn in range(end - begin + 1):  # the first one tells most about the others
            row = first if turn == 0 else begin + turn - 1
            if turn and row == first:
                continue
            if bound[row - begin] < least - FUZZ:
                bound[row - begin] = -np.inf
                continue
            product = query_unit * row_unit[row] * _product(rows, row, query)
            off = of_row * row_unit[row] + of_query
            bound[row - begin] = product + off
            top = max(top, product + off)
            least = max(least, product - off)
        best[place] = top
        if len(is_open):
            for row in range(begin, end):
                is_open[place, row - begin] = bound[row - begin] >= least - FUZZ and bound[row - begin] > -np.inf


@compiled(_array(types.int32, 2), _UNITS, _PLACES, _UNITS, _UNITS, _F4[:, ::1])
@no_type_check
def best_of_videos(products, unit, ends, query_unit, of_row, best):
    """best[video, query]: what the product of a query with rows ends[video] to ends[video + 1] is not above."""
    best[:] = -np.inf
    for video in range(len(best)):
        for row in range(ends[video], ends[video + 1]):
            for place in range(products.shape[1]):
                product = unit[row] * (query_unit[place] * np.float32(products[row, place]) + of_row[place])
                best[video, place] = max(best[video, place], product)
