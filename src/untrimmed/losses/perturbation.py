"""What the queries of a video say together, and that said a little differently (DreamPRVR, arXiv 2604.03653)."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import own_queries


def mean_queries(query: Float[Tensor, "Q D"], video_index: Int[Tensor, " Q"], num_videos: int) -> Float[Tensor, "V D"]:
    """The mean of the queries of each video, not normalised; 0 for a video without any.

    >>> mean_queries(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 1)
    tensor([[2.]])
    """
    members = own_queries(video_index, num_videos).T.to(query.dtype)
    return members @ query / members.sum(dim=1, keepdim=True).clamp_min(1)


def perturbed(
    mean: Float[Tensor, "V D"],
    scale_noise: Float[Tensor, "V K D"],
    shift_noise: Float[Tensor, "V K D"],
    *,
    strength: float,
) -> Float[Tensor, "V K D"]:
    """K versions of each vector: standardised over its entries, then scaled and shifted at random.

    Scales are drawn around 1 and shifts around the vector's own mean, both with `strength` times the standard deviation
    of its entries, from standard normal noise. As released neither has a gradient, only what they change has.
    """
    centre = mean.detach().mean(dim=-1)[:, None, None]
    spread = strength * mean.detach().std(dim=-1)[:, None, None]
    standardised = F.layer_norm(mean, mean.shape[-1:])[:, None]
    return (1 + spread * scale_noise) * standardised + (centre + spread * shift_noise)
