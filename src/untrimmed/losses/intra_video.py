"""Set the moment that fits a query against other parts of the same video (JSG Eq. 13)."""

from jaxtyping import Float
from torch import Tensor


def intra_video(moment: Float[Tensor, " Q"], negative: Float[Tensor, " Q"], *, margin: float) -> Float[Tensor, ""]:
    """Mean hinge of each query: its best moment must beat the other part of its video by the margin; 0 at best.

    >>> intra_video(torch.tensor([0.9, 0.5]), torch.tensor([0.2, 0.5]), margin=0.2)
    tensor(0.1000)
    """
    return (margin + negative - moment).relu().mean()
