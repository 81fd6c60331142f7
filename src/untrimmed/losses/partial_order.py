"""The partial order loss of HLFormer: in hyperbolic space, a caption should be inside the cone of its video.

A point of hyperbolic space (curvature -c) is stored as its space coordinates x. The point's time is
sqrt(1 / c + |x|^2). We follow the released program, because only parts of the paper (arXiv 2507.17402) were available.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

# lengths of tangent vectors, times sqrt(curvature), are limited to the range from MIN_LENGTH to MAX_LENGTH
MIN_LENGTH = 1e-8
MAX_LENGTH = math.asinh(2.0**15)


def lifted(tangent: Float[Tensor, "N D"], curvature: Float[Tensor, ""]) -> Float[Tensor, "N D"]:
    """Return the points to which the exponential map at the origin maps tangent vectors."""
    length = curvature.sqrt() * torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    return length.clamp(MIN_LENGTH, MAX_LENGTH).sinh() * tangent / length.clamp_min(MIN_LENGTH)


def exterior_angle(
    video: Float[Tensor, "N D"], text: Float[Tensor, "N D"], curvature: Float[Tensor, ""]
) -> Float[Tensor, " N"]:
    """Return the angle at each video between the direction away from the origin and the direction to the text.

    Angles are in [0, pi].

    >>> video, text = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    >>> exterior_angle(video, text, torch.tensor(1.0)), exterior_angle(text, video, torch.tensor(1.0))
    (tensor([0.]), tensor([3.1416]))
    """
    video_time = _time(video, curvature)
    text_time = _time(text, curvature)
    product = curvature * ((video * text).sum(dim=-1) - video_time * text_time)
    denominator = torch.linalg.vector_norm(video, dim=-1) * (product.square() - 1).clamp_min(1e-8).sqrt()
    return _angle(torch.arccos, (text_time + product * video_time) / (denominator + 1e-8))


def aperture(video: Float[Tensor, "N D"], curvature: Float[Tensor, ""], *, radius: float) -> Float[Tensor, " N"]:
    """Return half the opening angle of each video's cone.

    The result is a right angle near the origin, and decreases with the length of x.
    """
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
    """Return the mean angle between captions and the cones of their videos, which is 0 for captions inside the cone."""
    apex = video[video_index]
    outside = exterior_angle(apex, text, curvature) - aperture(apex, curvature, radius=radius)
    return outside.clamp_min(0).mean()


def _time(space: Float[Tensor, "N D"], curvature: Float[Tensor, ""]) -> Float[Tensor, " N"]:
    return (1 / curvature + space.square().sum(dim=-1)).sqrt()


def _angle(inverse: Callable[[Tensor], Tensor], x: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the inverse sine or cosine of x. The gradient is 0 where it would be infinite or x is out of range."""
    inside = x.abs() < 1
    return torch.where(inside, inverse(x.masked_fill(~inside, 0)), inverse(x.detach().clamp(-1, 1)))
