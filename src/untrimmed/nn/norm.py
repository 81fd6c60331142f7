"""Layer normalisation for one block or several parallel blocks."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Layer normalisation (eps 1e-5). With `decay_gain`, weight decay applies to the gain.

    The released optimizers exclude a gain from weight decay only if the gain's name contains `LayerNorm`. In released
    layers with a feed-forward part, the norms are named `norm1` and `norm2`, so weight decay applies to their gains.
    """

    def __init__(self, dim: int, *, decay_gain: bool = False):
        super().__init__(dim)
        self.decay_gain = decay_gain


class StackedLayerNorm(nn.Module):
    """K layer normalisations with separate gains, applied to K inputs at once."""

    stacked_dims: ClassVar[dict[str, int]] = {"weight": 1, "bias": 1}

    def __init__(self, count: int, dim: int, *, decay_gain: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(count, dim))
        self.bias = nn.Parameter(torch.zeros(count, dim))
        self.decay_gain = decay_gain

    def forward(self, x: Float[Tensor, "*K N T D"]) -> Float[Tensor, "B N T D"]:
        """Return x normalised over the last axis, with gain and bias of each block.

        `x` has one input for each block, or one input for all blocks.
        """
        normalised = F.layer_norm(x, x.shape[-1:])
        return torch.addcmul(self.bias[:, None, None], normalised, self.weight[:, None, None])
