"""Agreement of predicted with annotated spans, in percent. Spans are rows [start_s, end_s]."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from untrimmed.moments.overlap import iou

Spans = Float[np.ndarray, "_ 2"]


def mean_iou(predicted: Sequence[Spans], truth: Sequence[Spans]) -> float:
    """Return the mean of the first predicted span's best IoU with a true span, in percent. No prediction counts as 0.

    >>> mean_iou([np.array([[0.0, 4.0]]), np.empty((0, 2))], [np.array([[0.0, 2.0]])] * 2)
    25.0
    """
    best = [float(iou(spans[:1], true).max(initial=0.0)) for spans, true in zip(predicted, truth, strict=True)]
    return 100.0 * float(np.mean(best)) if best else 0.0


def moment_recall(predicted: Sequence[Spans], truth: Sequence[Spans], *, top: int, min_iou: float) -> float:
    """Return the percentage of queries for which one of the first `top` spans has IoU >= `min_iou` with a true span.

    >>> spans = [np.array([[5.0, 9.0], [0.0, 4.0]])]
    >>> moment_recall(spans, [np.array([[0.0, 3.0]])], top=1, min_iou=0.5)
    0.0
    >>> moment_recall(spans, [np.array([[0.0, 3.0]])], top=2, min_iou=0.5)
    100.0
    """
    hits = [
        bool((iou(spans[:top, None], true[None]) >= min_iou).any())
        for spans, true in zip(predicted, truth, strict=True)
    ]
    return 100.0 * float(np.mean(hits)) if hits else 0.0
