"""The linear maps of several parallel blocks, computed as one batched matrix product."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """K linear maps with separate weights for K inputs."""

    stacked_dims: ClassVar[dict[str, int]] = {"weight": 1, "bias": 1}

    def __init__(self, count: int, in_dim: int, out_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, out_dim, in_dim))
        self.bias = nn.Parameter(torch.empty(count, out_dim))

    def forward(self, x: Float[Tensor, "K N T I"]) -> Float[Tensor, "K N T O"]:
        """Return the output of map k on x[k] for every k."""
        rows = x.flatten(1, 2)
        return torch.baddbmm(self.bias[:, None], rows, self.weight.transpose(1, 2)).unflatten(1, x.shape[1:3])
