"""A caption lies in the cone that its video opens in hyperbolic space: the partial order loss of HLFormer.

Points are given by their space part x; their time is sqrt(1 / c + |x|^2) at curvature -c. As released; of the paper
(arXiv 2507.17402) only abstract, introduction and overview could be read.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

SHORTEST = 1e-8  # with LONGEST: bounds of the lengths of tangent vectors, in units of the curvature
LONGEST = math.asinh(2.0**15)


def lifted(tangent: Float[Tensor, "N D"], curvature: Float[Tensor, ""]) -> Float[Tensor, "N D"]:
    """The points that tangent vectors at the origin lead to (the exponential map)."""
    length = curvature.sqrt() * torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    return length.clamp(SHORTEST, LONGEST).sinh() * tangent / length.clamp_min(SHORTEST)


def exterior_angle(
    video: Float[Tensor, "N D"], text: Float[Tensor, "N D"], curvature: Float[Tensor, ""]
) -> Float[Tensor, " N"]:
    """The angle at each video between the way from the origin, continued, and the way to its text; in [0, pi].

    >>> video, text = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    >>> exterior_angle(video, text, torch.tensor(1.0)), exterior_angle(text, video, torch.tensor(1.0))
    (tensor([0.]), tensor([3.1416]))
    """
    video_time = _time(video, curvature)
    text_time = _time(text, curvature)
    product = curvature * ((video * text).sum(dim=-1) - video_time * text_time)
    other = torch.linalg.vector_norm(video, dim=-1) * (product.square() - 1).clamp_min(1e-8).sqrt()
    return _angle(torch.arccos, (text_time + product * video_time) / (other + 1e-8))


def aperture(video: Float[Tensor, "N D"], curvature: Float[Tensor, ""], *, radius: float) -> Float[Tensor, " N"]:
    """Half the opening of each video's cone: a right angle within twice the radius of the origin, less beyond."""
    distance = torch.linalg.vector_norm(video, dim=-1) * curvature.sqrt()
    return _angle(torch.arcsin, 2 * radius / (distance + 1e-8))


def partial_order(
    text: Float[Tensor, "Q D"],
    video: Float[Tensor, "V D"],
    video_index: Int[Tensor, " Q"],
    curvature: Float[Tensor, ""],
    *,
    radius: float = 0.1,
) -> Float[Tensor, ""]:
    """By what angle captions lie outside the cones of their videos, averaged over captions; 0 for those inside."""
    own = video[video_index]
    outside = exterior_angle(own, text, curvature) - aperture(own, curvature, radius=radius)
    return outside.clamp_min(0).mean()


def _time(space: Float[Tensor, "N D"], curvature: Float[Tensor, ""]) -> Float[Tensor, " N"]:
    return (1 / curvature + space.square().sum(dim=-1)).sqrt()


def _angle(inverse: Callable[[Tensor], Tensor], x: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The inverse of a sine or cosine, without a gradient where its own is infinite, or x out of range."""
    inside = x.abs() < 1
    return torch.where(inside, inverse(x.masked_fill(~inside, 0)), inverse(x.detach().clamp(-1, 1)))
