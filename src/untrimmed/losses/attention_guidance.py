"""In two videos played as one, a query's prototype should look at the video that the query describes (ProtoPRVR)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention_guidance(
    first_share: Float[Tensor, " N"], is_first: Bool[Tensor, " N"], *, margin: float, clamp: bool = True
) -> Float[Tensor, ""]:
    """Mean cross-entropy between the share of attention on the first video and whether it is the right one (Eq. 7).

    A share on the right video of 1 - `margin` is enough. Eq. 7 to the letter (`clamp` off) goes on to reward larger
    ones, with negative values.

    >>> attention_guidance(torch.tensor([0.9, 0.5]), torch.tensor([True, False]), margin=0.2)
    tensor(0.1783)
    """
    right = torch.where(is_first, first_share, 1 - first_share) + margin
    return -(right.clamp_max(1) if clamp else right).log().mean()
