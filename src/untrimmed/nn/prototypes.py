"""Summarise a sequence of any length by a fixed number of vectors, called prototypes (ProtoPRVR)."""

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
    """The prototypes of each video, and each prototype's attention weights over the sequence, which sum to 1."""

    vectors: Float[Tensor, "V K D"]
    attention: Float[Tensor, "V K L"]


class LogitMap(nn.Linear):
    """Maps normalised vectors to queries or keys. `sharpness` is the standard deviation of the initial logits."""

    def __init__(self, dim: int, sharpness: float):
        super().__init__(dim, dim)
        self.init_std = math.sqrt(sharpness / dim)


class PrototypeBuilder(nn.Module):
    """Learned prototypes that attend to a sequence in several iterations with shared weights (ProtoPRVR Eq. 1).

    The new prototype is the mean of the rows, weighted by attention. There are no linear maps of values or outputs, so
    prototypes have the scale of the rows. There is only one attention head, because several heads would mix different
    moments in one vector.

    In the first iteration, the attention query is the normalised learned prototype, so one iteration is exactly Eq. 1.
    In later iterations, the query is the sum of the learned prototype and the previous iteration's normalised prototype
    (as in DETR).

    - `sharpness`: standard deviation of the initial logits. If it is far below 1, all rows get almost the same
      attention.
    - `builder`: `cross_attention` is described above. With `perceiver`, the prototypes of a video also attend to each
      other after each iteration. With `slot_attention`, the prototypes compete for each row, and a gated recurrent
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
        """Return the inputs of the query map in an iteration: the normalised prototypes.

        From the second iteration on, the learned prototypes are added, except with `slot_attention`. Without the
        learned prototypes, all queries of a video would be similar means of the video's rows, and would attend to the
        same rows.
        """
        normalised = self.prototype_norm(vectors)
        return normalised if iteration == 0 or self.gate is not None else normalised + self.prototypes

    def _updated(self, vectors: Float[Tensor, "V K D"], mixtures: Float[Tensor, "V K D"]) -> Float[Tensor, "V K D"]:
        if self.gate is not None:
            return self.gate(mixtures.flatten(0, 1), vectors.flatten(0, 1)).view_as(mixtures)
        return mixtures if self.exchange is None else mixtures + self.exchange(mixtures)


def _competing(logits: Float[Tensor, "V 1 K L"], mask: Bool[Tensor, "V L"] | None) -> Float[Tensor, "V 1 K L"]:
    """Return the attention weights of prototypes that compete for each row: a softmax over the prototypes.

    Then the weights of each prototype are scaled to sum to 1.
    """
    shares = logits.softmax(dim=-2)
    shares = shares if mask is None else shares.masked_fill(~mask[:, None, None], 0.0)
    return shares / shares.sum(dim=-1, keepdim=True).clamp_min(1e-8)


class PrototypeExchange(nn.Module):
    """Pre-norm self-attention between the prototypes of a video."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.norm = LayerNorm(dim)
        self.attention = StackedSelfAttention(1, dim, num_heads, dropout=0.0)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "V K D"]) -> Float[Tensor, "V K D"]:
        """Return the output. The caller adds the prototypes to this output."""
        return self.output(self.attention(self.norm(x))[0])


def prototype_timeline(
    prototypes: Float[Tensor, "V K D"], unit_attention: Float[Tensor, "V M K"]
) -> Float[Tensor, "V M D"]:
    """Return a vector for each unit (clip or frame): the mean of the prototypes, weighted by `unit_attention`."""
    return unit_attention / unit_attention.sum(dim=-1, keepdim=True) @ prototypes
