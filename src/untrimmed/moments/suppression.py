"""Temporal non-maximum suppression: one moment of many overlapping candidates."""

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.moments.overlap import iou


def suppress(
    spans: Float[np.ndarray, "G K 2"], real: Bool[np.ndarray, "G K"], *, max_iou: float, limit: int
) -> Bool[np.ndarray, "G K"]:
    """Which spans of each row are kept, visited from left to right: the first `limit` that no kept one overlaps.

    Two overlap if their IoU is more than `max_iou`; with 0, kept spans touch at most. What is not `real` is padding.

    >>> suppress(np.array([[[0.0, 4.0], [1.0, 5.0], [8.0, 9.0]]]), np.ones((1, 3), bool), max_iou=0.3, limit=5).tolist()
    [[True, False, True]]
    """
    kept = np.zeros_like(real)
    left = real.copy()
    rows = np.arange(len(spans))
    for _ in range(min(limit, spans.shape[1])):
        best = left.argmax(axis=1)
        found = left[rows, best]
        if not found.any():
            break
        kept[rows, best] |= found
        left &= ~(found[:, None] & (iou(spans, spans[rows, best][:, None]) > max_iou))
        left[rows, best] = False
    return kept
