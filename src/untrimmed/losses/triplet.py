"""Triplet ranking losses with one negative per query or video. Negatives are selected by rank (highest score first)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import positive_pairs


def negative_videos(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " Q"]
) -> Int[Tensor, " Q"]:
    """Return the video at the given rank for each query, by descending score. The positive always has rank 0."""
    ordered = scores.detach().scatter(1, video_index[:, None], torch.inf).argsort(dim=1, descending=True)
    return ordered.gather(1, ranks.to(scores.device)[:, None])[:, 0]


def negative_queries(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " V"]
) -> Int[Tensor, " V"]:
    """Return the query at the given rank among the queries of other videos, for each video.

    The query with the highest score has rank 0.
    """
    return _foreign_queries(scores, video_index).gather(0, ranks.to(scores.device)[None, :])[0]


def _foreign_queries(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Int[Tensor, "Q V"]:
    """Return the queries of other videos, highest score first, then the video's own queries, for each video."""
    is_positive = positive_pairs(video_index, scores.shape[1])
    return scores.detach().masked_fill(is_positive, -torch.inf).argsort(dim=0, descending=True)


def num_foreign_queries(video_index: Int[Tensor, " Q"], num_videos: int) -> Int[Tensor, " V"]:
    """Return the number of queries in the batch that belong to other videos, for each video."""
    return len(video_index) - positive_pairs(video_index, num_videos).sum(dim=0)


def triplet_of_queries(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " Q"], *, margin: float
) -> Float[Tensor, ""]:
    """Return the mean hinge loss over queries. A query's video must score above the negative video by the margin.

    The loss of a batch with one video is 0, because there are no negatives.
    """
    positive = scores.gather(1, video_index[:, None])[:, 0]
    negative = scores.gather(1, negative_videos(scores, video_index, ranks)[:, None])[:, 0]
    hinge = (margin + negative - positive).relu()
    return hinge.mean() if scores.shape[1] > 1 else 0 * hinge.sum()


def triplet_of_videos(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " V"], *, margin: float
) -> Float[Tensor, ""]:
    """Return the mean hinge loss over videos. The mean score of a video's queries must exceed a negative by the margin.

    The negative is the score of a query of another video. This is the released form. `triplet_of_pairs` compares each
    query of the video separately. The loss of a video without negatives is 0. Videos without queries are excluded.
    """
    is_positive = positive_pairs(video_index, scores.shape[1])
    num_positive = is_positive.sum(dim=0)
    positive = (scores * is_positive).sum(dim=0) / num_positive.clamp_min(1)
    negative = scores.gather(0, negative_queries(scores, video_index, ranks)[None, :])[0]
    hinge = (margin + negative - positive).relu() * (num_positive < len(scores))
    return hinge[num_positive > 0].mean()


def triplet_of_pairs(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " Q"], *, margin: float
) -> Float[Tensor, ""]:
    """Return the mean hinge loss over positive pairs. A pair must score above a negative query by the margin.

    `ranks` selects a negative query of another video for each pair. This loss is the part of GMMFormer Eq. 11 and v2
    Eq. 20 in which a video is compared with two queries. The loss of a batch with one video is 0.
    """
    positive = scores.gather(1, video_index[:, None])[:, 0]
    negative = scores[_foreign_queries(scores, video_index)[ranks.to(scores.device), video_index], video_index]
    has_foreign = num_foreign_queries(video_index, scores.shape[1])[video_index] > 0
    return ((margin + negative - positive).relu() * has_foreign).mean()


def triplet_square_rows(scores: Float[Tensor, "Q Q"], ranks: Int[Tensor, " Q"], *, margin: float) -> Float[Tensor, ""]:
    """Return the mean hinge loss over the rows of a matrix with positives on the diagonal.

    For the loss over columns, pass the transposed matrix.
    """
    return triplet_of_queries(scores, torch.arange(len(scores), device=scores.device), ranks, margin=margin)
