"""A fixed number of vectors from a sequence of any length, extracted by learned prototypes (ProtoPRVR, Table 6)."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.attention import KeyValueCache, StackedSelfAttention
from untrimmed.nn.norm import LayerNorm

Builder = Literal["cross_attention", "perceiver", "slot_attention"]
Residual = Literal["all", "anchored", "none"]
NormPlace = Literal["before", "after"]

# Two linear maps with weights of standard deviation 0.02, as in the released programs, scale a normalised row by
# READ_SCALE times its width: 0.15 at width 384.
READ_SCALE = 0.02**2


class Prototypes(NamedTuple):
    """The prototypes of each video and their attention weights over the sequence, which sum to 1 per prototype."""

    vectors: Float[Tensor, "V K D"]
    attention: Float[Tensor, "V K L"]


class LogitMap(nn.Linear):
    """Maps normalised vectors to queries or keys. Initial logits have deviation 1, so that attention is not flat."""

    @property
    def init_std(self) -> float:
        """The standard deviation of weights that preserves the scale of the input."""
        return float(self.in_features**-0.5)


class PrototypeBuilder(nn.Module):
    """Learned prototypes that attend to a sequence in several iterations with shared weights (ProtoPRVR Eq. 1).

    `builder`: `cross_attention` does only this. In a `perceiver` the prototypes of a video also attend to each other
    after each iteration. In `slot_attention` they compete for each row, and a gated recurrent unit updates them.

    `residual` selects the term that is added to the attention output P'. `all`: the current prototypes, as in a usual
    pre-norm attention layer; the learned prototypes start `scale` times as large as P' for a single row. `none`: no
    term, exactly Eq. 1. `anchored`: from the second iteration on, the previous result; queries then come from that
    result plus the learned prototypes. The gated unit of `slot_attention` ignores `residual`.

    Layer norms precede the maps to queries, keys and values. `norm="after"` adds a norm of the result, P = LN(P + P')
    for `all`. Its gain starts at the scale of the learned prototypes, which gives all iterations equal influence.
    """

    def __init__(
        self,
        num_prototypes: int,
        dim: int,
        num_heads: int,
        *,
        iterations: int,
        builder: Builder = "cross_attention",
        residual: Residual = "anchored",
        scale: float = 2.0,
        norm: NormPlace = "before",
    ):
        super().__init__()
        self.num_heads = num_heads
        self.iterations = iterations
        self.builder = builder
        self.residual = residual
        is_added = residual == "all" and builder != "slot_attention"
        start = scale * READ_SCALE * dim if is_added else 1.0
        self.prototypes = nn.Parameter(start * torch.randn(num_prototypes, dim))
        # Without these norms the scale would drift from one iteration to the next.
        self.prototype_norm = LayerNorm(dim)
        self.input_norm = LayerNorm(dim)
        self.query = LogitMap(dim, dim)
        self.key = LogitMap(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, dim)
        self.exchange = PrototypeExchange(dim, num_heads) if builder == "perceiver" else None
        self.gate = nn.GRUCell(dim, dim) if builder == "slot_attention" else None
        self.result_norm = LayerNorm(dim) if norm == "after" else nn.Identity()
        if isinstance(self.result_norm, LayerNorm):
            nn.init.constant_(self.result_norm.weight, start)

    def forward(self, x: Float[Tensor, "V L D"], mask: Bool[Tensor, "V L"] | None = None) -> Prototypes:
        """Return the prototypes of each sequence after the last iteration; masked rows get no attention."""
        *_, last = self.readings(x, mask)
        return last

    def readings(self, x: Float[Tensor, "V L D"], mask: Bool[Tensor, "V L"] | None = None) -> Iterator[Prototypes]:
        """Yield the prototypes and their attention, averaged over heads, after each iteration."""
        rows = self.input_norm(x)
        key = self._split_heads(self.key(rows))
        value = self._split_heads(self.value(rows))
        cache = KeyValueCache.of(key, value, mask)
        vectors = self.prototypes.expand(len(x), -1, -1)
        for iteration in range(self.iterations):
            query = self._split_heads(self.query(self.prototype_norm(self._query_input(vectors, iteration))))
            query = query / math.sqrt(query.shape[-1])
            if self.builder == "slot_attention":
                weights = self._competing(query @ key.transpose(-1, -2), mask)
                attended = weights @ value
            else:
                attended, weights = cache.attend(query)
            attended = self.output(attended.transpose(1, 2).flatten(-2))
            vectors = self.result_norm(self._updated(vectors, attended, iteration))
            yield Prototypes(vectors, weights.mean(dim=1))

    def _split_heads(self, x: Tensor) -> Tensor:
        """[V, N, D] -> [V, H, N, D / H], contiguous because every iteration multiplies by it."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).contiguous()

    def _competing(self, logits: Float[Tensor, "V H K L"], mask: Tensor | None) -> Float[Tensor, "V H K L"]:
        shares = logits.softmax(dim=-2)  # of each prototype in each row
        shares = shares if mask is None else shares.masked_fill(~mask[:, None, None], 0.0)
        return shares / shares.sum(dim=-1, keepdim=True).clamp_min(1e-8)

    def _query_input(self, vectors: Tensor, iteration: int) -> Tensor:
        """Add the learned prototypes if anchored: attention outputs are so similar that all queries would be equal."""
        is_anchored = self.residual == "anchored" and iteration > 0 and self.gate is None
        return vectors + self.prototypes if is_anchored else vectors

    def _updated(self, vectors: Tensor, attended: Tensor, iteration: int) -> Tensor:
        if self.gate is not None:
            return self.gate(attended.flatten(0, 1), vectors.flatten(0, 1)).view_as(attended)
        if self.residual == "all" or (self.residual == "anchored" and iteration > 0):
            attended = vectors + attended
        return attended if self.exchange is None else attended + self.exchange(attended)


class PrototypeExchange(nn.Module):
    """Pre-norm self-attention among the prototypes of a video."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.norm = LayerNorm(dim)
        self.attention = StackedSelfAttention(1, dim, num_heads, dropout=0.0)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "V K D"]) -> Float[Tensor, "V K D"]:
        """Return the residual update of the prototypes."""
        return self.output(self.attention(self.norm(x))[0])


def prototype_timeline(
    prototypes: Float[Tensor, "V K D"], unit_attention: Float[Tensor, "V M K"]
) -> Float[Tensor, "V M D"]:
    """Return a vector per unit: the mean of the prototypes, weighted by their attention to the unit."""
    return unit_attention / unit_attention.sum(dim=-1, keepdim=True) @ prototypes
