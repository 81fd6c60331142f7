"""Temporal non-maximum suppression: one moment of many overlapping candidates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def suppress(
    spans: Float[np.ndarray, "N 2"], scores: Float[np.ndarray, " N"], *, limit: int, max_iou: float
) -> Int[np.ndarray, " K"]:
    """The positions of the best spans, none overlapping a better one by more than `max_iou`, best first.

    Equal scores are decided by the earlier start, then the earlier end, so the result does not depend on the order.

    >>> spans = np.array([[0.0, 4.0], [1.0, 5.0], [8.0, 9.0]])
    >>> suppress(spans, np.array([0.9, 0.8, 0.2]), limit=5, max_iou=0.3).tolist()
    [0, 2]
    """
    order = np.lexsort((spans[:, 1], spans[:, 0], -scores))
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best = order[0]
        kept.append(int(best))
        start, end = spans[order, 0], spans[order, 1]
        overlap = np.clip(np.minimum(end, spans[best, 1]) - np.maximum(start, spans[best, 0]), 0.0, None)
        union = (end - start) + (spans[best, 1] - spans[best, 0]) - overlap
        order = order[1:][(overlap <= max_iou * union)[1:]]
    return np.array(kept, dtype=np.int64)
