"""Temporal non-maximum suppression of overlapping candidates."""

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.moments.overlap import iou


def suppress(
    spans: Float[np.ndarray, "G K 2"], real: Bool[np.ndarray, "G K"], *, max_iou: float, limit: int
) -> Bool[np.ndarray, "G K"]:
    """Return a mask of the spans to keep in each row. From left to right, a span is kept if it overlaps no kept span.

    At most `limit` spans of a row are kept. Spans overlap if their IoU exceeds `max_iou`. `real` is False at padding.

    >>> suppress(np.array([[[0.0, 4.0], [1.0, 5.0], [8.0, 9.0]]]), np.ones((1, 3), bool), max_iou=0.3, limit=5).tolist()
    [[True, False, True]]
    """
    keep = np.zeros_like(real)
    candidates = real.copy()
    rows = np.arange(len(spans))
    for _ in range(min(limit, spans.shape[1])):
        best = candidates.argmax(axis=1)
        has_candidate = candidates[rows, best]
        if not has_candidate.any():
            break
        keep[rows, best] |= has_candidate
        candidates &= ~(has_candidate[:, None] & (iou(spans, spans[rows, best][:, None]) > max_iou))
        candidates[rows, best] = False
    return keep
