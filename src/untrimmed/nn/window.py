"""Constraint windows: factors of attention logits that limit attention to nearby positions."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Constraint = Literal["gaussian", "bartlett", "boxcar"]
Formula = Literal["released", "paper"]


def constraint_windows(
    length: int,
    widths: Sequence[float],
    *,
    constraint: Constraint = "gaussian",
    formula: Formula = "released",
    device: torch.device | None = None,
) -> Float[Tensor, "K T T"]:
    """Return a matrix of factors for the attention logits for each width. For width inf, all factors are 1.

    - `formula="released"`: row i is a Gaussian with centre i / n and standard deviation max(width, 0.01) / 9, scaled to
      a maximum of 1. Key j is at time j / (n - 1).
    - `formula="paper"` (GMMFormer Eq. 7): exp(-(j - i)^2 / width) / 2 pi for positions i and j. `width` is sigma^2.
    - `constraint="bartlett"` and `"boxcar"` (GMMFormer Table 7, v2 Table 8): the papers print no formula. Our windows
      have the variance of the Gaussian that they replace.

    Windows are computed in float64 and returned in float32.

    >>> constraint_windows(3, [1.0]).shape
    torch.Size([1, 3, 3])
    """
    position = torch.arange(length, dtype=torch.float64, device=device)
    if formula == "released":
        grid = position / max(length - 1, 1)
        centre = position / length
        deviations = [max(width, 0.01) / 9 for width in widths]
        scale = 1.0
    else:
        grid = position
        centre = position
        deviations = [math.sqrt(width / 2) for width in widths]
        scale = 1 / (2 * math.pi)
    distance = (grid[None, :] - centre[:, None]).abs()
    windows = [
        torch.ones_like(distance) if math.isinf(width) else scale * _window(distance, deviation, constraint)
        for width, deviation in zip(widths, deviations, strict=True)
    ]
    return torch.stack(windows).float()


def _window(distance: Tensor, deviation: float, constraint: Constraint) -> Tensor:
    """Return the window, with a maximum of 1 in each row.

    The value depends on how much farther away a key is than the nearest key, so the maximum is 1. If we divided by the
    row's maximum instead, the result could be 0 / 0.
    """
    nearest = distance.min(dim=-1, keepdim=True).values
    if constraint == "gaussian":
        return torch.exp((nearest.square() - distance.square()) / (2 * deviation**2))
    if constraint == "bartlett":  # a triangle of half width h has variance h^2 / 6
        return (1 - (distance - nearest) / (math.sqrt(6) * deviation)).clamp_min(0)
    # a box of half width h has variance h^2 / 3
    return (distance - nearest <= math.sqrt(3) * deviation).to(distance.dtype)
