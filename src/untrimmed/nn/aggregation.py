"""Combine the outputs of parallel layers into one sequence (GMMFormer v2, Table 4).

The kinds `dynamic` and `consolidation` compute weights by attention. The query of this attention is a token: a learned
vector (GMMFormer v2) or, by default, the mean of the outputs over all layers and positions (HLFormer, DreamPRVR,
Holmes).

In the released programs, this mean includes padding. Therefore layers must compute the rows of padding, and sequences
must be padded to full length.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.attention import TokenAttention
from untrimmed.nn.dropout import Dropout
from untrimmed.nn.norm import LayerNorm

Aggregation = Literal["mean", "weighted", "dynamic", "consolidation"]
Generator = Literal["released", "paper"]
Layers = Float[Tensor, "K N T D"]
Rows = Float[Tensor, "N T D"]
Mask = Bool[Tensor, "N T"] | None
Token = Float[Tensor, " D"] | None  # None: the mean of the layers' outputs


def aggregation(
    kind: Aggregation,
    *,
    num_layers: int,
    length: int,
    dim: int,
    num_heads: int,
    dropout: float,
    temperature: float,
    generator: Generator = "released",
) -> nn.Module:
    """Return a new aggregation module of this kind, for sequences of at most `length` rows.

    `generator` selects the network that computes the weights of `dynamic` and `consolidation`.
    """
    if kind == "mean":
        return MeanAggregation()
    if kind == "weighted":
        return WeightedAggregation(num_layers, temperature)
    if kind == "dynamic":
        return DynamicAggregation(num_layers, dim, num_heads, dropout, temperature, generator)
    return TemporalConsolidation(length, dim, num_heads, dropout, temperature, generator)


def reads_token(kind: Aggregation) -> bool:
    """Whether this kind of aggregation computes its weights by attention from a token."""
    return kind in ("dynamic", "consolidation")


def mean_of(outputs: Layers) -> Float[Tensor, "N D"]:
    """Return the mean of each sequence over all layers and positions, including padding."""
    return outputs.mean(dim=(0, 2))


class TokenLayer(nn.Module):
    """A post-norm transformer layer in which one token attends to a sequence (the cross layer of GMMFormer v2)."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.attention = TokenAttention(dim, num_heads, dropout)
        self.norm1 = LayerNorm(dim, decay_gain=True)
        self.layer1 = nn.Linear(dim, dim)
        self.layer2 = nn.Linear(dim, dim)
        self.norm2 = LayerNorm(dim, decay_gain=True)
        self.dropout = Dropout(dropout)

    def forward(
        self, token: Float[Tensor, "*M D"], x: Float[Tensor, "*B N T D"], mask: Bool[Tensor, "N T"] | None = None
    ) -> Float[Tensor, "*B N D"]:
        """Return the updated token of each sequence. `token` is one row for all sequences or one row per sequence."""
        y = self.norm1(token + self.dropout(self.attention(token, x, mask)))
        return self.norm2(y + self.dropout(self.layer2(self.dropout(self.layer1(y).relu()))))


READERS: dict[Generator, type[TokenLayer] | type[TokenAttention]] = {"released": TokenLayer, "paper": TokenAttention}


class MeanAggregation(nn.Module):
    """Computes the mean of the layers' outputs (GMMFormer Eq. 10)."""

    def forward(self, outputs: Layers, inputs: Rows, mask: Mask = None, token: Token = None) -> Rows:
        """Combine the K sequences into one."""
        return outputs.mean(dim=0)


class WeightedAggregation(nn.Module):
    """Computes the weighted mean of the layers' outputs, with a learned weight per layer (GMMFormer v2 Eq. 17)."""

    def __init__(self, count: int, temperature: float):
        super().__init__()
        self.temperature = temperature
        self.weight = nn.Parameter(torch.zeros(count))

    def forward(self, outputs: Layers, inputs: Rows, mask: Mask = None, token: Token = None) -> Rows:
        """Combine the K sequences into one."""
        return torch.einsum("k,kntd->ntd", (self.weight / self.temperature).softmax(0), outputs)


class DynamicAggregation(nn.Module):
    """Computes the weighted mean of the layers' outputs, with a weight per layer and video (GMMFormer v2 Eq. 18).

    Weights are computed by attention from a token to the block's input. The generator `released` is a full transformer
    layer. The generator `paper` is only cross-attention.
    """

    def __init__(
        self,
        count: int,
        dim: int,
        num_heads: int,
        dropout: float,
        temperature: float,
        generator: Generator = "released",
    ):
        super().__init__()
        self.temperature = temperature
        self.reader = READERS[generator](dim, num_heads, dropout)
        self.weights = nn.Linear(dim, count)

    def forward(self, outputs: Layers, inputs: Rows, mask: Mask = None, token: Token = None) -> Rows:
        """Combine the K sequences into one."""
        token = mean_of(outputs) if token is None else token
        weights = (self.weights(self.reader(token, inputs, mask)) / self.temperature).softmax(-1)
        return torch.einsum("nk,kntd->ntd", weights, outputs)


class TemporalConsolidation(nn.Module):
    """Computes the weighted mean of the layers' outputs, with a weight per layer and position (GMMFormer v2 Eq. 1-3).

    Weights are computed by attention from a token to the layer's output. The generator `released` is a full transformer
    layer and two linear maps. The generator `paper` (Eq. 1) is cross-attention and one linear map. The last map has one
    output per position, so sequences have at most `length` rows.
    """

    def __init__(
        self,
        length: int,
        dim: int,
        num_heads: int,
        dropout: float,
        temperature: float,
        generator: Generator = "released",
    ):
        super().__init__()
        self.temperature = temperature
        self.reader = READERS[generator](dim, num_heads, dropout)
        self.hidden = nn.Linear(dim, dim) if generator == "released" else None
        self.weights = nn.Linear(dim, length)
        self.dropout = Dropout(dropout)

    def forward(self, outputs: Layers, inputs: Rows, mask: Mask = None, token: Token = None) -> Rows:
        """Combine the K sequences into one."""
        summary = self.reader(mean_of(outputs) if token is None else token, outputs, mask)
        if self.hidden is not None:
            summary = self.dropout(self.hidden(summary).relu())
        logits = self.weights(summary)[..., : outputs.shape[2]]
        weights = (logits / self.temperature).softmax(dim=0)
        total = weights[0, ..., None] * outputs[0]
        for weight, output in zip(weights[1:], outputs[1:], strict=True):  # a loop needs less memory than one sum
            total = torch.addcmul(total, weight[..., None], output)
        return total
