"""InfoNCE in which some queries and videos have soft labels, computed from another similarity (DL-DKD++)."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import positive_pairs

LABEL_OFFSET = 1e-12  # added to the labels of videos before taking logarithms, as in the authors' program


class SoftNCE(NamedTuple):
    """The mean losses of queries and of videos, with hard labels and with soft labels. An empty part has loss 0."""

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
    """Return both directions of InfoNCE for the hard part and for the soft part of a batch.

    The first `hard_share` of the queries and of the videos keep their true labels. Every other label is the true label
    times `label_share`, plus the softmax of `guide` times 1 - `label_share`. As in the authors' program, gradients also
    flow into `guide`. If a part has no queries or no videos, its loss is 0.
    """
    true = positive_pairs(video_index, scores.shape[1]).to(scores)
    num_queries = int(hard_share * len(scores))
    num_videos = int(hard_share * scores.shape[1])

    def softened(labels: Tensor, guide: Tensor, num_hard: int) -> Tensor:
        mixed = (1 - label_share) * guide.softmax(dim=1) + label_share * labels
        return torch.cat([labels[:num_hard], mixed[num_hard:]])

    labels = softened(true, guide, num_queries)
    query_losses = (labels * (scores.logsumexp(dim=1, keepdim=True) - scores)).sum(dim=1)
    labels = softened(true.T, guide.T, num_videos)
    video_losses = scores.logsumexp(dim=0) - ((labels + LABEL_OFFSET).log() + scores.T).logsumexp(dim=1)

    def means(queries: Tensor, videos: Tensor) -> tuple[Tensor, Tensor]:
        empty = len(queries) == 0 or len(videos) == 0
        return (0 * scores.sum(), 0 * scores.sum()) if empty else (queries.mean(), videos.mean())

    hard = means(query_losses[:num_queries], video_losses[:num_videos])
    soft = means(query_losses[num_queries:], video_losses[num_videos:])
    return SoftNCE(*hard, *soft)


def soft_nce(
    scores: Float[Tensor, "Q V"],
    guide: Float[Tensor, "Q V"],
    video_index: Int[Tensor, " Q"],
    *,
    hard_share: float,
    label_share: float,
) -> Float[Tensor, ""]:
    """Return the weighted sum of `soft_nce_parts`. Hard parts have weight `hard_share`, soft parts 1 - `hard_share`."""
    parts = soft_nce_parts(scores, guide, video_index, hard_share=hard_share, label_share=label_share)
    hard = parts.hard_queries + parts.hard_videos
    soft = parts.soft_queries + parts.soft_videos
    return hard_share * hard + (1 - hard_share) * soft
