"""Triplet ranking losses with one negative per row, chosen by its rank among the scores."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import own_queries


def negative_videos(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " Q"]
) -> Int[Tensor, " Q"]:
    """For each query the video at `ranks` in its descending list; the positive is rank 0 whatever it scores."""
    ordered = scores.detach().scatter(1, video_index[:, None], torch.inf).argsort(dim=1, descending=True)
    return ordered.gather(1, ranks.to(scores.device)[:, None])[:, 0]


def negative_queries(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " V"]
) -> Int[Tensor, " V"]:
    """For each video the query at `ranks` in the descending list of queries of other videos (rank 0 is the best)."""
    return _foreign_queries(scores, video_index).gather(0, ranks.to(scores.device)[None, :])[0]


def _foreign_queries(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Int[Tensor, "Q V"]:
    """For each video the queries of other videos, best first, then its own."""
    own = own_queries(video_index, scores.shape[1])
    return scores.detach().masked_fill(own, -torch.inf).argsort(dim=0, descending=True)


def num_foreign_queries(video_index: Int[Tensor, " Q"], num_videos: int) -> Int[Tensor, " V"]:
    """For each video, how many queries of the batch belong to other videos."""
    return len(video_index) - own_queries(video_index, num_videos).sum(dim=0)


def triplet_of_queries(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " Q"], *, margin: float
) -> Float[Tensor, ""]:
    """Mean hinge of each query: its video must beat the negative video by the margin.

    0 in a batch of one video, where there is no negative.
    """
    positive = scores.gather(1, video_index[:, None])[:, 0]
    negative = scores.gather(1, negative_videos(scores, video_index, ranks)[:, None])[:, 0]
    hinge = (margin + negative - positive).relu()
    return hinge.mean() if scores.shape[1] > 1 else 0 * hinge.sum()


def triplet_of_videos(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " V"], *, margin: float
) -> Float[Tensor, ""]:
    """Mean hinge of each video: the mean of its queries must beat a foreign query by the margin.

    As released; `triplet_of_pairs` takes one positive query at a time. A video without foreign queries adds 0, one
    without queries is left out.
    """
    own = own_queries(video_index, scores.shape[1])
    num_own = own.sum(dim=0)
    positive = (scores * own).sum(dim=0) / num_own.clamp_min(1)
    negative = scores.gather(0, negative_queries(scores, video_index, ranks)[None, :])[0]
    hinge = (margin + negative - positive).relu() * (num_own < len(scores))
    return hinge[num_own > 0].mean()


def triplet_of_pairs(
    scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], ranks: Int[Tensor, " Q"], *, margin: float
) -> Float[Tensor, ""]:
    """Mean hinge of each query and its video: the query must beat a foreign query there by the margin.

    The video side as GMMFormer Eq. 11 and v2 Eq. 20 print it. `ranks` are as in `negative_queries`, one for each pair.
    0 in a batch of one video, where no query is foreign.
    """
    positive = scores.gather(1, video_index[:, None])[:, 0]
    negative = scores[_foreign_queries(scores, video_index)[ranks.to(scores.device), video_index], video_index]
    has_foreign = num_foreign_queries(video_index, scores.shape[1])[video_index] > 0
    return ((margin + negative - positive).relu() * has_foreign).mean()


def triplet_square_rows(scores: Float[Tensor, "Q Q"], ranks: Int[Tensor, " Q"], *, margin: float) -> Float[Tensor, ""]:
    """Mean hinge of each row of a matrix with positives on the diagonal; for columns pass the transpose."""
    return triplet_of_queries(scores, torch.arange(len(scores), device=scores.device), ranks, margin=margin)
