"""Temporal IoU of time spans, for search, suppression and evaluation."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from untrimmed.types import Moment


def iou(spans: Float[np.ndarray, "*#spans 2"], others: Float[np.ndarray, "*#spans 2"]) -> Float[np.ndarray, "*_"]:
    """Return the temporal intersection over union, in [0, 1], of spans [start, end] with other spans. Axes broadcast.

    As in JSG's released program, the union is the time from the first start to the last end, which is exact if spans
    overlap. A span of length 0 overlaps nothing. The result has the dtype of the spans.

    >>> iou(np.array([[0.0, 4.0]]), np.array([[2.0, 6.0], [8.0, 9.0]])).round(3).tolist()
    [0.333, 0.0]
    """
    start = spans[..., 0]
    end = spans[..., 1]
    other_start = others[..., 0]
    other_end = others[..., 1]
    inside = np.maximum(np.minimum(end, other_end) - np.maximum(start, other_start), 0)
    union = np.maximum(end, other_end) - np.minimum(start, other_start)
    return np.divide(inside, union, out=np.zeros_like(inside), where=union > 0)


def spans_of(moments: Iterable[Moment]) -> Float[np.ndarray, "N 2"]:
    """Return start and end of each moment in seconds."""
    return np.array([(moment.start_s, moment.end_s) for moment in moments], dtype=np.float64).reshape(-1, 2)
