"""How well predicted spans meet annotated ones. Spans are rows [start_s, end_s]; figures are in percent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

Spans = Float[np.ndarray, "_ 2"]


def iou(predicted: Float[np.ndarray, "N 2"], truth: Float[np.ndarray, "M 2"]) -> Float[np.ndarray, "N M"]:
    """Temporal intersection over union of every predicted span with every true one, in [0, 1].

    >>> iou(np.array([[0.0, 4.0]]), np.array([[2.0, 6.0], [8.0, 9.0]])).round(3).tolist()
    [[0.333, 0.0]]
    """
    start, end = predicted[:, None, 0], predicted[:, None, 1]
    overlap = np.clip(np.minimum(end, truth[None, :, 1]) - np.maximum(start, truth[None, :, 0]), 0.0, None)
    union = (end - start) + (truth[None, :, 1] - truth[None, :, 0]) - overlap
    return np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)


def mean_iou(predicted: Sequence[Spans], truth: Sequence[Spans]) -> float:
    """Mean over queries of the first predicted span's best IoU with a true one, in percent; no prediction counts 0.

    >>> mean_iou([np.array([[0.0, 4.0]]), np.empty((0, 2))], [np.array([[0.0, 2.0]])] * 2)
    25.0
    """
    best = [float(iou(spans[:1], true).max(initial=0.0)) for spans, true in zip(predicted, truth, strict=True)]
    return 100.0 * float(np.mean(best)) if best else 0.0


def moment_recall(predicted: Sequence[Spans], truth: Sequence[Spans], *, top: int, min_iou: float) -> float:
    """Percent of queries of which one of the `top` first spans reaches `min_iou` with a true one.

    >>> spans = [np.array([[5.0, 9.0], [0.0, 4.0]])]
    >>> moment_recall(spans, [np.array([[0.0, 3.0]])], top=1, min_iou=0.5)
    0.0
    >>> moment_recall(spans, [np.array([[0.0, 3.0]])], top=2, min_iou=0.5)
    100.0
    """
    found = [bool((iou(spans[:top], true) >= min_iou).any()) for spans, true in zip(predicted, truth, strict=True)]
    return 100.0 * float(np.mean(found)) if found else 0.0
