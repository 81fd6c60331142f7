"""Attention guidance (ProtoPRVR): in two joined videos, the query's prototype should attend to the query's video."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention_guidance(
    first_share: Float[Tensor, " N"], is_first: Bool[Tensor, " N"], *, margin: float, clamp: bool = True
) -> Float[Tensor, ""]:
    """Return the mean of -log(share + `margin`), where share is the attention on the query's video (Eq. 7).

    `first_share` is the share of attention on the first of the two videos. `is_first` marks queries of that video. With
    `clamp`, the loss is 0 for shares of at least 1 - `margin`. Without `clamp`, the loss is negative for larger shares,
    as in the printed Eq. 7.

    >>> attention_guidance(torch.tensor([0.9, 0.5]), torch.tensor([True, False]), margin=0.2)
    tensor(0.1783)
    """
    right = torch.where(is_first, first_share, 1 - first_share) + margin
    return -(right.clamp_max(1) if clamp else right).log().mean()
