"""Attention in Lorentz space (HLFormer, arXiv 2507.17402): weights depend on distances between points on a hyperboloid.

A point x is (time, space) with <x, x> = -1, where <u, v> = -u_0 v_0 + u_1 v_1 + ... is the Minkowski product. The
curvature is always -1. Tangent vectors at the origin (1, 0, ..., 0) have time 0, which is not stored.

Each head has its own points. As in the authors' program, the logarithmic map is applied to the concatenated points of
all heads, although the concatenation is not a point. The time of the first head is used as the time. The times of the
other heads are used as space coordinates.

Under autocast, everything between the two linear maps is computed in float32, because differences of squared times need
this precision.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.dropout import Dropout
from untrimmed.nn.linear import StackedLinear
from untrimmed.nn.norm import StackedLayerNorm

# The exponential map limits the lengths of tangent vectors to the range from MIN_LENGTH to MAX_LENGTH.
MIN_LENGTH = 1e-9**0.5
MAX_LENGTH = 10.0
MIN_TIME = 1.1  # smallest time that a Lorentz linear map returns
MIN_SQUARED_NORM = 1e-8  # smallest squared Minkowski norm by which `centroid` divides
ORIGIN_TOLERANCE = 1e-9  # points with time^2 - 1 below this number count as the origin
MASKED_LOGIT = -1e18  # as in the authors' program; smaller than any logit


def negated_time(x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    """Return points with negated time. Dot products with these points are Minkowski products."""
    return torch.cat([-x[..., :1], x[..., 1:]], dim=-1)


def exponential_map(tangent: Float[Tensor, "*B E"]) -> Float[Tensor, "*B P"]:
    """Return the points (P = E + 1 numbers) for tangent vectors at the origin. Lengths above 10 count as 10."""
    length = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True).clamp_min(MIN_LENGTH)
    space = tangent * (length.clamp_max(MAX_LENGTH).sinh() / length)
    return torch.cat([(1 + space.square().sum(dim=-1, keepdim=True)).sqrt(), space], dim=-1)


def logarithmic_map(points: Float[Tensor, "*B P"]) -> Float[Tensor, "*B E"]:
    """Return the tangent vectors at the origin for points. This is the inverse of `exponential_map`.

    The space part is multiplied by arcosh(t) / sqrt(t^2 - 1) for time t, or by 1 at the origin. Vectors that are not on
    the hyperboloid are treated in the same way.
    """
    time = points[..., :1]
    space = points[..., 1:]
    square = time.square() - 1
    is_origin = square < ORIGIN_TOLERANCE
    root = square.masked_fill(is_origin, 1).sqrt()  # the gradient of sqrt is infinite at 0
    return space * ((time + root).log() / root).masked_fill(is_origin, 1)


def points_of(rows: Float[Tensor, "*B E"], scale: Float[Tensor, "*#B 1"]) -> Float[Tensor, "*B E"]:
    """Return the point for each row, with time 1.1 + scale * sigmoid(first number of the row).

    The other numbers of the row determine the direction of the point's space part.
    """
    time = MIN_TIME + scale * rows[..., :1].sigmoid()
    length = torch.linalg.vector_norm(rows[..., 1:], dim=-1, keepdim=True)
    radius = (time.square() - 1).sqrt()
    return torch.cat([time, rows[..., 1:] * (radius / length.masked_fill(length == 0, 1))], dim=-1)


def centroid(sums: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    """Return the projections of weighted sums of points onto the hyperboloid."""
    square = (negated_time(sums) * sums).sum(dim=-1, keepdim=True)
    return sums / square.abs().clamp_min(MIN_SQUARED_NORM).sqrt()


def bounded(parameter: Tensor, low: float, high: float, *, overwrite: bool) -> Tensor:
    """Return the parameter, limited to [low, high]. Gradients are the same as without the limits.

    As in the authors' program, `overwrite` also limits the stored parameter, so that the next optimizer step starts
    from the limited value.
    """
    if overwrite:
        with torch.no_grad():
            parameter.clamp_(low, high)
    return parameter.detach().clamp(low, high) + (parameter - parameter.detach())


class LorentzLinear(nn.Module):
    """K layers with three maps each: for queries, keys and values. A map converts a point to one point per head.

    The time of the new points is at most `MIN_TIME` plus a learned scale. Each map has a different scale.
    """

    stacked_dims: ClassVar[dict[str, int]] = {"weight": 2, "log_scale": 2}

    def __init__(self, count: int, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(count, 3, dim, dim))
        self.log_scale = nn.Parameter(torch.full((count, 3), 2.3))
        self.dropout = Dropout(dropout)

    def forward(self, points: Float[Tensor, "K N T P"]) -> tuple[Float[Tensor, "K N H T E"], ...]:
        """Return queries, keys and values, with different dropout masks. Dropout can set the time of a point to 0."""
        projected = []
        for i in range(3):
            rows = torch.bmm(self.dropout(points).flatten(1, 2), self.weight[:, i].mT)
            heads = rows.view(*points.shape[:3], self.num_heads, -1)
            projected.append(points_of(heads, self.log_scale[:, i, None, None, None, None].exp()).transpose(2, 3))
        return tuple(projected)


class LorentzAttention(nn.Module):
    """K Lorentz attentions, which `ParallelLayers` can use instead of `StackedSelfAttention`.

    `lorentz_dim` is the width of the tangent space. Logits are the negative squared distance divided by a learned
    temperature, plus a learned bias. Attention weights have no dropout.
    """

    stacked_dims: ClassVar[dict[str, int]] = {"log_scale": 1, "temperature": 1, "bias": 1}

    def __init__(self, count: int, dim: int, lorentz_dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.input_norm = StackedLayerNorm(count, dim)
        self.input = StackedLinear(count, dim, lorentz_dim)
        self.log_scale = nn.Parameter(torch.full((count,), math.log(lorentz_dim**-0.5)))
        self.linear = LorentzLinear(count, lorentz_dim + 1, num_heads, dropout)
        self.temperature = nn.Parameter(torch.full((count,), math.sqrt(lorentz_dim + 1)))
        self.bias = nn.Parameter(torch.zeros(count))
        self.output_norm = StackedLayerNorm(count, lorentz_dim)
        self.output = StackedLinear(count, lorentz_dim, dim)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*K N T D"],
        windows: Float[Tensor, "B T T"] | None = None,
        mask: Bool[Tensor, "N T"] | None = None,
    ) -> Float[Tensor, "B N T D"]:
        """Return the output of every attention. `StackedSelfAttention` describes the arguments."""
        tangent = self.tangent(x)
        with torch.autocast(x.device.type, enabled=False):
            scale = self.scale()
            query, key, value = self.linear(exponential_map(scale * tangent.to(scale.dtype)))
            weights = self.logits(query, key, windows, mask).softmax(dim=-1)
            tangent = logarithmic_map(self.read(weights, value)) / scale
        return self.output(self.dropout(self.output_norm(tangent))).relu()

    def tangent(self, x: Float[Tensor, "*K N T D"]) -> Float[Tensor, "B N T E"]:
        """Return the input as tangent vectors at the origin, before scaling."""
        return self.input(self.dropout(self.input_norm(x))).relu()

    def scale(self) -> Float[Tensor, "B 1 1 1"]:
        """Return a factor of at most 1.

        Tangent vectors are multiplied by the factor before attention, and divided by the factor after attention.
        """
        return bounded(self.log_scale, -math.inf, 0.0, overwrite=self.training).exp()[:, None, None, None]

    def logits(
        self,
        query: Float[Tensor, "K N H T E"],
        key: Float[Tensor, "K N H T E"],
        windows: Float[Tensor, "K T T"] | None,
        mask: Bool[Tensor, "N T"] | None,
    ) -> Float[Tensor, "K N H T T"]:
        """Return (2 + 2 <q, k>) / temperature + bias, multiplied by the windows.

        As in the authors' program, windows multiply negative logits. For distant keys, this moves the logits towards 0
        and increases the attention weights.
        """
        factor = (2 / self.temperature)[:, None, None, None, None]
        logits = (factor * negated_time(query)) @ key.mT
        logits = logits.add_(factor + self.bias[:, None, None, None, None])
        if windows is not None:
            logits = logits.mul_(windows[:, None, None])
        return logits if mask is None else logits.masked_fill_(~mask[:, None, None], MASKED_LOGIT)

    def read(self, weights: Float[Tensor, "K N H T T"], value: Float[Tensor, "K N H T E"]) -> Float[Tensor, "K N T P"]:
        """Return the weighted centroids of the values. The centroids of all heads are concatenated."""
        return centroid(weights @ value).transpose(-2, -3).flatten(-2)
