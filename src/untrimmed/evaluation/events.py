"""Event-level recall: the right video and the right moment among the first K (JSG section 4.1); percent."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.moments.overlap import iou

RECALL_AT = (1, 10, 100)
MIN_IOU = (0.3, 0.5, 0.7)
SEVERAL = 4  # annotators of a query from which on more than one may have to be met


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
    """Percent of queries with a correct moment among their first K, by `R@K IoU=m`; NaN without queries.

    Predictions are ranked, video -1 where a query has no more. One is correct if its video is right and it overlaps an
    annotated span by m or more. A query with four spans or more (DiDeMo) needs that many `annotators` met: two as
    released, one as the paper writes; one without any is never found. All in float32, thresholds too: 0.7 in float64 is
    larger than the overlap that should equal it.

    >>> spans = np.array([[[0.0, 4.0], [2.0, 6.0]]])
    >>> event_recall(np.array([[3, 5]]), spans, np.array([5]), [np.array([[2.0, 8.0]])], at=(1, 2), min_iou=(0.5,))
    {'R@1 IoU=0.5': 0.0, 'R@2 IoU=0.5': 100.0}
    """
    truth, real = _stacked(true_spans_s)
    first = max(at, default=0)
    right_video = video_index[:, :first] == true_video[:, None]
    overlaps = iou(span_s[:, :first, None].astype(np.float32), truth[:, None])  # [Q, N, G]
    needed = np.where(real.sum(axis=1) >= SEVERAL, annotators, 1)
    result = {}
    for threshold in min_iou:
        met = ((overlaps >= np.float32(threshold)) & real[:, None]).sum(axis=-1) >= needed[:, None]
        correct = met & right_video
        for k in at:
            found = correct[:, :k].any(axis=1)
            result[f"R@{k} IoU={threshold}"] = 100.0 * float(found.mean()) if len(found) else np.nan
    return result


def event_sum(recalls: Mapping[str, float]) -> float:
    """The sum of R@1, R@10 and R@100 at IoU 0.5 and 0.7, by which the release of JSG chooses an epoch; percent.

    >>> event_sum({f"R@{k} IoU={m}": k * m for k in (1, 10, 100) for m in (0.3, 0.5, 0.7)})
    133.2
    """
    return sum(recalls[f"R@{k} IoU={threshold}"] for threshold in (0.5, 0.7) for k in RECALL_AT)


def _stacked(
    spans: Sequence[Float[np.ndarray, "_ 2"]],
) -> tuple[Float[np.ndarray, "Q G 2"], Bool[np.ndarray, "Q G"]]:
    """Spans in float32, padded to the largest number, and which are real."""
    counts = np.array([len(own) for own in spans], dtype=np.int64)
    real = np.arange(counts.max(initial=0)) < counts[:, None]
    padded = np.zeros((*real.shape, 2), dtype=np.float32)
    padded[real] = np.concatenate([np.asarray(own, dtype=np.float32).reshape(-1, 2) for own in spans] or [padded[real]])
    return padded, real
