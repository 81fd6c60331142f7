"""InfoNCE over a batch in which a video has several queries, and over a square matrix of positive pairs."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Contrast = Literal["released", "paper"]
LEAST_SIMILARITY = 1e-6  # what a similarity of 0 or less counts in `nce_of_shares`


def own_queries(video_index: Int[Tensor, " Q"], num_videos: int) -> Bool[Tensor, "Q V"]:
    """Which query belongs to which video.

    >>> own_queries(torch.tensor([0, 1, 1]), 2).int().tolist()
    [[1, 0], [0, 1], [0, 1]]
    """
    return video_index[:, None] == torch.arange(num_videos, device=video_index.device)


def nce(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Both directions of InfoNCE, added.

    As released, the scores are dot products without a temperature; `nce_of_shares` is what the papers print.
    """
    return nce_of_queries(scores, video_index) + nce_of_videos(scores, video_index)


def nce_of_shares(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Both directions to the letter of GMMFormer Eq. 12, v2 Eq. 21 and JSG Eq. 7: shares of similarities, pair by pair.

    No exponential is taken: a positive pair should hold all the similarity among its own and the negative videos of its
    query, and among its own and the negative queries of its video; other queries of the video are neither. The mean is
    over pairs. `scores` are cosines; the papers do not say what a negative one counts, which has no logarithm: here
    0.000001, so that such a pair learns from its triplets alone.

    >>> nce_of_shares(torch.tensor([[0.6, 0.2], [0.2, 0.6]]), torch.tensor([0, 1]))  # 2 log(8 / 6)
    tensor(0.5754)
    """
    scores = scores.clamp_min(LEAST_SIMILARITY)
    positive = scores.gather(1, video_index[:, None])[:, 0]
    foreign = scores.masked_fill(own_queries(video_index, scores.shape[1]), 0).sum(dim=0)[video_index]
    return (scores.sum(dim=1).log() + (positive + foreign).log() - 2 * positive.log()).mean()


def nce_of_queries(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Mean negative log-probability with which a query picks its video among all.

    >>> nce_of_queries(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.6931)
    """
    positive = scores.gather(1, video_index[:, None])[:, 0]
    return (scores.logsumexp(dim=1) - positive).mean()


def nce_of_videos(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Mean negative log-probability with which a video picks one of its queries; all its queries are positives.

    Videos without a query in the batch are left out.
    """
    own = own_queries(video_index, scores.shape[1])
    positive = scores.masked_fill(~own, -torch.inf).logsumexp(dim=0)
    has_query = own.any(dim=0)
    return (scores.logsumexp(dim=0) - positive)[has_query].mean()


def nce_square(scores: Float[Tensor, "Q Q"]) -> Float[Tensor, ""]:
    """InfoNCE of a matrix with positives on the diagonal: row and column in one sum, the positive counted twice."""
    both = torch.stack([scores.logsumexp(dim=1), scores.logsumexp(dim=0)])
    return (both.logsumexp(dim=0) - scores.diagonal()).mean()
