"""Ranks of the correct videos, and metrics of these ranks. Recall is in percent, as in papers."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

Ties = Literal["index", "best", "worst"]
RECALL_AT = (1, 5, 10, 100)
QUERIES_AT_A_TIME = 1024  # limits the size of the boolean arrays in `ranks`


def ranks(
    scores: Float[np.ndarray, "Q V"], truth: Int[np.ndarray, "Q ..."], *, ties: Ties = "index"
) -> Int[np.ndarray, " Q"]:
    """Return the rank, from 1, of each query's correct video by descending score.

    `truth` contains the indices of the correct videos of each query, padded with -1. If a query has several correct
    videos, its rank is the best of their ranks. `ties` determines the order of videos with equal scores: by index
    (`index`), the correct video first (`best`), or the correct video last (`worst`). NaN ranks below every number.

    >>> ranks(np.array([[0.2, 0.9, 0.2]]), np.array([2]))
    array([3])
    """
    truth = truth[:, None] if truth.ndim == 1 else truth
    if not ((truth >= 0).any(axis=1) & (truth < scores.shape[1]).all(axis=1)).all():
        raise ValueError("truth: every query needs at least one correct video, and all must be columns of scores")
    starts = range(0, len(scores), QUERIES_AT_A_TIME)
    parts = [slice(start, start + QUERIES_AT_A_TIME) for start in starts]
    all_ranks = [_best_ranks(scores[p], truth[p], ties) for p in parts]
    return np.concatenate(all_ranks) if all_ranks else np.zeros(0, dtype=np.int64)


def _best_ranks(scores: np.ndarray, truth: np.ndarray, ties: Ties) -> np.ndarray:
    best = np.full(len(scores), scores.shape[1] + 1, dtype=np.int64)
    # few queries have many correct videos, so later columns need only a few rows of the scores
    for column in truth.T:
        rows = np.flatnonzero(column >= 0)
        if len(rows):
            labelled = scores if len(rows) == len(scores) else scores[rows]  # do not copy if all rows are selected
            best[rows] = np.minimum(best[rows], _ranks(labelled, column[rows], ties))
    return best


def _ranks(scores: np.ndarray, column: np.ndarray, ties: Ties) -> np.ndarray:
    right = np.take_along_axis(scores, column[:, None], axis=1)
    missing = np.isnan(scores)
    better = (scores > right) | (np.isnan(right) & ~missing)
    rank = 1 + better.sum(axis=1)
    if ties != "best":
        equal: Bool[np.ndarray, "Q V"] = (scores == right) | (np.isnan(right) & missing)
        if ties == "index":
            equal &= np.arange(scores.shape[1]) < column[:, None]
            rank = rank + equal.sum(axis=1)
        else:
            rank = rank + equal.sum(axis=1) - 1
    return rank.astype(np.int64)


def recall(rank: Int[np.ndarray, " Q"], at: Sequence[int] = RECALL_AT) -> dict[str, float]:
    """Return R@K for each K, and their sum SumR, in percent. Without queries, all values are NaN.

    >>> recall(np.array([1, 3, 7, 200]), at=(1, 5))
    {'R@1': 25.0, 'R@5': 50.0, 'SumR': 75.0}
    """
    result = {f"R@{k}": 100.0 * float(np.count_nonzero(rank <= k)) / len(rank) if len(rank) else np.nan for k in at}
    return result | {"SumR": sum(result.values())}


def mean_average_precision(rank: Int[np.ndarray, " Q"]) -> float:
    """Return the mean of 1 / rank, as a fraction.

    The papers' programs call this value mAP (mean average precision). It equals mAP if each query has one correct
    video.

    >>> mean_average_precision(np.array([1, 2]))
    0.75
    """
    return float((1.0 / rank).mean())


def retrieval_metrics(
    scores: Float[np.ndarray, "Q V"],
    truth: Int[np.ndarray, "Q ..."],
    *,
    at: Sequence[int] = RECALL_AT,
    ties: Ties = "index",
) -> dict[str, float]:
    """Return recall and SumR in percent, median and mean rank, and mAP.

    If a query has several correct videos, recall and ranks use the best of their ranks. As in the authors' programs,
    mAP uses only the first column of `truth`.
    """
    rank = ranks(scores, truth, ties=ties)
    first = rank if truth.ndim == 1 else ranks(scores, truth[:, 0], ties=ties)
    return recall(rank, at) | {
        "median_rank": float(np.median(rank)),
        "mean_rank": float(rank.mean()),
        "mAP": mean_average_precision(first),
    }
