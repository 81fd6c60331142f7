"""InfoNCE over a batch in which a video has several queries, and over a square matrix of positive pairs."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def own_queries(video_index: Int[Tensor, " Q"], num_videos: int) -> Bool[Tensor, "Q V"]:
    """Which query belongs to which video.

    >>> own_queries(torch.tensor([0, 1, 1]), 2).int().tolist()
    [[1, 0], [0, 1], [0, 1]]
    """
    return video_index[:, None] == torch.arange(num_videos, device=video_index.device)


def nce(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Both directions of InfoNCE, added.

    As released, the scores are dot products without a temperature. GMMFormer Eq. 12 prints a ratio of cosines, which
    has no logarithm where one is negative, so it is not offered.
    """
    return nce_of_queries(scores, video_index) + nce_of_videos(scores, video_index)


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
