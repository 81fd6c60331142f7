"""Proposals by centre and width in relative time, and the weights that pool a sequence into one vector for each (JSG).

Nothing here is learned, so any sequence of vectors at equal time steps can be searched with them.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

CenterGrid = Literal["released", "paper"]
Pooling = Literal["gaussian", "density", "mean"]
SideNegatives = Literal["released", "paper"]
RowTimes = Literal["released", "middle"]
"""Where row i of N stands: i / (N - 1) as JSG was released, or in the middle of what it covers, (i + 0.5) / N."""

WIDTHS_PER_DEVIATION = 9.0  # sigma of Eq. 5, the same in all experiments
NARROWEST = 0.01  # a window of width 0 (nothing left beside a proposal) still weighs the nearest position


@dataclass(frozen=True)
class Proposals:
    """Windows of a video by centre and width, both as shares of its length."""

    center: Float[Tensor, " P"]
    width: Float[Tensor, " P"]

    @property
    def spans(self) -> Float[Tensor, "P 2"]:
        """Start and end of each as shares of the length, clipped to [0, 1]."""
        half = self.width / 2
        return torch.stack([(self.center - half).clamp_min(0), (self.center + half).clamp_max(1)], dim=-1)


def centered_proposals(
    num_centers: int, num_widths: int, *, min_width: float, max_width: float, centers: CenterGrid = "released"
) -> Proposals:
    """Every width around every centre, the widths of a centre consecutive (JSG Eq. 3-4).

    `released` keeps the outer centres half the smallest width inside the video; Eq. 3 (`paper`) starts them at 0.

    >>> centered_proposals(2, 2, min_width=0.2, max_width=1.0).spans.tolist()[0]
    [0.0, 0.20000000298023224]
    """
    edge = min_width / 2 if centers == "released" else 0.0
    center = torch.linspace(edge, 1 - edge, num_centers)
    width = proposal_widths(num_widths, min_width=min_width, max_width=max_width)
    return Proposals(center.repeat_interleave(num_widths), width.repeat(num_centers))


def proposal_widths(num_widths: int, *, min_width: float, max_width: float) -> Float[Tensor, " M"]:
    """Widths at equal steps, the smallest first (JSG Eq. 4 and 9)."""
    return torch.linspace(min_width, max_width, num_widths)


JSG_WINDOWS = centered_proposals(32, 10, min_width=0.05, max_width=1.0)  # those of JSG on ActivityNet Captions


def sliding_proposals(num_units: int, *, step: int, min_width: float, max_width: float) -> Proposals:
    """All windows of 1, 1 + step, 1 + 2 step ... units, each length slid over the video (JSG Table 5, w/o CBPG)."""
    centers = []
    widths = []
    for length in range(1, num_units + 1, step):
        count = num_units - length + 1
        edge = length / (2 * num_units)
        centers.append(torch.linspace(edge, 1 - edge, count))
        widths.append(torch.full((count,), length / num_units).clamp(min_width, max_width))
    return Proposals(torch.cat(centers), torch.cat(widths))


def time_grid(
    length: int,
    pooling: Pooling = "gaussian",
    device: torch.device | None = None,
    *,
    row_times: RowTimes = "released",
) -> Float[Tensor, " N"]:
    """Where each position of a sequence stands in relative time.

    As released from 0 to 1; Eq. 5, whose density is `density`, prints i / n. Made in float32 by equal steps: dividing
    whole numbers rounds differently, which the narrowest windows turn into other scores.

    >>> time_grid(2, row_times="middle")
    tensor([0.2500, 0.7500])
    """
    if row_times == "middle":
        return (torch.arange(length, device=device) + 0.5) / length
    if pooling == "density":
        return torch.linspace(1 / length, 1, length, device=device)
    return torch.linspace(0, 1, length, device=device)


def gaussian_windows(
    center: Float[Tensor, "*P"],
    width: Float[Tensor, "*P"],
    positions: Float[Tensor, "..."],
    *,
    scale: float = WIDTHS_PER_DEVIATION,
) -> Float[Tensor, "..."]:
    """Gaussians with deviation width / scale, each divided by its largest value on the grid.

    `positions` [..., 1, N] or [N] broadcast against center and width [..., P]; infinite positions get no weight.
    """
    deviation = (width.clamp_min(NARROWEST) / scale)[..., None]
    exponent = -((positions - center[..., None]) ** 2) / (2 * deviation**2)
    # The largest is taken out before the exponential: a window between two positions of a coarse grid would be 0 / 0.
    return (exponent - exponent.amax(dim=-1, keepdim=True)).exp()


def pooling_weights(
    center: Float[Tensor, "*P"],
    width: Float[Tensor, "*P"],
    positions: Float[Tensor, "..."],
    *,
    scale: float = WIDTHS_PER_DEVIATION,
    pooling: Pooling = "gaussian",
) -> Float[Tensor, "..."]:
    """What each position counts in the vector of each proposal; shapes as in `gaussian_windows`.

    `gaussian` sums to 1, as released; `density` is the normal density of Eq. 5 and does not; `mean` weighs
    the positions inside the span alike, at least the nearest one (Table 5, w/o GWP).

    >>> pooling_weights(torch.tensor([0.5]), torch.tensor([1.0]), time_grid(3), pooling="mean")
    tensor([[0.3333, 0.3333, 0.3333]])
    """
    deviation = (width.clamp_min(NARROWEST) / scale)[..., None]
    distance = (positions - center[..., None]).abs()
    if pooling == "density":
        return torch.exp(-(distance**2) / (2 * deviation**2)) / (math.sqrt(2 * math.pi) * deviation)
    if pooling == "mean":
        half = deviation * WIDTHS_PER_DEVIATION / 2
        reach = torch.maximum(half, distance.amin(dim=-1, keepdim=True)) + 1e-6  # rounding must not lose an edge
        inside = (distance <= reach).to(distance.dtype)
        return inside / inside.sum(dim=-1, keepdim=True)
    window = gaussian_windows(center, width, positions, scale=scale)
    # As released, the constant is added above the fraction only.
    return (window + 1e-10) / window.sum(dim=-1, keepdim=True)


def pool(
    rows: Float[Tensor, "V N D"],
    proposals: Proposals,
    pooling: Pooling = "gaussian",
    mask: Bool[Tensor, "V N"] | None = None,
    row_times: RowTimes = "released",
) -> Float[Tensor, "V P D"]:
    """One vector for each proposal of each sequence (JSG Eq. 5 and 10); with a mask, proposals span real rows only."""
    center = proposals.center.to(rows.device)
    width = proposals.width.to(rows.device)
    if mask is None:
        grid = time_grid(rows.shape[1], pooling, rows.device, row_times=row_times)
        return pooling_weights(center, width, grid, pooling=pooling).to(rows.dtype) @ rows
    num_real = mask.sum(dim=1, keepdim=True)
    step = torch.arange(rows.shape[1], device=rows.device)
    if row_times == "middle":
        grid = (step + 0.5) / num_real
    else:
        grid = (step + 1) / num_real if pooling == "density" else step / (num_real - 1).clamp_min(1)
    grid = grid.masked_fill(~mask, torch.inf)
    weights = pooling_weights(center, width, grid[:, None], pooling=pooling)
    # Rows at padding may hold anything, NaN included, so a weight of 0 alone does not exclude them.
    weights = weights.masked_fill(~mask[:, None], 0)
    rows = rows.masked_fill(~mask[..., None], 0)
    return weights.to(rows.dtype) @ rows


@dataclass(frozen=True)
class SideWindows:
    """Windows left (first column) and right of each proposal, and the scale at which they are pooled."""

    center: Float[Tensor, "Q 2"]
    width: Float[Tensor, "Q 2"]
    scale: float


def side_windows(center: Float[Tensor, " Q"], width: Float[Tensor, " Q"], kind: SideNegatives) -> SideWindows:
    """What is left over beside each proposal.

    Eq. 11 (`paper`) centres a window in each rest; the release centres them on the ends of the video and pools them at
    half the scale, hence twice as wide.
    """
    left = (center - width / 2).clamp_min(0)
    right = (1 - center - width / 2).clamp_min(0)
    widths = torch.stack([left, right], dim=-1)
    if kind == "paper":
        return SideWindows(torch.stack([left / 2, 1 - right / 2], dim=-1), widths, WIDTHS_PER_DEVIATION)
    ends = torch.tensor([0.0, 1.0], device=center.device).expand_as(widths)
    return SideWindows(ends, widths, WIDTHS_PER_DEVIATION / 2)
