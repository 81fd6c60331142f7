"""Attention guidance: in two concatenated videos, a prototype should attend to the video of the query (ProtoPRVR)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention_guidance(
    first_share: Float[Tensor, " N"], is_first: Bool[Tensor, " N"], *, margin: float, clamp: bool = True
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the attention on the first video with whether it is the right one (Eq. 7).

    A share of 1 - `margin` on the right video costs nothing. Without `clamp`, as printed in Eq. 7, larger shares give
    negative values.

    >>> attention_guidance(torch.tensor([0.9, 0.5]), torch.tensor([True, False]), margin=0.2)
    tensor(0.1783)
    """
    right = torch.where(is_first, first_share, 1 - first_share) + margin
    return -(right.clamp_max(1) if clamp else right).log().mean()
