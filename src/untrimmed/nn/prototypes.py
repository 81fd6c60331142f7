"""Summarise a sequence of any length by a fixed number of vectors, the prototypes (ProtoPRVR)."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.attention import KeyValueCache, StackedSelfAttention
from untrimmed.nn.norm import LayerNorm

Builder = Literal["cross_attention", "perceiver", "slot_attention"]


class Prototypes(NamedTuple):
    """The prototypes of each video, and the attention weights of each prototype over the sequence. They sum to 1."""

    vectors: Float[Tensor, "V K D"]
    attention: Float[Tensor, "V K L"]


class LogitMap(nn.Linear):
    """Maps normalised vectors to queries or keys. The initial weights give the logits a chosen standard deviation."""

    def __init__(self, dim: int, sharpness: float):
        super().__init__(dim, dim)
        self.init_std = math.sqrt(sharpness / dim)


class PrototypeBuilder(nn.Module):
    """Learned prototypes that attend to a sequence in several iterations with shared weights (ProtoPRVR Eq. 1).

    A prototype becomes the mean of the rows, weighted by its attention. There are no linear maps of values or outputs,
    so prototypes have the scale of the rows. There is one attention head, because several heads would mix different
    moments in one vector. The attention query of the first iteration is the normalised learned prototype, so one
    iteration is exactly Eq. 1. In later iterations, the query is the previous iteration's prototype, normalised, plus
    the learned prototype (as in DETR).

    - `sharpness` is the initial standard deviation of the logits. If it is far below 1, all rows get almost the same
      attention.
    - `builder`: `cross_attention` is as described above. With `perceiver`, the prototypes of a video also attend to
      each other after each iteration. With `slot_attention`, the prototypes compete for each row, and a gated recurrent
      unit updates the prototypes.
    """

    def __init__(
        self,
        num_prototypes: int,
        dim: int,
        num_heads: int,
        *,
        iterations: int,
        builder: Builder = "cross_attention",
        sharpness: float = 4.0,
    ):
        super().__init__()
        self.iterations = iterations
        self.prototypes = nn.Parameter(torch.randn(num_prototypes, dim))
        self.prototype_norm = LayerNorm(dim)
        self.input_norm = LayerNorm(dim)
        self.query = LogitMap(dim, sharpness)
        self.key = LogitMap(dim, sharpness)
        self.exchange = PrototypeExchange(dim, num_heads) if builder == "perceiver" else None
        self.gate = nn.GRUCell(dim, dim) if builder == "slot_attention" else None

    def forward(self, x: Float[Tensor, "V L D"], mask: Bool[Tensor, "V L"] | None = None) -> Prototypes:
        """Return the prototypes of each sequence after the last iteration. Masked rows get no attention."""
        *_, last = self.readings(x, mask)
        return last

    def readings(self, x: Float[Tensor, "V L D"], mask: Bool[Tensor, "V L"] | None = None) -> Iterator[Prototypes]:
        """Yield the prototypes and their attention after each iteration."""
        # autocast would mix two formats in one product
        key = self.key(self.input_norm(x))[:, None].to(x.dtype)
        rows = x[:, None].contiguous()
        cache = KeyValueCache.of(key, rows, mask)
        vectors = self.prototypes.expand(len(x), -1, -1)
        for iteration in range(self.iterations):
            query = self.query(self._query_input(vectors, iteration))[:, None].to(x.dtype) / math.sqrt(x.shape[-1])
            if self.gate is None:
                mixtures, weights = cache.attend(query)
            else:
                weights = _competing(query @ key.transpose(-1, -2), mask)
                mixtures = weights @ rows
            vectors = self._updated(vectors, mixtures[:, 0])
            yield Prototypes(vectors, weights[:, 0])

    def _query_input(self, vectors: Float[Tensor, "V K D"], iteration: int) -> Float[Tensor, "V K D"]:
        """Return the queries of the next iteration, with the learned prototypes added.

        Without the learned prototypes, all queries of one video would be similar means of the video's rows, and would
        attend to the same rows.
        """
        normalised = self.prototype_norm(vectors)
        return normalised if iteration == 0 or self.gate is not None else normalised + self.prototypes

    def _updated(self, vectors: Float[Tensor, "V K D"], mixtures: Float[Tensor, "V K D"]) -> Float[Tensor, "V K D"]:
        if self.gate is not None:
            return self.gate(mixtures.flatten(0, 1), vectors.flatten(0, 1)).view_as(mixtures)
        return mixtures if self.exchange is None else mixtures + self.exchange(mixtures)


def _competing(logits: Float[Tensor, "V 1 K L"], mask: Bool[Tensor, "V L"] | None) -> Float[Tensor, "V 1 K L"]:
    """Return attention weights from a softmax over the prototypes, so that prototypes compete for each row.

    The weights of each prototype are then scaled to sum to 1.
    """
    shares = logits.softmax(dim=-2)
    shares = shares if mask is None else shares.masked_fill(~mask[:, None, None], 0.0)
    return shares / shares.sum(dim=-1, keepdim=True).clamp_min(1e-8)


class PrototypeExchange(nn.Module):
    """Pre-norm self-attention among the prototypes of a video."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.norm = LayerNorm(dim)
        self.attention = StackedSelfAttention(1, dim, num_heads, dropout=0.0)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "V K D"]) -> Float[Tensor, "V K D"]:
        """Return the output, which the caller adds to the prototypes."""
        return self.output(self.attention(self.norm(x))[0])


def prototype_timeline(
    prototypes: Float[Tensor, "V K D"], unit_attention: Float[Tensor, "V M K"]
) -> Float[Tensor, "V M D"]:
    """Return a vector for each unit: the mean of the prototypes, weighted by their attention to the unit."""
    return unit_attention / unit_attention.sum(dim=-1, keepdim=True) @ prototypes
