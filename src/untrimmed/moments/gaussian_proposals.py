"""JSG's proposals: windows with a centre and width in relative time. Each window pools a sequence into one vector.

Proposals have no learned parameters, so they apply to any sequence of vectors at equal time steps.
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
"""Relative time of row i of N: i / (N - 1) as released for JSG, or the middle of its interval, (i + 0.5) / N."""

WIDTHS_PER_DEVIATION = 9.0  # sigma in JSG Eq. 5, the same in all experiments
MIN_WIDTH = 0.01  # a window of width 0, such as one before a proposal at the video's start, would have no weights


@dataclass(frozen=True)
class Proposals:
    """Windows of a video. Their centres and widths are shares of the video's length."""

    center: Float[Tensor, " P"]
    width: Float[Tensor, " P"]

    @property
    def spans(self) -> Float[Tensor, "P 2"]:
        """Start and end of each proposal as shares of the video's length, clipped to [0, 1]."""
        half = self.width / 2
        return torch.stack([(self.center - half).clamp_min(0), (self.center + half).clamp_max(1)], dim=-1)


def centered_proposals(
    num_centers: int, num_widths: int, *, min_width: float, max_width: float, centers: CenterGrid = "released"
) -> Proposals:
    """Return a proposal of every width around every centre, grouped by centre (JSG Eq. 3-4).

    With `released`, the first and last centre are half the smallest width away from the ends of the video. With `paper`
    (Eq. 3), they are 0 and 1.

    >>> centered_proposals(2, 2, min_width=0.2, max_width=1.0).spans.tolist()[0]
    [0.0, 0.20000000298023224]
    """
    edge = min_width / 2 if centers == "released" else 0.0
    center = torch.linspace(edge, 1 - edge, num_centers)
    width = proposal_widths(num_widths, min_width=min_width, max_width=max_width)
    return Proposals(center.repeat_interleave(num_widths), width.repeat(num_centers))


def proposal_widths(num_widths: int, *, min_width: float, max_width: float) -> Float[Tensor, " M"]:
    """Return widths at equal steps, smallest first (JSG Eq. 4 and 9)."""
    return torch.linspace(min_width, max_width, num_widths)


JSG_WINDOWS = centered_proposals(32, 10, min_width=0.05, max_width=1.0)  # as in JSG on ActivityNet Captions


def sliding_proposals(num_units: int, *, step: int, min_width: float, max_width: float) -> Proposals:
    """Return all sliding windows with lengths of 1, 1 + step, 1 + 2 step, ... units (JSG Table 5, w/o CBPG)."""
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
    """Return the relative time of each position of a sequence.

    With `row_times="released"`, times run from 0 to 1. For the pooling `density`, they are i / n, as in Eq. 5. Times
    are computed by `linspace`, because dividing integers would round differently and change the scores of the
    narrowest windows.

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
    """Return Gaussians with standard deviation width / scale, each divided by its largest value on the grid.

    `center` and `width` have shape [..., P], `positions` [N] or [..., 1, N]; the result is [..., P, N]. Infinite
    positions get no weight.
    """
    deviation = (width.clamp_min(MIN_WIDTH) / scale)[..., None]
    exponent = -((positions - center[..., None]) ** 2) / (2 * deviation**2)
    # Subtract the maximum before the exponential, because a narrow window between two positions would give 0 / 0.
    return (exponent - exponent.amax(dim=-1, keepdim=True)).exp()


def pooling_weights(
    center: Float[Tensor, "*P"],
    width: Float[Tensor, "*P"],
    positions: Float[Tensor, "..."],
    *,
    scale: float = WIDTHS_PER_DEVIATION,
    pooling: Pooling = "gaussian",
) -> Float[Tensor, "..."]:
    """Return the weight of each position for each proposal. Shapes are those of `gaussian_windows`.

    - `gaussian`: Gaussian weights that sum to 1, as released.
    - `density`: the normal density of Eq. 5, which does not sum to 1.
    - `mean`: equal weights for the positions inside the span, or only the nearest position if there are none (Table 5,
      w/o GWP).

    >>> pooling_weights(torch.tensor([0.5]), torch.tensor([1.0]), time_grid(3), pooling="mean")
    tensor([[0.3333, 0.3333, 0.3333]])
    """
    deviation = (width.clamp_min(MIN_WIDTH) / scale)[..., None]
    distance = (positions - center[..., None]).abs()
    if pooling == "density":
        return torch.exp(-(distance**2) / (2 * deviation**2)) / (math.sqrt(2 * math.pi) * deviation)
    if pooling == "mean":
        half = deviation * WIDTHS_PER_DEVIATION / 2
        # the tolerance includes positions at the edge
        reach = torch.maximum(half, distance.amin(dim=-1, keepdim=True)) + 1e-6
        inside = (distance <= reach).to(distance.dtype)
        return inside / inside.sum(dim=-1, keepdim=True)
    window = gaussian_windows(center, width, positions, scale=scale)
    # As released, the constant is added only to the numerator.
    return (window + 1e-10) / window.sum(dim=-1, keepdim=True)


def pool(
    rows: Float[Tensor, "V N D"],
    proposals: Proposals,
    pooling: Pooling = "gaussian",
    mask: Bool[Tensor, "V N"] | None = None,
    row_times: RowTimes = "released",
) -> Float[Tensor, "V P D"]:
    """Return one vector per proposal and sequence (JSG Eq. 5 and 10).

    With a mask, proposals span only the real rows.
    """
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
    # Padding may contain NaN, which a weight of 0 does not exclude.
    weights = weights.masked_fill(~mask[:, None], 0)
    rows = rows.masked_fill(~mask[..., None], 0)
    return weights.to(rows.dtype) @ rows


@dataclass(frozen=True)
class SideWindows:
    """Windows before (column 0) and after (column 1) each proposal, and the `scale` with which they are pooled."""

    center: Float[Tensor, "Q 2"]
    width: Float[Tensor, "Q 2"]
    scale: float


def side_windows(center: Float[Tensor, " Q"], width: Float[Tensor, " Q"], kind: SideNegatives) -> SideWindows:
    """Return windows for the parts of the video before and after each proposal.

    In `paper` (Eq. 11), each window is centred in its part. In the released program, the windows are centred at the
    ends of the video and twice as wide.
    """
    left = (center - width / 2).clamp_min(0)
    right = (1 - center - width / 2).clamp_min(0)
    widths = torch.stack([left, right], dim=-1)
    if kind == "paper":
        return SideWindows(torch.stack([left / 2, 1 - right / 2], dim=-1), widths, WIDTHS_PER_DEVIATION)
    ends = torch.tensor([0.0, 1.0], device=center.device).expand_as(widths)
    return SideWindows(ends, widths, WIDTHS_PER_DEVIATION / 2)
