"""Proposals of all lengths: means over all runs of consecutive units (MS-SL section 3; also ProtoPRVR)."""

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def proposal_spans(num_units: int) -> Int[Tensor, "P 2"]:
    """Return the span of each proposal as unit indices, end exclusive, sorted by length and then by start.

    >>> proposal_spans(2).tolist()
    [[0, 1], [1, 2], [0, 2]]
    """
    spans = [(start, start + length) for length in range(1, num_units + 1) for start in range(num_units - length + 1)]
    return torch.tensor(spans)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # the cached result may also be used in training
def _pooling_matrix(num_units: int) -> Float[Tensor, "P M"]:
    start, end = proposal_spans(num_units).unbind(1)
    unit = torch.arange(num_units)
    inside = (unit >= start[:, None]) & (unit < end[:, None])
    return inside.float() / inside.sum(dim=1, keepdim=True)


def proposals(units: Float[Tensor, "V M D"]) -> Float[Tensor, "V P D"]:
    """Return the mean of every window of consecutive units: M (M + 1) / 2 rows in the order of `proposal_spans`."""
    return _pooling_matrix(units.shape[1]).to(units) @ units


def unit_shares(shares: Float[Tensor, "V K P"], num_units: int) -> Float[Tensor, "V K M"]:
    """Convert attention over proposals to attention over units: each proposal divides its attention among its units."""
    return shares @ _pooling_matrix(num_units).to(shares)
