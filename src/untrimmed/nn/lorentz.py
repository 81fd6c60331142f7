"""Attention in Lorentz space (HLFormer, arXiv 2507.17402): heads compare points of a hyperboloid by their distance.

A point is (time, space) with <x, x> = -1, where <u, v> = -u_0 v_0 + u_1 v_1 + ...; curvature is fixed at -1. Tangent
vectors at the origin (1, 0, ..., 0) have no time. Heads hold points of their own. Joined they are no point any more: as
released, the way back takes the first head's time for that of all, and the other heads' times for ordinary coordinates.
Between the two linear maps everything is float32 under autocast, because squares of times are subtracted.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.dropout import Dropout
from untrimmed.nn.linear import StackedLinear
from untrimmed.nn.norm import StackedLayerNorm

SHORTEST = 1e-9**0.5  # the exponential map clamps lengths of tangent vectors to SHORTEST and LONGEST
LONGEST = 10.0
LEAST_TIME = 1.1  # of what a Lorentz linear map gives
LEAST_SQUARE = 1e-8  # of the Minkowski norm that a sum of points is divided by
CLOSEST = 1e-9  # time^2 - 1 below which a point counts as the origin
MASKED_LOGIT = -1e18  # as released: below the logit of any distance


def negated_time(x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    """What has Minkowski products with others as its dot products."""
    return torch.cat([-x[..., :1], x[..., 1:]], dim=-1)


def exponential_map(tangent: Float[Tensor, "*B E"]) -> Float[Tensor, "*B P"]:
    """The points that tangent vectors at the origin lead to, with P = E + 1 numbers; a length above 10 counts as 10."""
    length = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True).clamp_min(SHORTEST)
    space = tangent * (length.clamp_max(LONGEST).sinh() / length)
    return torch.cat([(1 + space.square().sum(dim=-1, keepdim=True)).sqrt(), space], dim=-1)


def logarithmic_map(points: Float[Tensor, "*B P"]) -> Float[Tensor, "*B E"]:
    """The tangent vectors at the origin that lead to points; the origin itself, and what rounding takes for it, to 0.

    Vectors off the hyperboloid are taken for points with their time: the space part gets arcosh(t) / sqrt(t^2 - 1).
    """
    time = points[..., :1]
    space = points[..., 1:]
    square = time.square() - 1
    is_origin = square < CLOSEST
    root = square.masked_fill(is_origin, 1).sqrt()  # a root of 0 has no gradient
    return space * ((time + root).log() / root).masked_fill(is_origin, 1)


def points_of(rows: Float[Tensor, "*B E"], scale: Float[Tensor, "*#B 1"]) -> Float[Tensor, "*B E"]:
    """The points with the time 1.1 + scale * sigmoid(first number) and the others as direction; 0 has no direction."""
    time = LEAST_TIME + scale * rows[..., :1].sigmoid()
    length = torch.linalg.vector_norm(rows[..., 1:], dim=-1, keepdim=True)
    radius = (time.square() - 1).sqrt()
    return torch.cat([time, rows[..., 1:] * (radius / length.masked_fill(length == 0, 1))], dim=-1)


def centroid(sums: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    """Weighted sums of points, brought back to the hyperboloid."""
    square = (negated_time(sums) * sums).sum(dim=-1, keepdim=True)
    return sums / square.abs().clamp_min(LEAST_SQUARE).sqrt()


def bounded(parameter: Tensor, low: float, high: float, *, overwrite: bool) -> Tensor:
    """The values of a parameter, those out of range at its bound; gradients pass as if there were none.

    As released, training overwrites what is stored, so that an update starts at the bound.
    """
    if overwrite:
        with torch.no_grad():
            parameter.clamp_(low, high)
    return parameter.detach().clamp(low, high) + (parameter - parameter.detach())


class LorentzLinear(nn.Module):
    """K times three maps (queries, keys, values) of points to one point a head, with a learned range of their times."""

    stacked_dims: ClassVar[dict[str, int]] = {"weight": 2, "log_scale": 2}

    def __init__(self, count: int, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(count, 3, dim, dim))
        self.log_scale = nn.Parameter(torch.full((count, 3), 2.3))
        self.dropout = Dropout(dropout)

    def forward(self, points: Float[Tensor, "K N T P"]) -> tuple[Float[Tensor, "K N H T E"], ...]:
        """Queries, keys and values; dropout, drawn for each of the three, may take the time of a point too."""
        made = []
        for i in range(3):
            rows = torch.bmm(self.dropout(points).flatten(1, 2), self.weight[:, i].mT)
            heads = rows.view(*points.shape[:3], self.num_heads, -1)
            made.append(points_of(heads, self.log_scale[:, i, None, None, None, None].exp()).transpose(2, 3))
        return tuple(made)


class LorentzAttention(nn.Module):
    """K Lorentz attentions over one input: what `ParallelLayers` may have in place of self-attention.

    `lorentz_dim` is the width of the tangent space. Attention is by the negative squared distance over a learned
    temperature, plus a learned constant; there is no dropout on it.
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
        """What each attention adds to its input; `x`, `windows` and `mask` as in `StackedSelfAttention`."""
        tangent = self.tangent(x)
        with torch.autocast(x.device.type, enabled=False):
            scale = self.scale()
            query, key, value = self.linear(exponential_map(scale * tangent.to(scale.dtype)))
            weights = self.logits(query, key, windows, mask).softmax(dim=-1)
            tangent = logarithmic_map(self.read(weights, value)) / scale
        return self.output(self.dropout(self.output_norm(tangent))).relu()

    def tangent(self, x: Float[Tensor, "*K N T D"]) -> Float[Tensor, "B N T E"]:
        """Tangent vectors at the origin, before they are scaled."""
        return self.input(self.dropout(self.input_norm(x))).relu()

    def scale(self) -> Float[Tensor, "B 1 1 1"]:
        """What tangent vectors are multiplied with on the way in and divided by on the way out: at most 1."""
        return bounded(self.log_scale, -math.inf, 0.0, overwrite=self.training).exp()[:, None, None, None]

    def logits(
        self,
        query: Float[Tensor, "K N H T E"],
        key: Float[Tensor, "K N H T E"],
        windows: Float[Tensor, "K T T"] | None,
        mask: Bool[Tensor, "N T"] | None,
    ) -> Float[Tensor, "K N H T T"]:
        """(2 + 2 <q, k>) / temperature + bias, multiplied by the windows.

        As released the window multiplies what is negative: far keys move up towards 0, and gain weight.
        """
        factor = (2 / self.temperature)[:, None, None, None, None]
        logits = (factor * negated_time(query)) @ key.mT
        logits = logits.add_(factor + self.bias[:, None, None, None, None])
        if windows is not None:
            logits = logits.mul_(windows[:, None, None])
        return logits if mask is None else logits.masked_fill_(~mask[:, None, None], MASKED_LOGIT)

    def read(self, weights: Float[Tensor, "K N H T T"], value: Float[Tensor, "K N H T E"]) -> Float[Tensor, "K N T P"]:
        """The centroids of the values under the weights, heads side by side."""
        return centroid(weights @ value).transpose(-2, -3).flatten(-2)
