"""Results grouped by moment ratio: moment length / video length (M/V in the papers)."""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from untrimmed.evaluation.recall import RECALL_AT, recall

MS_SL_EDGES = (0.0, 0.2, 0.4, 1.0)  # edges of the groups in the papers of MS-SL and RAL
GMMFORMER_EDGES = (0.0, 0.25, 0.5, 1.0)  # edges of the groups in GMMFormer's Fig. 4


def group_of(ratio: Float[np.ndarray, " Q"], edges: Sequence[float] = MS_SL_EDGES) -> Int[np.ndarray, " Q"]:
    """Return the group number of each query: i if edges[i] < ratio <= edges[i + 1]. A ratio of 0 is in group 0.

    >>> group_of(np.array([0.0, 0.2, 0.21, 1.0]))
    array([0, 0, 1, 2])
    """
    return np.searchsorted(np.asarray(edges[1:-1]), ratio, side="left")


def group_names(edges: Sequence[float] = MS_SL_EDGES) -> list[str]:
    """Return the names of the groups, as printed in papers.

    >>> group_names()
    ['(0,0.2]', '(0.2,0.4]', '(0.4,1]']
    """
    return [f"({low:g},{high:g}]" for low, high in itertools.pairwise(edges)]


def recall_by_moment_ratio(
    rank: Int[np.ndarray, " Q"],
    ratio: Float[np.ndarray, " Q"],
    *,
    edges: Sequence[float] = MS_SL_EDGES,
    at: Sequence[int] = RECALL_AT,
) -> dict[str, dict[str, float]]:
    """Return {group: metrics}. The metrics are recall, SumR and the number of queries (`queries`)."""
    group = group_of(ratio, edges)
    return {
        name: recall(rank[group == i], at) | {"queries": float(np.count_nonzero(group == i))}
        for i, name in enumerate(group_names(edges))
    }
