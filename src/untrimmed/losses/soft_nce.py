"""InfoNCE in which part of a batch has soft labels that another similarity proposes (DL-DKD++)."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import own_queries

LEAST_LABEL = 1e-12  # added to the labels of videos before their logarithm, as released


class SoftNCE(NamedTuple):
    """The four means of the loss, 0 where a part is empty."""

    hard_queries: Float[Tensor, ""]
    hard_videos: Float[Tensor, ""]
    soft_queries: Float[Tensor, ""]
    soft_videos: Float[Tensor, ""]


def soft_nce_parts(
    scores: Float[Tensor, "Q V"],
    guide: Float[Tensor, "Q V"],
    video_index: Int[Tensor, " Q"],
    *,
    hard_share: float,
    label_share: float,
) -> SoftNCE:
    """Both directions of InfoNCE for the hard and for the soft part.

    The first `hard_share` of queries and of videos, by their place in the batch, keep their labels; for the others a
    label is `label_share` of the true one and the rest a softmax of `guide`. As released nothing is detached, and a
    part counts only if it holds queries and videos.
    """
    true = own_queries(video_index, scores.shape[1]).to(scores)
    num_queries = int(hard_share * len(scores))
    num_videos = int(hard_share * scores.shape[1])

    def softened(labels: Tensor, guide: Tensor, num_hard: int) -> Tensor:
        mixed = (1 - label_share) * guide.softmax(dim=1) + label_share * labels
        return torch.cat([labels[:num_hard], mixed[num_hard:]])

    labels = softened(true, guide, num_queries)
    of_queries = (labels * (scores.logsumexp(dim=1, keepdim=True) - scores)).sum(dim=1)
    labels = softened(true.T, guide.T, num_videos)
    of_videos = scores.logsumexp(dim=0) - ((labels + LEAST_LABEL).log() + scores.T).logsumexp(dim=1)

    def means(queries: Tensor, videos: Tensor) -> tuple[Tensor, Tensor]:
        empty = len(queries) == 0 or len(videos) == 0
        return (0 * scores.sum(), 0 * scores.sum()) if empty else (queries.mean(), videos.mean())

    hard = means(of_queries[:num_queries], of_videos[:num_videos])
    soft = means(of_queries[num_queries:], of_videos[num_videos:])
    return SoftNCE(*hard, *soft)


def soft_nce(
    scores: Float[Tensor, "Q V"],
    guide: Float[Tensor, "Q V"],
    video_index: Int[Tensor, " Q"],
    *,
    hard_share: float,
    label_share: float,
) -> Float[Tensor, ""]:
    """The parts of `soft_nce_parts`, hard ones weighted by `hard_share` and soft ones by the rest."""
    parts = soft_nce_parts(scores, guide, video_index, hard_share=hard_share, label_share=label_share)
    hard = parts.hard_queries + parts.hard_videos
    soft = parts.soft_queries + parts.soft_videos
    return hard_share * hard + (1 - hard_share) * soft
