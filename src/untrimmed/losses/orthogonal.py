"""Keep the prototypes of a video apart, so that they represent different content (ProtoPRVR)."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

OrthogonalNorm = Literal["absolute", "squared"]


def orthogonal(prototypes: Float[Tensor, "V K D"], *, norm: OrthogonalNorm = "absolute") -> Float[Tensor, ""]:
    """Return the mean cosine (or squared cosine) between different prototypes of a video, in [0, 1] (Eq. 8).

    Negative cosines count as 0. The loss of a single prototype is 0. The paper does not specify the norm in Eq. 8. The
    divisor K (K - 1) in Eq. 8 suggests absolute values, summed over ordered pairs.

    >>> orthogonal(torch.tensor([[[1.0, 0.0], [3.0, 4.0], [0.0, -2.0]]]))
    tensor(0.2000)
    """
    unit = F.normalize(prototypes, dim=-1)
    count = unit.shape[1]
    # mask the diagonal, because subtracting it would leave rounding errors that have a gradient
    diagonal = torch.eye(count, dtype=torch.bool, device=unit.device)
    overlap = (unit @ unit.transpose(1, 2)).masked_fill(diagonal, 0.0).relu()
    if norm == "squared":
        overlap = overlap.square()
    return overlap.sum(dim=(1, 2)).mean() / max(count * (count - 1), 1)
