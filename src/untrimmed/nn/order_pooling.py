"""Pooling by rank: each feature's values sorted, then weighted by what a small recurrent network says of each rank."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

WIDTH = 32  # of positions and of the recurrent network, whatever the width of rows
TEMPERATURE = 0.1


class OrderPooling(nn.Module):
    """One vector a sequence: a weighted sum of the largest, the second largest, ... value of each feature.

    The generalised pooling operator of Chen et al. (CVPR 2021), as DreamPRVR has it. The weights depend on the number
    of rows alone, not on what they hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(WIDTH, WIDTH, bidirectional=True)
        self.score = nn.Linear(WIDTH, 1, bias=False)
        for name, parameter in self.gru.named_parameters():
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(parameter)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def weights(self, length: int) -> Float[Tensor, " T"]:
        """What each rank weighs, the largest value first; they sum to 1."""
        own = self.score.weight
        with torch.autocast(own.device.type, enabled=False):
            both, _ = self.gru(_positions(length).to(own))
            mean = both.unflatten(-1, (2, WIDTH)).mean(dim=-2)
            return (self.score(mean)[:, 0] / TEMPERATURE).softmax(dim=0)

    def forward(self, x: Float[Tensor, "N T D"]) -> Float[Tensor, "N D"]:
        """The pooled sequences."""
        ranked = x.sort(dim=1, descending=True).values
        return torch.einsum("t,ntd->nd", self.weights(x.shape[1]).to(x.dtype), ranked)


def _positions(length: int) -> Float[Tensor, "T 32"]:
    """Sines and cosines by turns, with wavelengths from 2 pi to almost 10000 times that."""
    rates = torch.exp(torch.arange(0, WIDTH, 2, dtype=torch.float64) * (-math.log(10000) / WIDTH))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
