"""Transformer layers with different attention windows that run in parallel on one input."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn import lean, narrow
from untrimmed.nn.attention import StackedSelfAttention
from untrimmed.nn.dropout import Dropout, rate
from untrimmed.nn.linear import StackedLinear
from untrimmed.nn.norm import StackedLayerNorm
from untrimmed.nn.packing import packing_of
from untrimmed.nn.window import Constraint, Formula, constraint_windows

NormOrder = Literal["post", "pre"]
SkipPadding = bool | Literal["training"]  # whether to skip rows of padding: always, never, or only in training


def skips_padding(module: nn.Module, when: SkipPadding) -> bool:
    """Whether the module skips padding in its current mode (training or evaluation)."""
    return module.training if when == "training" else when


class ParallelLayers(nn.Module):
    """K transformer layers with separate weights, computed as one batch.

    - `widths`: the width of each layer's window. A layer of width inf has no window.
    - `output_map`: add a linear map after the heads (MS-SL, GMMFormer).
    - `ffn_ratio`: add a feed-forward part with a hidden layer of width `ffn_ratio * dim` (GMMFormer v2).
    - `norm`: `post` in the released programs, `pre` in the papers (GMMFormer Eq. 8-9, v2 Eq. 14-15).
    - `skip_padding`: do not compute the rows of padding. The output of these rows is arbitrary. Methods whose released
      programs use these rows must not set this option. With "training", the rows are computed in evaluation mode,
      because the comparison with the released program includes them.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float,
        *,
        widths: Sequence[float] = (math.inf,),
        output_map: bool,
        ffn_ratio: int = 0,
        norm: NormOrder = "post",
        constraint: Constraint = "gaussian",
        window_formula: Formula = "released",
        window_length: int | None = None,
        skip_padding: SkipPadding = False,
        attention: nn.Module | None = None,
    ):
        super().__init__()
        count = len(widths)
        self.skip_padding = skip_padding
        self.widths = tuple(widths)
        self.norm_order = norm
        self.constraint = constraint
        self.window_formula = window_formula
        self.window_length = window_length
        decay_gain = ffn_ratio > 0
        self.attention = StackedSelfAttention(count, dim, num_heads, dropout) if attention is None else attention
        self.output = StackedLinear(count, dim, dim) if output_map else nn.Identity()
        self.norm1 = StackedLayerNorm(count, dim, decay_gain=decay_gain)
        self.ffn = StackedFeedForward(count, dim, ffn_ratio * dim, dropout) if ffn_ratio else None
        self.norm2 = StackedLayerNorm(count, dim, decay_gain=decay_gain) if ffn_ratio else None
        self.dropout = Dropout(dropout)
        self._windows: dict[tuple[int, torch.device], Tensor] = {}

    def windows(self, length: int, device: torch.device) -> Float[Tensor, "K T T"] | None:
        """Return the windows for sequences of this length, or None if no layer has a window.

        If `window_length` is set, windows are computed for `window_length` rows and then cut to `length`, so that every
        batch has the same windows. The windows are cached.
        """
        if all(math.isinf(width) for width in self.widths):
            return None
        if torch.compiler.is_compiling():  # compiled code would use the same cached windows for all lengths
            return self._build_windows(length, device)
        key = (length, device)
        if key not in self._windows:
            # Training may use the windows later, and cannot use tensors that were created in inference mode.
            with torch.inference_mode(False):
                self._windows[key] = self._build_windows(length).to(device)
        return self._windows[key]

    def _build_windows(self, length: int, device: torch.device | None = None) -> Float[Tensor, "K T T"]:
        full = length if self.window_length is None else max(self.window_length, length)
        windows = constraint_windows(
            full, self.widths, constraint=self.constraint, formula=self.window_formula, device=device
        )
        return windows[:, :length, :length]

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        mask: Bool[Tensor, "N T"] | None = None,
        extra_rows: Float[Tensor, "N R D"] | None = None,
    ) -> Float[Tensor, "K N T D"]:
        """Return the outputs of all layers on the same input. Rows at masked positions are arbitrary.

        Every layer also attends to `extra_rows`. The output does not include these rows.
        """
        windows = self.windows(x.shape[1], x.device)
        if self.norm_order == "post" and lean.applies(x, self.dropout):
            attention = self.attention
            skips = extra_rows is None and skips_padding(self, self.skip_padding)
            if isinstance(attention, StackedSelfAttention) and skips:
                packing = packing_of(len(x), x.shape[1], mask, x.device)
                if packing is not None:
                    rows = packing.pack(x)
                    return packing.unpack(self._after_attention(rows, attention.packed(rows, windows, packing)))
            attended = self._attend(x, windows, mask, extra_rows).flatten(1, 2)
            return self._after_attention(x.flatten(0, 1), attended).unflatten(1, x.shape[:2])
        if self.norm_order == "pre":
            x = x.expand(len(self.widths), *x.shape)
            if extra_rows is not None:
                extra_rows = self.norm1(extra_rows.expand(len(x), *extra_rows.shape))
            x = x + self.dropout(self.output(self._attend(self.norm1(x), windows, mask, extra_rows)))
            return x if self.ffn is None else x + self.ffn(self.norm2(x))  # type: ignore[misc]
        x = self.norm1(x + self.dropout(self.output(self._attend(x, windows, mask, extra_rows))))
        return x if self.ffn is None else self.norm2(x + self.ffn(x))  # type: ignore[misc]

    def _attend(self, x: Tensor, windows: Tensor | None, mask: Tensor | None, extra_rows: Tensor | None) -> Tensor:
        """Return the attention output of all layers. `LorentzAttention` does not support extra rows."""
        attended: Tensor = self.attention(x, windows, mask, *(() if extra_rows is None else (extra_rows,)))
        return attended

    def _after_attention(self, x: Float[Tensor, "M D"], attended: Float[Tensor, "K M D"]) -> Float[Tensor, "K M D"]:
        """Return the output of post-norm layers, given their attention output."""
        probability = rate(self.dropout)
        if isinstance(self.output, StackedLinear):
            attended = self.output(attended[:, None])[:, 0]
        if self.ffn is not None and self.norm2 is not None and not probability and x.ndim == 2 and narrow.applies(x):
            return narrow.after_attention(x, attended, self.norm1, self.ffn.layer1, self.ffn.layer2, self.norm2)
        y = lean.add_norm(x, attended, self.norm1.weight, self.norm1.bias, probability)
        if self.ffn is None or self.norm2 is None:
            return y
        return lean.add_norm(y, self.ffn.of_rows(y), self.norm2.weight, self.norm2.bias, probability)


class StackedFeedForward(nn.Module):
    """K two-layer perceptrons with ReLU, and with dropout after each layer."""

    def __init__(self, count: int, dim: int, hidden_dim: int, dropout: float):
        super().__init__()
        self.layer1 = StackedLinear(count, dim, hidden_dim)
        self.layer2 = StackedLinear(count, hidden_dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "K N T D"]) -> Float[Tensor, "K N T D"]:
        """Return the output of each perceptron. The caller adds the input to this output."""
        return self.dropout(self.layer2(self.dropout(self.layer1(x).relu())))

    def of_rows(self, x: Float[Tensor, "K M D"]) -> Float[Tensor, "K M D"]:
        """Return the output before the last dropout. `lean.add_norm` applies this dropout."""
        parameters = (self.layer1.weight, self.layer1.bias, self.layer2.weight, self.layer2.bias)
        return lean.feed_forward(x, *parameters, rate(self.dropout))


class LayersOfTwoKinds(nn.Module):
    """Two groups of layers with different kinds of attention and the same input."""

    def __init__(self, first: ParallelLayers, second: ParallelLayers):
        super().__init__()
        self.first = first
        self.second = second

    @property
    def widths(self) -> tuple[float, ...]:
        """The window widths of all layers."""
        return self.first.widths + self.second.widths

    def forward(self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None = None) -> Float[Tensor, "K N T D"]:
        """Return the outputs of all layers, first those of the first group."""
        return torch.cat([self.first(x, mask), self.second(x, mask)])


class GaussianBlock(nn.Module):
    """Layers with different windows, whose outputs are combined into one sequence (GMMFormer and later methods)."""

    def __init__(self, layers: ParallelLayers | LayersOfTwoKinds, aggregation: nn.Module):
        super().__init__()
        self.layers = layers
        self.aggregation = aggregation

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        mask: Bool[Tensor, "N T"] | None = None,
        token: Float[Tensor, " D"] | None = None,
        extra_rows: Float[Tensor, "N R D"] | None = None,
    ) -> Float[Tensor, "N T D"]:
        """Return a sequence of the same shape. Masked rows get no attention, but have an output.

        `token` is passed to the aggregation. The layers also attend to `extra_rows`.
        """
        outputs = self.layers(x, mask) if extra_rows is None else self.layers(x, mask, extra_rows)
        return self.aggregation(outputs, x, mask, token)


class TransformerLayer(nn.Module):
    """One transformer layer without a window."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float,
        *,
        output_map: bool,
        ffn_ratio: int = 0,
        norm: NormOrder = "post",
        skip_padding: SkipPadding = False,
    ):
        super().__init__()
        self.layers = ParallelLayers(
            dim,
            num_heads,
            dropout,
            output_map=output_map,
            ffn_ratio=ffn_ratio,
            norm=norm,
            skip_padding=skip_padding,
        )

    def forward(self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None = None) -> Float[Tensor, "N T D"]:
        """Return a sequence of the same shape. Masked rows get no attention, but have an output."""
        return self.layers(x, mask)[0]
