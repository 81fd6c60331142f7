"""A fixed number of vectors for a sequence of any length, read from it by learned prototypes (ProtoPRVR, Table 6)."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.attention import Source, StackedSelfAttention
from untrimmed.nn.norm import LayerNorm

Builder = Literal["cross_attention", "perceiver", "slot_attention"]
Residual = Literal["all", "anchored", "none"]
NormPlace = Literal["before", "after"]

# What is left of a normalised row after two maps whose weights have the family's deviation of 0.02, for each of its
# numbers: 0.15 at width 384.
READ_SCALE = 0.02**2


class Prototypes(NamedTuple):
    """The prototypes of each video and what each of them read: shares of the sequence that sum to 1."""

    vectors: Float[Tensor, "V K D"]
    attention: Float[Tensor, "V K L"]


class LogitMap(nn.Linear):
    """Maps normalised vectors to queries or keys whose products start with deviation 1, not nearly flat attention."""

    @property
    def init_std(self) -> float:
        """The deviation that keeps the scale of its input."""
        return float(self.in_features**-0.5)


class PrototypeBuilder(nn.Module):
    """Learned prototypes that read a sequence several times, with the same weights each time (ProtoPRVR Eq. 1).

    `cross_attention` does nothing else. `perceiver` lets the prototypes of a video attend to each other after each
    reading; in `slot_attention` they compete for each row, and a gated unit takes in what they read. `residual` says
    what a reading is added to. `all`: to what the prototypes were, as in a standard attention layer behind its norms;
    the learned prototypes start `scale` times as large as what a row gives them. `none`: to nothing, Eq. 1 to the
    letter. `anchored`: from the second on to what was read, and the prototypes ask with that and the learned vector.
    The gated unit keeps by itself. The maps of a reading stand behind layer norms; with `norm` `after` what it gives is
    normalised too, P = LN(P + map(attention)) with `all`, and this norm's gain starts like the learned prototypes, so
    that each reading counts as much as the one before. The attention is that of a reading, a mean over heads.
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
        # Without these norms the scale would drift from one reading to the next.
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
        """The prototypes of each sequence after the last reading; masked rows are not read."""
        *_, last = self.readings(x, mask)
        return last

    def readings(self, x: Float[Tensor, "V L D"], mask: Bool[Tensor, "V L"] | None = None) -> Iterator[Prototypes]:
        """The prototypes of each sequence after each reading."""
        rows = self.input_norm(x)
        key = self._split_heads(self.key(rows))
        value = self._split_heads(self.value(rows))
        source = Source.of(key, value, mask)
        vectors = self.prototypes.expand(len(x), -1, -1)
        for iteration in range(self.iterations):
            query = self._split_heads(self.query(self.prototype_norm(self._asking(vectors, iteration))))
            query = query / math.sqrt(query.shape[-1])
            if self.builder == "slot_attention":
                weights = self._competing(query @ key.transpose(-1, -2), mask)
                read = weights @ value
            else:
                read, weights = source.read(query)
            read = self.output(read.transpose(1, 2).flatten(-2))
            vectors = self.result_norm(self._updated(vectors, read, iteration))
            yield Prototypes(vectors, weights.mean(dim=1))

    def _split_heads(self, x: Tensor) -> Tensor:
        """[V, N, D] -> [V, H, N, D / H], in one piece because every iteration multiplies with it."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).contiguous()

    def _competing(self, logits: Float[Tensor, "V H K L"], mask: Tensor | None) -> Float[Tensor, "V H K L"]:
        shares = logits.softmax(dim=-2)  # of each row among the prototypes
        shares = shares if mask is None else shares.masked_fill(~mask[:, None, None], 0.0)
        return shares / shares.sum(dim=-1, keepdim=True).clamp_min(1e-8)

    def _asking(self, vectors: Tensor, iteration: int) -> Tensor:
        """What the prototypes ask with; what they have read is nearly the same for all and would make them alike."""
        is_anchored = self.residual == "anchored" and iteration > 0 and self.gate is None
        return vectors + self.prototypes if is_anchored else vectors

    def _updated(self, vectors: Tensor, read: Tensor, iteration: int) -> Tensor:
        if self.gate is not None:
            return self.gate(read.flatten(0, 1), vectors.flatten(0, 1)).view_as(read)
        if self.residual == "all" or (self.residual == "anchored" and iteration > 0):
            read = vectors + read
        return read if self.exchange is None else read + self.exchange(read)


class PrototypeExchange(nn.Module):
    """What the prototypes of a video tell each other: self-attention behind a layer norm."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.norm = LayerNorm(dim)
        self.attention = StackedSelfAttention(1, dim, num_heads, dropout=0.0)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "V K D"]) -> Float[Tensor, "V K D"]:
        """What is to be added to the prototypes."""
        return self.output(self.attention(self.norm(x))[0])


def prototype_timeline(
    prototypes: Float[Tensor, "V K D"], unit_attention: Float[Tensor, "V M K"]
) -> Float[Tensor, "V M D"]:
    """A vector for each unit: the mean of the prototypes, weighted by how much of the unit each of them read."""
    return unit_attention / unit_attention.sum(dim=-1, keepdim=True) @ prototypes
