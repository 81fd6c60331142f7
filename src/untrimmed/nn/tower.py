"""Towers, which encode features as contextual vectors. The query tower also pools them into a sentence vector."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.errors import FeatureError
from untrimmed.nn import lean
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import ParallelLayers, SkipPadding, skips_padding
from untrimmed.nn.dropout import Dropout, rate
from untrimmed.nn.norm import LayerNorm


class InputLayer(nn.Module):
    """Converts features to the model's width by layer norm, dropout, linear map and ReLU."""

    def __init__(self, in_dim: int, dim: int, dropout: float):
        super().__init__()
        self.norm = LayerNorm(in_dim)
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(in_dim, dim)

    def forward(self, x: Float[Tensor, "N T C"], mask: Bool[Tensor, "N T"] | None = None) -> Float[Tensor, "N T D"]:
        """Return rows of the model's width. Rows at masked positions are arbitrary."""
        if lean.applies(x, self.dropout) and not x.requires_grad:
            rows = None if mask is None else mask.flatten().nonzero()[:, 0]
            out = lean.input_projection(x.flatten(0, 1), rows, self.norm, self.linear, rate(self.dropout))
            if rows is not None:
                out = out.new_zeros(mask.numel(), out.shape[1]).index_copy(0, rows, out)  # type: ignore[union-attr]
            return out.unflatten(0, x.shape[:2])
        return self.linear(self.dropout(self.norm(x))).relu()


class Positions(nn.Module):
    """Adds the learned vector of each position to the row, then applies layer norm and dropout."""

    def __init__(self, max_length: int, dim: int, dropout: float):
        super().__init__()
        self.table = nn.Embedding(max_length, dim)
        self.norm = LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "N T D"]) -> Float[Tensor, "N T D"]:
        """Return rows of the same shape that include the positions."""
        return self.dropout(self.norm(x + self.table.weight[: x.shape[1]]))


def require_fit(features: Float[Tensor, "N T C"], in_dim: int, max_length: int) -> None:
    """Raise a FeatureError if the features do not have width `in_dim`, or have more than `max_length` rows."""
    length, width = features.shape[1:]
    if width != in_dim or length > max_length:
        raise FeatureError(
            f"features have {length} rows of width {width}, the model expects at most {max_length} of width {in_dim}; "
            "resample them, or set the model's sizes to those of the features"
        )


def lengthened(
    features: Float[Tensor, "N T C"], mask: Bool[Tensor, "N T"], length: int
) -> tuple[Float[Tensor, "N L C"], Bool[Tensor, "N L"]]:
    """Return features and mask with padding set to zero and extended to `length` rows.

    If the features already have more rows, they are not shortened. Methods that use the encodings of padding call this
    function, so that a sequence's encoding does not depend on the batch.
    """
    missing = max(length - features.shape[1], 0)
    return F.pad(features.masked_fill(~mask[..., None], 0), (0, 0, 0, missing)), F.pad(mask, (0, missing))


class Tower(nn.Module):
    """Input layer, positions and encoder blocks. With `skip_padding`, the input layer does not compute padding."""

    def __init__(
        self,
        in_dim: int,
        dim: int,
        max_length: int,
        dropout: float,
        *blocks: nn.Module,
        skip_padding: SkipPadding = False,
    ):
        super().__init__()
        self.skip_padding = skip_padding
        self.max_length = max_length
        self.input = InputLayer(in_dim, dim, dropout)
        self.positions = Positions(max_length, dim, dropout)
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self, features: Float[Tensor, "N T C"], mask: Bool[Tensor, "N T"] | None = None
    ) -> Float[Tensor, "N T D"]:
        """Return the contextual vectors. Rows at masked positions are arbitrary.

        Raises: FeatureError if the features have the wrong width or are longer than the position table.
        """
        require_fit(features, self.input.linear.in_features, self.max_length)
        x = self.positions(self.input(features, mask if skips_padding(self, self.skip_padding) else None))
        for block in self.blocks:
            x = block(x, mask)
        return x


class SiblingTower(nn.Module):
    """A tower with copies of another tower's input layer and blocks.

    The other tower's positions are not copied, but passed to `forward`.
    """

    def __init__(self, tower: Tower):
        super().__init__()
        self.input = copy.deepcopy(tower.input)
        self.blocks = copy.deepcopy(tower.blocks)
        for module in self.blocks.modules():
            if isinstance(module, ParallelLayers):
                module.skip_padding = False  # RAL uses the encoded padding

    def forward(
        self,
        features: Float[Tensor, "N T C"],
        mask: Bool[Tensor, "N T"] | None,
        positions: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "N T D"]:
        """Return the contextual vectors of all rows, including rows of padding."""
        x = positions(self.input(features))
        for block in self.blocks:
            x = block(x, mask)
        return x


class QueryTower(nn.Module):
    """Encodes word features as contextual vectors, and pools these vectors into one sentence vector by attention."""

    def __init__(self, tower: Tower, dim: int):
        super().__init__()
        self.tower = tower
        self.pooling = AttentionPooling(dim)

    def forward(self, words: Float[Tensor, "Q W E"], mask: Bool[Tensor, "Q W"]) -> Float[Tensor, "Q D"]:
        """Return one vector per sentence, not normalised."""
        return self.pooling(self.tower(words, mask), mask)


def new_token(dim: int) -> nn.Parameter:
    """Return a new parameter drawn from normal(0, 1). `initialise` does not change its values."""
    return nn.Parameter(torch.randn(dim))
