"""The loops over codes and rows that neither NumPy nor a library has: compiled by numba when they are first called.

Each result is one thread's, so that results are the same however many threads share the work.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from untrimmed.search.pruning.coded_videos import GROUP, NUM_ARRAYS
from untrimmed.search.pruning.intrinsics import (
    FUZZ,
    add_parts,
    byte_at,
    byte_products,
    compiled,
    fetch,
    float_at,
    int_at,
    largest,
    level_products,
    nibble_products,
    raise_tops,
    whole_product,
)
from untrimmed.search.pruning.products import LANES

MADE_OF = "b18ba6d7e2015824"  # the digest of intrinsics.py: this file has to change with it

# Where arrays of a block lie: the columns of what `CodedBlocks` has of each block. First those of codes of rows, the
# same of codes of means, and then what they have in common.
_HEAD, _HEAD_SCALE, _BODY, _BODY_SCALE, _TAIL, _TAIL_SCALE, _TAIL_ERROR = range(7)
_ROWS_CODES, _MEANS_CODES = 0, 7
_FIRST, _FIRST_MEAN, _FIRST_ROW, _UNBOUNDED, _ROWS, _ROW_UNIT = range(14, NUM_ARRAYS)
_ROW_OF_TABLE = 8 * NUM_ARRAYS  # bytes

_LINE = 64  # bytes that the processor fetches at once
_AHEAD = 2  # videos
_TOGETHER = 8  # videos
_FETCHED = 8  # blocks of a video at most: after them the processor has seen which come next

# Numbers of other files that loops were compiled with: this file has to change with them, too.
assert (LANES, NUM_ARRAYS, GROUP) == (16, 20, 4)


@compiled(inline="always", fastmath={"contract"})
@no_type_check
def _weigh(lies, codes, block, probe, margins, sums, found, reach, start):
    """found: the product of each row of a block by its code; reach[start:]: what the true one is not above."""
    head_query, body_query, planes, head_unit, body_unit, tail_unit, head_sum, body_sum, level_sum = probe
    head_margin, body_margin, tail_margin, level_margin = margins
    in_head, in_body, words = len(head_query), len(body_query), planes.shape[1]
    byte_products(int_at(lies, codes + _HEAD) + block * in_head * LANES, head_query, in_head, sums, 0)
    nibble_products(int_at(lies, codes + _BODY) + block * (in_body // 2) * LANES, body_query, in_body, sums, LANES)
    if words:
        level_products(int_at(lies, codes + _TAIL) + block * words * LANES * 8, planes, words, sums, 2 * LANES)
    else:
        sums[2 * LANES :] = 0
    head_scale = float_at(int_at(lies, codes + _HEAD_SCALE), block)
    body_scale = float_at(int_at(lies, codes + _BODY_SCALE), block)
    tail_error = float_at(int_at(lies, codes + _TAIL_ERROR), block)
    units = head_unit * head_scale, body_unit * body_scale, tail_unit
    rounding = np.float32(np.sqrt(head_margin * head_scale**2 + body_margin * body_scale**2))
    turning = np.float32(np.sqrt(tail_margin * tail_error**2 + level_margin))
    lengths = int_at(lies, codes + _TAIL_SCALE) + 4 * LANES * block
    add_parts(sums, (head_sum, body_sum, level_sum), units, lengths, (rounding, turning), found, reach, start)


@compiled(inline="always")
@no_type_check
def _fetch_later(table, parts, videos, probe, place, stop):
    """Have codes of a video brought before they are needed, where videos lie apart, and faster where they do not."""
    if place >= stop:
        return
    lies, video = table + parts[place] * _ROW_OF_TABLE, videos[place]
    begin = int_at(int_at(lies, _FIRST), video)
    end = min(int_at(int_at(lies, _FIRST), video + 1), begin + _FETCHED)
    in_head, in_body, in_tail = len(probe[0]) * LANES, len(probe[1]) // 2 * LANES, probe[2].shape[1] * LANES * 8
    for at in range(begin * in_head, end * in_head, _LINE):
        fetch(int_at(lies, _HEAD) + at)
    for at in range(begin * in_body, end * in_body, _LINE):
        fetch(int_at(lies, _BODY) + at)
    for at in range(begin * in_tail, end * in_tail, _LINE):
        fetch(int_at(lies, _TAIL) + at)
    for at in range(begin * 4 * LANES, end * 4 * LANES, _LINE):
        fetch(int_at(lies, _TAIL_SCALE) + at)
    fetch(int_at(lies, _HEAD_SCALE) + 4 * begin)
    fetch(int_at(lies, _BODY_SCALE) + 4 * begin)
    fetch(int_at(lies, _TAIL_ERROR) + 4 * begin)


@compiled()
@no_type_check
def scan_codes(table, parts, videos, probe, margins, start, stop, best, bound, slack):
    """Of video videos[i] of block parts[i] best[i]: its best row by codes; bound[i]: no row's product is above it.

    slack[i]: no row has more between its product by codes and what the true one is not above.
    """
    sums = np.empty(3 * LANES, np.int32)
    found, reach, off = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    tops = np.empty(3 * LANES, np.float32)
    for place in range(start, stop):
        _fetch_later(table, parts, videos, probe, place + _AHEAD, stop)
        lies, video = table + parts[place] * _ROW_OF_TABLE, videos[place]
        tops[:] = -np.inf
        for block in range(int_at(int_at(lies, _FIRST), video), int_at(int_at(lies, _FIRST), video + 1)):
            _weigh(lies, _ROWS_CODES, block, probe, margins, sums, found, reach, 0)
            for lane in range(LANES):
                off[lane] = reach[lane] - found[lane]
            raise_tops(tops, 0, found)
            raise_tops(tops, LANES, reach)
            raise_tops(tops, 2 * LANES, off)
        best[place], bound[place], slack[place] = largest(tops, 0), largest(tops, LANES), largest(tops, 2 * LANES)
        if byte_at(int_at(lies, _UNBOUNDED), video):
            bound[place] = np.inf


@compiled()
@no_type_check
def scan_means(table, parts, videos, probe, margins, start, stop, best):
    """Of video videos[i] of block parts[i] best[i]: the best by codes of its means, wherever blocks of these begin."""
    sums, found, reach = np.empty(3 * LANES, np.int32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    weighed, part = -1, -1
    for place in range(start, stop):
        lies, video = table + parts[place] * _ROW_OF_TABLE, videos[place]
        if parts[place] != part:
            weighed, part = -1, parts[place]
        rows = int_at(int_at(lies, _FIRST_ROW), video + 1) - int_at(int_at(lies, _FIRST_ROW), video)
        begin, top = int_at(int_at(lies, _FIRST_MEAN), video), np.float32(-np.inf)
        for row in range(begin, begin + (rows + GROUP - 1) // GROUP):
            if row // LANES != weighed:
                weighed = row // LANES
                _weigh(lies, _MEANS_CODES, weighed, probe, margins, sums, found, reach, 0)
            top = max(top, found[row % LANES])
        best[place] = top


@compiled()
@no_type_check
def score_rows(table, parts, videos, probe, margins, asked, needed, start, stop, best, is_open):
    """best[i]: what no row of video videos[i] of block parts[i] is above, by rows of 8 bits.

    Products are taken of rows of which the codes leave it open whether one is the best and not below needed[i]; where
    that is open of none, best[i] is minus infinity. is_open[i, row], unless it is empty: whether that row may be the
    best by these products, too.
    """
    query, unit, of_row, of_query = asked
    width, marks = len(query), len(is_open) > 0
    sums, found, reach = np.empty(3 * LANES, np.int32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    left, ends = np.empty(LANES, np.int64), np.empty(_TOGETHER, np.int64)
    for first in range(start, stop, _TOGETHER):  # rows of some videos are brought while codes of others are looked at
        last, count = min(stop, first + _TOGETHER), 0
        for place in range(first, last):
            _fetch_later(table, parts, videos, probe, place + _AHEAD, stop)
            lies, video = table + parts[place] * _ROW_OF_TABLE, videos[place]
            block, behind = int_at(int_at(lies, _FIRST), video), int_at(int_at(lies, _FIRST), video + 1)
            begin, end = int_at(int_at(lies, _FIRST_ROW), video), int_at(int_at(lies, _FIRST_ROW), video + 1)
            if len(reach) < (behind - block) * LANES:
                reach = np.empty((behind - block) * LANES, np.float32)
            if len(left) < count + end - begin:
                left = np.concatenate((left, np.empty(count + end - begin, np.int64)))
            least = needed[place]
            for number in range(behind - block):
                _weigh(lies, _ROWS_CODES, block + number, probe, margins, sums, found, reach, number * LANES)
                for lane in range(LANES):
                    least = max(least, 2 * found[lane] - reach[number * LANES + lane])
            for number in range(end - begin):
                if reach[number] >= least - FUZZ:
                    left[count] = number
                    count += 1
                    for at in range(0, width, _LINE):
                        fetch(int_at(lies, _ROWS) + (begin + number) * width + at)
            ends[place - first] = count
        count = 0
        for place in range(first, last):
            lies, video = table + parts[place] * _ROW_OF_TABLE, videos[place]
            begin, end = int_at(int_at(lies, _FIRST_ROW), video), int_at(int_at(lies, _FIRST_ROW), video + 1)
            top = least = np.float32(-np.inf)
            if len(reach) < ends[place - first] - count:
                reach = np.empty(ends[place - first] - count, np.float32)
            for number in range(count, ends[place - first]):
                row = begin + left[number]
                row_unit = float_at(int_at(lies, _ROW_UNIT), row)
                whole = whole_product(int_at(lies, _ROWS) + row * width, query, width // (2 * LANES))
                product, off = unit * row_unit * np.float32(whole), np.sqrt(of_row * row_unit**2 + of_query) + FUZZ
                reach[number - count] = product + off
                top, least = max(top, product + off), max(least, product - off)
            if marks:
                for number in range(count, ends[place - first]):
                    is_open[place, left[number]] = reach[number - count] >= least
            count, best[place] = ends[place - first], top
            if byte_at(int_at(lies, _UNBOUNDED), video):
                best[place] = np.inf
                if marks:
                    is_open[place, : end - begin] = True


@compiled()
@no_type_check
def bring(rows):
    """Have rows of 8 bits brought before they are multiplied: a product waits for each by itself."""
    lies = rows.ctypes.data
    for at in range(0, rows.size, _LINE):
        fetch(lies + at)


@compiled()
@no_type_check
def best_of_videos(products, first_row, row_unit, units, margins, start, stop, most):
    """most[i, video]: what no row of a video is above, by products[row, i] of rows from that of video `start` on."""
    tops, largest, first = np.empty(len(units), np.float32), np.float32(0), first_row[start]
    for video in range(start, stop):
        tops[:], largest = -np.inf, np.float32(0)
        for row in range(first_row[video], first_row[video + 1]):
            unit, number = row_unit[row], row - first
            largest = max(largest, unit)
            for place in range(len(tops)):
                product = unit * np.float32(products[number, place])
                tops[place] = product if product > tops[place] else tops[place]
        for place in range(len(tops)):
            off = np.sqrt(margins[place, 0] * largest**2 + margins[place, 1]) + FUZZ
            most[place, video] = units[place] * tops[place] + off


@compiled()
@no_type_check
def add_up(best, most, slack, alike, fuzz, start, stop, total, bound):
    """total[i]: what all probes find in video i by codes; bound[i]: what the true sum and `fuzz` are not above.

    What sums are off is the square root of what goes together of what each is: slack[:, i] times `alike` times itself.
    """
    for place in range(start, stop):
        found = allowed = off = np.float32(0)
        for one in range(len(best)):
            found += best[one, place]
            allowed += most[one, place]
            for other in range(len(best)):
                off += slack[one, place] * alike[one, other] * slack[other, place]
        total[place] = found
        bound[place] = fuzz + (min(allowed, found + np.sqrt(off)) if np.isfinite(allowed) else allowed)
