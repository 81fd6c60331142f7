"""Transformer layers that run side by side, each with its own constraint window."""

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
SkipPadding = bool | Literal["training"]  # whether rows at masked positions are left out, always or in training


def skips_padding(module: nn.Module, when: SkipPadding) -> bool:
    """Whether a module leaves padding out now."""
    return module.training if when == "training" else when


class ParallelLayers(nn.Module):
    """K transformer layers with separate weights, run as one batched computation; width inf means no window.

    `output_map` adds a linear map after the heads, `ffn_ratio` a feed-forward part of that many times the width. MS-SL
    and GMMFormer have the first, GMMFormer v2 the second. `norm` is `post` in the released programs; the papers write
    `pre` (GMMFormer Eq. 8-9, v2 Eq. 14-15). `skip_padding`: rows at masked positions are not computed and come out
    as anything; only for methods that never look at them (some released ones do), and in `training` only where golden
    cases compare them.
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
        """The windows for sequences of this length, None when no layer has one; made once for each length.

        With `window_length` they are cut from the windows of that length, so that padding cannot change them.
        """
        if all(math.isinf(width) for width in self.widths):
            return None
        if torch.compiler.is_compiling():  # which would take a kept window for that of any length
            return self._made(length, device)
        key = (length, device)
        if key not in self._windows:
            # Kept for later calls, which may train: a tensor made in inference mode could not take part in that.
            with torch.inference_mode(False):
                self._windows[key] = self._made(length).to(device)
        return self._windows[key]

    def _made(self, length: int, device: torch.device | None = None) -> Float[Tensor, "K T T"]:
        full = length if self.window_length is None else max(self.window_length, length)
        made = constraint_windows(
            full, self.widths, constraint=self.constraint, formula=self.window_formula, device=device
        )
        return made[:, :length, :length]

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        mask: Bool[Tensor, "N T"] | None = None,
        beside: Float[Tensor, "N R D"] | None = None,
    ) -> Float[Tensor, "K N T D"]:
        """The outputs of all layers on the same input; rows at masked positions mean nothing.

        Rows `beside` the sequence are read by every layer as if they belonged to it, and do not come out.
        """
        windows = self.windows(x.shape[1], x.device)
        if self.norm_order == "post" and lean.applies(x, self.dropout):
            attention = self.attention
            skips = beside is None and skips_padding(self, self.skip_padding)
            if isinstance(attention, StackedSelfAttention) and skips:
                packing = packing_of(len(x), x.shape[1], mask, x.device)
                if packing is not None:
                    rows = packing.pack(x)
                    return packing.unpack(self._after_attention(rows, attention.packed(rows, windows, packing)))
            read = self._attended(x, windows, mask, beside).flatten(1, 2)
            return self._after_attention(x.flatten(0, 1), read).unflatten(1, x.shape[:2])
        if self.norm_order == "pre":
            x = x.expand(len(self.widths), *x.shape)
            if beside is not None:
                beside = self.norm1(beside.expand(len(x), *beside.shape))
            x = x + self.dropout(self.output(self._attended(self.norm1(x), windows, mask, beside)))
            return x if self.ffn is None else x + self.ffn(self.norm2(x))  # type: ignore[misc]
        x = self.norm1(x + self.dropout(self.output(self._attended(x, windows, mask, beside))))
        return x if self.ffn is None else self.norm2(x + self.ffn(x))  # type: ignore[misc]

    def _attended(self, x: Tensor, windows: Tensor | None, mask: Tensor | None, beside: Tensor | None) -> Tensor:
        """What the heads of all layers read; attention of other kinds knows of no rows beside its own."""
        read: Tensor = self.attention(x, windows, mask, *(() if beside is None else (beside,)))
        return read

    def _after_attention(self, x: Float[Tensor, "M D"], read: Float[Tensor, "K M D"]) -> Float[Tensor, "K M D"]:
        """The rest of post-norm layers, row by row, from what the heads have read."""
        dropped = rate(self.dropout)
        if isinstance(self.output, StackedLinear):
            read = self.output(read[:, None])[:, 0]
        if self.ffn is not None and self.norm2 is not None and not dropped and x.ndim == 2 and narrow.applies(x):
            return narrow.after_attention(x, read, self.norm1, self.ffn.layer1, self.ffn.layer2, self.norm2)
        y = lean.add_norm(x, read, self.norm1.weight, self.norm1.bias, dropped)
        if self.ffn is None or self.norm2 is None:
            return y
        return lean.add_norm(y, self.ffn.of_rows(y), self.norm2.weight, self.norm2.bias, dropped)


class StackedFeedForward(nn.Module):
    """K two-layer perceptrons with ReLU, dropout after each layer."""

    def __init__(self, count: int, dim: int, hidden_dim: int, dropout: float):
        super().__init__()
        self.layer1 = StackedLinear(count, dim, hidden_dim)
        self.layer2 = StackedLinear(count, hidden_dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "K N T D"]) -> Float[Tensor, "K N T D"]:
        """What the layer adds to its input."""
        return self.dropout(self.layer2(self.dropout(self.layer1(x).relu())))

    def of_rows(self, x: Float[Tensor, "K M D"]) -> Float[Tensor, "K M D"]:
        """The same without the last dropout, which the residual applies."""
        one = self.layer1
        two = self.layer2
        return lean.feed_forward(x, one.weight, one.bias, two.weight, two.bias, rate(self.dropout))


class LayersOfTwoKinds(nn.Module):
    """Layers that differ in their attention, on one input, one kind after the other."""

    def __init__(self, first: ParallelLayers, second: ParallelLayers):
        super().__init__()
        self.first = first
        self.second = second

    @property
    def widths(self) -> tuple[float, ...]:
        """Those of all layers."""
        return self.first.widths + self.second.widths

    def forward(self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None = None) -> Float[Tensor, "K N T D"]:
        """The outputs of all layers on the same input."""
        return torch.cat([self.first(x, mask), self.second(x, mask)])


class GaussianBlock(nn.Module):
    """Layers with different windows on one input, joined into one sequence: the GMMFormer block and its successor."""

    def __init__(self, layers: ParallelLayers | LayersOfTwoKinds, aggregation: nn.Module):
        super().__init__()
        self.layers = layers
        self.aggregation = aggregation

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        mask: Bool[Tensor, "N T"] | None = None,
        token: Float[Tensor, " D"] | None = None,
        beside: Float[Tensor, "N R D"] | None = None,
    ) -> Float[Tensor, "N T D"]:
        """A sequence of the same shape; masked positions are not read but are written.

        `token` is what the aggregation reads the layers with, where it does; the layers read rows `beside` too.
        """
        outputs = self.layers(x, mask) if beside is None else self.layers(x, mask, beside)
        return self.aggregation(outputs, x, mask, token)


class TransformerLayer(nn.Module):
    """One transformer layer without a window: `ParallelLayers` of one."""

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
        """A sequence of the same shape; masked positions are not read but are written."""
        return self.layers(x, mask)[0]
