"""Metrics of predicted spans, compared with annotated spans. Spans are rows [start_s, end_s]."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from untrimmed.evaluation.events import MIN_IOU, event_recall
from untrimmed.moments.overlap import iou

Spans = Float[np.ndarray, "_ 2"]


def mean_iou(predicted: Sequence[Spans], truth: Sequence[Spans]) -> float:
    """Return the mean over queries, in percent, of the IoU of the first predicted span with the best true span.

    A query without a prediction has an IoU of 0.

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


def best_ious(span_s: Float[np.ndarray, "Q 2"], truth: Sequence[Spans]) -> Float[np.ndarray, " Q"]:
    """Return the IoU of each query's span with its best annotated span, in [0, 1]; NaN without an annotated span.

    >>> best_ious(np.array([[0.0, 4.0], [0.0, 1.0]]), [np.array([[0.0, 2.0], [5.0, 9.0]]), np.empty((0, 2))]).tolist()
    [0.5, nan]
    """
    return np.array(
        [float(iou(span, spans).max()) if len(spans) else np.nan for span, spans in zip(span_s, truth, strict=True)]
    )


def moment_metrics(
    span_s: Float[np.ndarray, "Q 2"], truth: Sequence[Spans], *, annotators: int = 1
) -> dict[str, float]:
    """Return R1@IoU and mIoU in percent for each query's best moment in the annotated video, and the number of queries.

    Queries without an annotated span are left out. If a query has four or more annotated spans, R1@IoU requires that
    the moment matches `annotators` of these spans (as in `event_recall`). mIoU uses the annotated span with the largest
    IoU.

    >>> moment_metrics(np.array([[0.0, 4.0]]), [np.array([[0.0, 2.0]])])
    {'R1@IoU=0.3': 100.0, 'R1@IoU=0.5': 100.0, 'R1@IoU=0.7': 0.0, 'mIoU': 50.0, 'queries': 1.0}
    """
    annotated = np.array([len(spans) > 0 for spans in truth], dtype=bool)
    spans = [rows for rows in truth if len(rows)]
    span_s = span_s[annotated]
    # all queries have the same video here, so that the video of every prediction is correct
    video = np.zeros(len(spans), dtype=np.int64)
    recalls = event_recall(video[:, None], span_s[:, None], video, spans, at=(1,), annotators=annotators)
    ious = best_ious(span_s, spans)
    return {
        **{f"R1@IoU={threshold}": recalls[f"R@1 IoU={threshold}"] for threshold in MIN_IOU},
        "mIoU": 100.0 * float(ious.mean()) if len(ious) else np.nan,
        "queries": float(len(spans)),
    }
