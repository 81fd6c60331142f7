"""InfoNCE for batches with several queries per video, and for square matrices with positives on the diagonal."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Contrast = Literal["released", "paper"]
MIN_SIMILARITY = 1e-6  # `nce_of_shares` replaces smaller similarities by this value


def positive_pairs(video_index: Int[Tensor, " Q"], num_videos: int) -> Bool[Tensor, "Q V"]:
    """Return a matrix that is True where a query (row) belongs to a video (column).

    >>> positive_pairs(torch.tensor([0, 1, 1]), 2).int().tolist()
    [[1, 0], [0, 1], [0, 1]]
    """
    return video_index[:, None] == torch.arange(num_videos, device=video_index.device)


def nce(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Return the sum of both directions of InfoNCE.

    As in the authors' programs, the scores are dot products without a temperature. `nce_of_shares` implements the
    papers' formula.
    """
    return nce_of_queries(scores, video_index) + nce_of_videos(scores, video_index)


def nce_of_shares(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Return InfoNCE without exponentials, exactly as printed in GMMFormer Eq. 12, v2 Eq. 21 and JSG Eq. 7.

    `scores` are cosines. The loss of a positive pair is -log(c / r) - log(c / s), averaged over pairs. c is the cosine
    of the pair. r is the sum of the query's cosines with all videos. s is c plus the sum of the video's cosines with
    the queries of other videos.

    The papers do not define the logarithm of a negative cosine. We replace such cosines by 0.000001, without gradient.

    >>> nce_of_shares(torch.tensor([[0.6, 0.2], [0.2, 0.6]]), torch.tensor([0, 1]))  # 2 log(8 / 6)
    tensor(0.5754)
    """
    scores = scores.clamp_min(MIN_SIMILARITY)
    positive = scores.gather(1, video_index[:, None])[:, 0]
    foreign = scores.masked_fill(positive_pairs(video_index, scores.shape[1]), 0).sum(dim=0)[video_index]
    return (scores.sum(dim=1).log() + (positive + foreign).log() - 2 * positive.log()).mean()


def nce_of_queries(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Return the mean negative log-probability of a query's video among all videos.

    >>> nce_of_queries(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.6931)
    """
    positive = scores.gather(1, video_index[:, None])[:, 0]
    return (scores.logsumexp(dim=1) - positive).mean()


def nce_of_videos(scores: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
    """Return the mean negative log-probability that a video selects one of its queries among all queries.

    Videos without a query are excluded.
    """
    is_positive = positive_pairs(video_index, scores.shape[1])
    positive = scores.masked_fill(~is_positive, -torch.inf).logsumexp(dim=0)
    has_query = is_positive.any(dim=0)
    return (scores.logsumexp(dim=0) - positive)[has_query].mean()


def nce_square(scores: Float[Tensor, "Q Q"]) -> Float[Tensor, ""]:
    """Return InfoNCE of a matrix with positives on the diagonal.

    The denominator is the sum over the row and the column of the positive. The positive is in both, so it is added
    twice.
    """
    both = torch.stack([scores.logsumexp(dim=1), scores.logsumexp(dim=0)])
    return (both.logsumexp(dim=0) - scores.diagonal()).mean()
