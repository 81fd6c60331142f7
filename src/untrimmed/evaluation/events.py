"""Event-level recall: the percentage of queries with a correct moment among the first K (JSG section 4.1)."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.moments.overlap import iou

RECALL_AT = (1, 10, 100)
MIN_IOU = (0.3, 0.5, 0.7)
MANY_SPANS = 4  # if a query has at least this many annotated spans, a prediction must match `annotators` spans


def event_recall(
    video_index: Int[np.ndarray, "Q N"],
    span_s: Float[np.ndarray, "Q N 2"],
    true_video: Int[np.ndarray, " Q"],
    true_spans_s: Sequence[Float[np.ndarray, "_ 2"]],
    *,
    at: Sequence[int] = RECALL_AT,
    min_iou: Sequence[float] = MIN_IOU,
    annotators: int = 2,
) -> dict[str, float]:
    """Return {`R@K IoU=m`: percentage of queries with a correct moment among the first K}. NaN without queries.

    Predictions are sorted by rank. Video -1 is padding. A prediction is correct if its video is correct and its IoU
    with an annotated span is at least m. If a query has four spans or more (DiDeMo), a prediction must match
    `annotators` spans: two in JSG's released program, one in JSG's paper. If a query has no spans, no prediction is
    correct.

    IoU and thresholds are compared in float32, because rounding makes 0.7 in float32 smaller than 0.7 in float64.

    >>> spans = np.array([[[0.0, 4.0], [2.0, 6.0]]])
    >>> event_recall(np.array([[3, 5]]), spans, np.array([5]), [np.array([[2.0, 8.0]])], at=(1, 2), min_iou=(0.5,))
    {'R@1 IoU=0.5': 0.0, 'R@2 IoU=0.5': 100.0}
    """
    truth, real = _stacked(true_spans_s)
    first = max(at, default=0)
    right_video = video_index[:, :first] == true_video[:, None]
    overlaps = iou(span_s[:, :first, None].astype(np.float32), truth[:, None])  # shape [Q, N, G]
    needed = np.where(real.sum(axis=1) >= MANY_SPANS, annotators, 1)
    result = {}
    for threshold in min_iou:
        matches = ((overlaps >= np.float32(threshold)) & real[:, None]).sum(axis=-1)
        correct = (matches >= needed[:, None]) & right_video
        for k in at:
            hits = correct[:, :k].any(axis=1)
            result[f"R@{k} IoU={threshold}"] = 100.0 * float(hits.mean()) if len(hits) else np.nan
    return result


def event_sum(recalls: Mapping[str, float]) -> float:
    """Return the sum of R@1, R@10 and R@100 at IoU 0.5 and 0.7, in percent. JSG's release selects epochs with it.

    >>> event_sum({f"R@{k} IoU={m}": k * m for k in (1, 10, 100) for m in (0.3, 0.5, 0.7)})
    133.2
    """
    return sum(recalls[f"R@{k} IoU={threshold}"] for threshold in (0.5, 0.7) for k in RECALL_AT)


def _stacked(
    spans: Sequence[Float[np.ndarray, "_ 2"]],
) -> tuple[Float[np.ndarray, "Q G 2"], Bool[np.ndarray, "Q G"]]:
    """Return the spans in float32, padded to the largest number of spans of a query, and a mask of the real spans."""
    counts = np.array([len(rows) for rows in spans], dtype=np.int64)
    real = np.arange(counts.max(initial=0)) < counts[:, None]
    padded = np.zeros((*real.shape, 2), dtype=np.float32)
    rows_s = [np.asarray(rows, dtype=np.float32).reshape(-1, 2) for rows in spans]
    padded[real] = np.concatenate(rows_s or [padded[real]])
    return padded, real
