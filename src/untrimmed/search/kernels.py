"""The loops over codes and rows that neither NumPy nor a library has: compiled by numba when they are first called.

Each result is one thread's, so that results are the same however many threads share the work.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from untrimmed.search.intrinsics import (
    FUZZ,
    byte_products,
    compiled,
    fetch,
    four_at_once,
    largest,
    level_products,
    nibble_products,
    one_at_once,
    raise_tops,
    whole_product,
)
from untrimmed.search.products import LANES

MADE_OF = "b05f95cb80cdda76"  # the digest of intrinsics.py: this file has to change with it
_LINE = 64  # bytes that the processor fetches at once
_AHEAD = 2  # videos
_FETCHED = 8  # blocks of a video at most: after them the processor has seen which come next


@compiled(inline="always", fastmath={"contract"})
@no_type_check
def _weigh(codes, block, probe, margins, sums, found, reach):
    """found: the product of each row of a block by its code; reach: what the true one is not above."""
    head, head_scale, body, body_scale, tail, tail_scale, tail_error = codes
    head_query, body_query, planes, head_unit, body_unit, tail_unit, body_sum, level_sum = probe
    head_margin, body_margin, tail_margin, level_margin = margins
    in_head, in_body, words = len(head_query), len(body_query), planes.shape[1]
    byte_products(head, block * in_head * LANES, head_query, in_head, sums)
    nibble_products(body, block * (in_body // 2) * LANES, body_query, in_body, sums[LANES:])
    level_products(tail, block * words * LANES, planes, words, sums[2 * LANES :])
    scale_h, scale_b = head_unit * head_scale[block], body_unit * body_scale[block]
    rounding = np.float32(np.sqrt(head_margin * head_scale[block] ** 2 + body_margin * body_scale[block] ** 2))
    turning = np.float32(np.sqrt(tail_margin * tail_error[block] ** 2 + level_margin))
    for lane in range(LANES):
        length = tail_scale[block, lane]
        product = np.float32(sums[lane]) * scale_h + np.float32(sums[LANES + lane] - body_sum) * scale_b
        product += length * (tail_unit * np.float32(sums[2 * LANES + lane] - level_sum))
        found[lane], reach[lane] = product, product + rounding + turning * length


@compiled(inline="always")
@no_type_check
def _fetch_later(codes, first, probe, videos, place, stop):
    """Videos that may be among the best lie apart: without this, most of the time goes into waiting for them."""
    if place >= stop:
        return
    begin = first[videos[place]]
    end = min(first[videos[place] + 1], begin + _FETCHED)
    head, head_scale, body, body_scale, tail, tail_scale, tail_error = codes
    in_head, in_body, in_tail = len(probe[0]) * LANES, len(probe[1]) // 2 * LANES, probe[2].shape[1] * LANES
    for at in range(begin * in_head, end * in_head, _LINE):
        fetch(head, at)
    for at in range(begin * in_body, end * in_body, _LINE):
        fetch(body, at)
    for at in range(begin * in_tail, end * in_tail, _LINE // 8):
        fetch(tail, at)
    for at in range(begin * LANES, end * LANES, _LINE // 4):
        fetch(tail_scale, at)
    fetch(head_scale, begin)
    fetch(body_scale, begin)
    fetch(tail_error, begin)


@compiled()
@no_type_check
def scan_codes(codes, first, probe, margins, videos, start, stop, best, bound, slack):
    """Of video videos[i] best[i]: its best row by codes; bound[i]: no row's product is above it.

    slack[i]: no row has more between its product by codes and what the true one is not above.
    """
    sums = np.empty(3 * LANES, np.int32)
    found, reach, off = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    tops = np.empty(3 * LANES, np.float32)
    for place in range(start, stop):
        _fetch_later(codes, first, probe, videos, place + _AHEAD, stop)
        tops[:] = -np.inf
        for block in range(first[videos[place]], first[videos[place] + 1]):
            _weigh(codes, block, probe, margins, sums, found, reach)
            for lane in range(LANES):
                off[lane] = reach[lane] - found[lane]
            raise_tops(tops, 0, found)
            raise_tops(tops, LANES, reach)
            raise_tops(tops, 2 * LANES, off)
        best[place], bound[place], slack[place] = largest(tops, 0), largest(tops, LANES), largest(tops, 2 * LANES)


@compiled()
@no_type_check
def scan_means(codes, first, counts, probe, margins, videos, start, stop, best):
    """Of video videos[i] best[i]: the best by codes of those rows that stand from first on, wherever blocks begin."""
    sums, found, reach = np.empty(3 * LANES, np.int32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    weighed = -1
    for place in range(start, stop):
        begin, top = first[videos[place]], np.float32(-np.inf)
        for row in range(begin, begin + counts[videos[place]]):
            if row // LANES != weighed:
                weighed = row // LANES
                _weigh(codes, weighed, probe, margins, sums, found, reach)
            top = max(top, found[row % LANES])
        best[place] = top


@compiled(inline="always")
@no_type_check
def _row_times(rows, at, query, width):
    """The row of float16 numbers that begins there times a query of this width."""
    fours, ones = width // (4 * LANES), width % (4 * LANES) // LANES
    product = np.float32(0)
    if fours:
        product += four_at_once(rows, at, query, 0, fours)
    if ones:
        product += one_at_once(rows, at + fours * 4 * LANES, query, fours * 4 * LANES, ones)
    return product


@compiled()
@no_type_check
def score_rows(codes, first, probe, margins, whole, asked, videos, needed, start, stop, best):
    """best[i]: what no row of video videos[i] is above, by rows of 8 bits.

    Products are taken of rows of which the codes leave it open whether one is the best and not below needed[i]; where
    that is open of none, best[i] is minus infinity.
    """
    rows, width, row_unit, first_row = whole
    query, unit, of_row, of_query = asked
    sums, found, reach = np.empty(3 * LANES, np.int32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for place in range(start, stop):
        _fetch_later(codes, first, probe, videos, place + _AHEAD, stop)
        block, behind = first[videos[place]], first[videos[place] + 1]
        begin, end = first_row[videos[place]], first_row[videos[place] + 1]
        if len(reach) < (behind - block) * LANES:
            reach = np.empty((behind - block) * LANES, np.float32)
        least, top = needed[place], np.float32(-np.inf)
        for number in range(behind - block):
            _weigh(codes, block + number, probe, margins, sums, found, reach[number * LANES :])
            for lane in range(LANES):
                least = max(least, 2 * found[lane] - reach[number * LANES + lane])
        for number in range(end - begin):
            if reach[number] >= least - FUZZ:
                row = begin + number
                number_of_units = whole_product(rows, row * width, query, width // (2 * LANES))
                product = unit * row_unit[row] * np.float32(number_of_units)
                off = np.sqrt(of_row * row_unit[row] ** 2 + of_query) + FUZZ
                top, least = max(top, product + off), max(least, product - off)
        best[place] = top


@compiled(fastmath={"contract"})
@no_type_check
def score_windows(
    codes, first, probe, margins, frames, width, places, filters, query, videos, needed, start, stop, best, read
):
    """best[i]: the best window of video videos[i] by products of float16 frames, given by their bits, with a query.

    Windows are around each frame; those count of which codes leave it open whether one is the best and not below
    needed[i]. Where that is open of none, best[i] is minus infinity. read[i]: how many frames had to be read.
    """
    (starts, lengths), (weights, ends, own, inside) = places, filters
    sums, found, reach = np.empty(3 * LANES, np.int32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    products = np.empty(LANES, np.float32)
    for place in range(start, stop):
        video = videos[place]
        block, behind, begin, length = first[video], first[video + 1], starts[video], lengths[video]
        weigh, half = ends[own[video]], (ends[own[video] + 1] - ends[own[video]]) // 2
        if len(reach) < (behind - block) * LANES:
            reach = np.empty((behind - block) * LANES, np.float32)
            products = np.empty_like(reach)
        least, top, known, count = needed[place], np.float32(-np.inf), 0, 0
        for number in range(behind - block):
            _weigh(codes, block + number, probe, margins, sums, found, reach[number * LANES :])
            for lane in range(LANES):
                least = max(least, 2 * found[lane] - reach[number * LANES + lane])
        for row in range(length):
            if reach[row] >= least - FUZZ:
                low, high = max(0, row - half), min(length, row + half + 1)
                for frame in range(max(low, known), high):
                    products[frame] = _row_times(frames, (begin + frame) * width, query, width)
                    count += 1
                known, summed = high, np.float32(0)
                for frame in range(low, high):
                    summed += weights[weigh + half + frame - row] * products[frame]
                top = max(top, summed / inside[begin + row])
                least = max(least, top)
        best[place], read[place] = top, count


@compiled()
@no_type_check
def open_rows(whole, asked, videos, start, stop, is_open):
    """is_open[i, row]: whether that row of video videos[i] may be its best, by rows of 8 bits."""
    rows, width, row_unit, first_row = whole
    query, unit, of_row, of_query = asked
    reach = np.empty(is_open.shape[1], np.float32)
    for place in range(start, stop):
        begin, least = first_row[videos[place]], np.float32(-np.inf)
        for number in range(first_row[videos[place] + 1] - begin):
            row = begin + number
            number_of_units = whole_product(rows, row * width, query, width // (2 * LANES))
            product = unit * row_unit[row] * np.float32(number_of_units)
            off = np.sqrt(of_row * row_unit[row] ** 2 + of_query) + FUZZ
            reach[number], least = product + off, max(least, product - off)
        for number in range(first_row[videos[place] + 1] - begin):
            if reach[number] >= least:
                is_open[place, number] = True


@compiled()
@no_type_check
def best_of_videos(products, first_row, row_unit, units, margins, start, stop, most):
    """most[i, video]: what no row of a video is above, by products[row, i] of rows from that of video `start` on."""
    tops, largest = np.empty(len(units), np.float32), np.float32(0)
    for video in range(start, stop):
        tops[:], largest = -np.inf, np.float32(0)
        for row in range(first_row[video], first_row[video + 1]):
            found, unit = products[row - first_row[start]], row_unit[row]
            largest = max(largest, unit)
            for place in range(len(tops)):
                product = unit * np.float32(found[place])
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
