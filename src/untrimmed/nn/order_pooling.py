"""Pool a sequence by a weighted sum of each feature's sorted values, with weights from a small recurrent network."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

# width of the rank encodings and of the recurrent network, independent of the width of the rows
WIDTH = 32
TEMPERATURE = 0.1


class OrderPooling(nn.Module):
    """Pools a sequence into one vector: the weighted sum of the largest, second largest, ... value of each feature.

    This is the generalised pooling operator of Chen et al. (CVPR 2021), which DreamPRVR uses. The weights depend only
    on the number of rows, not on the values.
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
        """Return the weight of each rank, starting with the largest value. The weights sum to 1."""
        reference = self.score.weight
        with torch.autocast(reference.device.type, enabled=False):
            states, _ = self.gru(_positions(length).to(reference))
            mean = states.unflatten(-1, (2, WIDTH)).mean(dim=-2)  # mean of both directions of the recurrent network
            return (self.score(mean)[:, 0] / TEMPERATURE).softmax(dim=0)

    def forward(self, x: Float[Tensor, "N T D"]) -> Float[Tensor, "N D"]:
        """Return one vector per sequence."""
        ranked = x.sort(dim=1, descending=True).values
        return torch.einsum("t,ntd->nd", self.weights(x.shape[1]).to(x.dtype), ranked)


def _positions(length: int) -> Float[Tensor, "T 32"]:
    """Return encodings of ranks: alternating sines and cosines with wavelengths from 2 pi to almost 20000 pi."""
    rates = torch.exp(torch.arange(0, WIDTH, 2, dtype=torch.float64) * (-math.log(10000) / WIDTH))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
