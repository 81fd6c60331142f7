"""Loops that fold what rows, or several probes, find into what is known of a video; compiled as `kernels` are."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from untrimmed.search.kernels import FUZZ, compiled


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
