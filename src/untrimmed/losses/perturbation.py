"""The mean query of each video, and its random perturbations (DreamPRVR, arXiv 2604.03653)."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import positive_pairs


def mean_queries(query: Float[Tensor, "Q D"], video_index: Int[Tensor, " Q"], num_videos: int) -> Float[Tensor, "V D"]:
    """Return the mean query vector of each video, not normalised. The vector is 0 for a video without queries.

    >>> mean_queries(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 1)
    tensor([[2.]])
    """
    members = positive_pairs(video_index, num_videos).T.to(query.dtype)
    return members @ query / members.sum(dim=1, keepdim=True).clamp_min(1)


def perturbed(
    mean: Float[Tensor, "V D"],
    scale_noise: Float[Tensor, "V K D"],
    shift_noise: Float[Tensor, "V K D"],
    *,
    strength: float,
) -> Float[Tensor, "V K D"]:
    """Return K versions of each vector: standardised over its entries, then randomly scaled and shifted.

    The scale is 1 plus noise, and the shift is the mean of the entries plus noise. Both noises are multiplied by
    `strength` and by the standard deviation of the entries. As in the authors' program, gradients flow only through the
    standardised vector.
    """
    centre = mean.detach().mean(dim=-1)[:, None, None]
    spread = strength * mean.detach().std(dim=-1)[:, None, None]
    standardised = F.layer_norm(mean, mean.shape[-1:])[:, None]
    return (1 + spread * scale_noise) * standardised + (centre + spread * shift_noise)
