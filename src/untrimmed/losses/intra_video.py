"""Contrast the moment that matches a query with the rest of the same video (JSG Eq. 13)."""

from jaxtyping import Float
from torch import Tensor


def intra_video(moment: Float[Tensor, " Q"], negative: Float[Tensor, " Q"], *, margin: float) -> Float[Tensor, ""]:
    """Return the mean hinge loss. A query's best moment should score at least `margin` above the rest of the video.

    >>> intra_video(torch.tensor([0.9, 0.5]), torch.tensor([0.2, 0.5]), margin=0.2)
    tensor(0.1000)
    """
    return (margin + negative - moment).relu().mean()
