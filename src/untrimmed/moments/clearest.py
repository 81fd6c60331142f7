"""Which scenes of one video a query is about, without training: those whose relevance stands out most."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from untrimmed.moments.suppression import suppress
from untrimmed.types import Moment


def clearest_scenes(
    relevance: Float[np.ndarray, " T"],
    edges_s: Float[np.ndarray, " E"],
    scenes: Int[np.ndarray, "N 2"],
    *,
    background: float,
    length_exponent: float,
    limit: int,
) -> list[Moment]:
    """At most `limit` separate moments, the clearest first; each carries its mean relevance.

    Clearest is what has the largest (mean relevance - background) x length in seconds to the power `length_exponent`:
    of two that are as relevant, the longer one comes first. Then follows the clearest of those that share no time with
    it, and so on, as long as they are above the background. Hence no two overlap, though they may adjoin. A
    query that fits all of a video alike is answered by one moment, the whole; one that fits some parts better may be by
    several. There is always a first; equal ones are decided by the earlier start, then the end.

    Args:
        relevance: One number a frame.
        edges_s: Where frames begin in seconds, and where the last one ends: E = T + 1.
        scenes: First frame and one past the last of each candidate (`scene_tree`).

    >>> scenes = np.array([[0, 2], [2, 3], [3, 4], [2, 4], [0, 4]])
    >>> curve, edges = np.array([0.0, 0.2, 0.9, 0.7]), np.array([0.0, 2.0, 4.0, 6.0, 8.0])
    >>> found = clearest_scenes(curve, edges, scenes, background=0.0, length_exponent=0.2, limit=3)
    >>> [(moment.start_s, moment.end_s, round(moment.score, 2)) for moment in found]
    [(4.0, 8.0, 0.8), (0.0, 4.0, 0.1)]
    """
    first, stop = scenes.T
    total = np.concatenate([[0.0], np.cumsum(relevance, dtype=np.float64)])
    mean = (total[stop] - total[first]) / (stop - first)
    spans = np.stack([edges_s[first], edges_s[stop]], axis=1)
    clearness = (mean - background) * (spans[:, 1] - spans[:, 0]) ** length_exponent
    order = np.lexsort((spans[:, 1], spans[:, 0], -clearness))
    order = order[: max(1, np.count_nonzero(clearness > 0))]
    kept = suppress(spans[order][None], np.ones((1, len(order)), dtype=bool), max_iou=0.0, limit=limit)[0]
    return [Moment(float(spans[i, 0]), float(spans[i, 1]), float(mean[i])) for i in order[kept]]
