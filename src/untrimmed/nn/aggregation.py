"""What joins the outputs of layers that ran side by side into one sequence (GMMFormer v2, Table 4).

The token that reads them is learned (GMMFormer v2), or, where none is given, the mean of what is to be joined, over all
layers and all positions, with its gradient (HLFormer, DreamPRVR, Holmes). That mean counts rows at padding too, so they
have to be computed as they are there: layers without `skip_padding`, sequences of the full length.
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
Token = Float[Tensor, " D"] | None  # None: the mean of the outputs


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
    """The aggregation of that kind for sequences of at most `length`; `generator` says how weights are read."""
    if kind == "mean":
        return MeanAggregation()
    if kind == "weighted":
        return WeightedAggregation(num_layers, temperature)
    if kind == "dynamic":
        return DynamicAggregation(num_layers, dim, num_heads, dropout, temperature, generator)
    return TemporalConsolidation(length, dim, num_heads, dropout, temperature, generator)


def reads_token(kind: Aggregation) -> bool:
    """Whether an aggregation of that kind reads with a token."""
    return kind in ("dynamic", "consolidation")


def mean_of(outputs: Layers) -> Float[Tensor, "N D"]:
    """One vector for each sequence: the mean over all layers and positions, padding included."""
    return outputs.mean(dim=(0, 2))


class TokenLayer(nn.Module):
    """A post-norm transformer layer in which one token reads a sequence (the cross layer of GMMFormer v2)."""

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
        """The token, one for all or one for each of N, after reading each sequence."""
        y = self.norm1(token + self.dropout(self.attention(token, x, mask)))
        return self.norm2(y + self.dropout(self.layer2(self.dropout(self.layer1(y).relu()))))


READERS: dict[Generator, type[TokenLayer] | type[TokenAttention]] = {"released": TokenLayer, "paper": TokenAttention}


class MeanAggregation(nn.Module):
    """The plain mean of the layers (GMMFormer Eq. 10)."""

    def forward(self, outputs: Layers, inputs: Rows, mask: Mask = None, token: Token = None) -> Rows:
        """One sequence from K."""
        return outputs.mean(dim=0)


class WeightedAggregation(nn.Module):
    """One learned weight a layer (GMMFormer v2 Eq. 17)."""

    def __init__(self, count: int, temperature: float):
        super().__init__()
        self.temperature = temperature
        self.weight = nn.Parameter(torch.zeros(count))

    def forward(self, outputs: Layers, inputs: Rows, mask: Mask = None, token: Token = None) -> Rows:
        """One sequence from K."""
        return torch.einsum("k,kntd->ntd", (self.weight / self.temperature).softmax(0), outputs)


class DynamicAggregation(nn.Module):
    """One weight a layer and video, read from the block's input by a learned token (GMMFormer v2 Eq. 18).

    The reader is that of `TemporalConsolidation`: a whole transformer layer, or cross-attention as printed.
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
        """One sequence from K."""
        token = mean_of(outputs) if token is None else token
        weights = (self.weights(self.reader(token, inputs, mask)) / self.temperature).softmax(-1)
        return torch.einsum("nk,kntd->ntd", weights, outputs)


class TemporalConsolidation(nn.Module):
    """A weight for each layer and time point, read from the layer's output (GMMFormer v2 Eq. 1-3).

    As released the reader is a whole transformer layer and two linear maps follow it; Eq. 1 has cross-attention and one
    map (`generator: paper`). The last map has one output per absolute time point, hence the fixed `length`.
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
        """One sequence from K."""
        read = self.reader(mean_of(outputs) if token is None else token, outputs, mask)
        if self.hidden is not None:
            read = self.dropout(self.hidden(read).relu())
        scores = self.weights(read)[..., : outputs.shape[2]]
        weights = (scores / self.temperature).softmax(dim=0)
        joined = weights[0, ..., None] * outputs[0]
        for weight, output in zip(weights[1:], outputs[1:], strict=True):  # never K products at once
            joined = torch.addcmul(joined, weight[..., None], output)
        return joined
