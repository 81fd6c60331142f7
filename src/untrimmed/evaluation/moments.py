"""How well predicted spans meet annotated ones. Spans are rows [start_s, end_s]; figures are in percent."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from untrimmed.moments.overlap import iou

Spans = Float[np.ndarray, "_ 2"]


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
    found = [
        bool((iou(spans[:top, None], true[None]) >= min_iou).any())
        for spans, true in zip(predicted, truth, strict=True)
    ]
    return 100.0 * float(np.mean(found)) if found else 0.0
