"""Autograd functions for the expensive parts of a layer, which save memory and time when training on the CPU.

The results are the same as with PyTorch's operations, which the modules use for CUDA, `torch.compile` and tests. The
functions process pieces of rows that fit into the CPU caches, so that element-wise operations cost little.

Under autocast, matrix products (including gradients of weights) and the tensors saved for them are in autocast's
format. Norms, softmax and sums (including gradients of biases) are in float32.

For the backward pass, a layer saves its input, its queries, keys and values, the hidden values of the feed-forward part
after ReLU and dropout, and the masks of the other dropouts. The backward pass recomputes the attention weights.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from untrimmed.nn.dropout import is_eager_cpu, keep_mask

PIECE = 2**20  # maximum number of values in the largest array of a piece: 4 MB in float32


def applies(x: Tensor, dropout: nn.Module) -> bool:
    """Whether the functions of this module should replace PyTorch's operations for `x`."""
    return is_eager_cpu(x) and isinstance(dropout, nn.Dropout)


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of matrix products with x: autocast's dtype if autocast is enabled, otherwise x's dtype."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


def _relu_(x: Tensor) -> Tensor:
    """Apply ReLU in place, and return the same tensor.

    The bits of bfloat16 numbers are read as int16, in which all negative bfloat16 numbers except NaN are at most -128.
    """
    torch.threshold_(*((x.view(torch.int16), -128, 0) if x.dtype == torch.bfloat16 else (x, 0, 0)))
    return x


def _sum_of_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum of the rows, in `dtype`. Converting piece by piece is four times as fast as `sum(dtype=...)`."""
    pieces = _pieces(x.shape[-2], 4 * x.shape[-1]) or [slice(0)]
    return torch.stack([x[..., piece, :].to(dtype).sum(dim=-2) for piece in pieces]).sum(dim=0)


def _pieces(num_rows: int, width: int) -> list[slice]:
    size = max(64, PIECE // width)
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


class _InputProjection(Function):
    """Computes ReLU(W dropout(LN(x)) + b) for selected rows of features that need no gradient.

    Let n be the normalised rows and m the dropout mask. Then dropout(LN(x)) is m * n * gain + m * shift, times a
    constant. All gradients can be computed from the products of the output's gradient with m * n and with m.

    In bfloat16, the forward pass multiplies m * n by W * gain, and m by W * shift. The forward pass saves m * n and m.

    In float32, computing two products instead of one would be too expensive. Therefore the layer norm applies gain and
    shift, and the backward pass recomputes m * n.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        rows: Tensor | None,
        gain: Tensor,
        shift: Tensor,
        weight: Tensor,
        bias: Tensor,
        p: float,
        trains: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        count = len(x) if rows is None else len(rows)
        width = x.shape[1]
        scale = 1 / (1 - p)
        narrow = dtype != x.dtype
        keep = keep_mask((count, width), p, dtype) if p else None
        out = x.new_empty(count, len(weight), dtype=dtype)
        saved = x.new_empty(count if narrow and trains else 0, width, dtype=dtype)
        if narrow:
            bias = bias if p else bias + weight @ shift
            shifted = (weight * shift).to(dtype)
            weight_in = weight * gain
            affine = torch.ones_like(gain), torch.zeros_like(shift)
        else:
            weight_in = weight
            affine = (gain, shift)
        weight_in = weight_in.to(dtype)
        bias = bias.to(dtype)
        for piece in _pieces(count, width):
            normal = torch.native_layer_norm(_rows(x, rows, piece), x.shape[1:], *affine, 1e-5)[0].to(dtype)
            if keep is not None:
                normal.mul_(keep[piece])
            torch.addmm(bias, normal, weight_in.T, alpha=scale, out=out[piece])
            if narrow and keep is not None:
                out[piece].addmm_(keep[piece], shifted.T, alpha=scale)
            if len(saved):
                saved[piece] = normal
        ctx.save_for_backward(x, rows, gain, shift, weight, keep, saved, _relu_(out))
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, gain, shift, weight, keep, saved, out = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        d_bias = _sum_of_rows(gradient, x.dtype)
        if len(saved):
            row_product = (gradient.T @ saved).to(x.dtype)
            mask_product = d_bias[:, None] if keep is None else (gradient.T @ keep).to(x.dtype)
        else:
            row_product = torch.zeros_like(weight)
            mask_product = d_bias[:, None] if keep is None else torch.zeros_like(weight)
            for piece in _pieces(len(out), x.shape[1]):
                features = _rows(x, rows, piece)
                normal = torch.native_layer_norm(features, x.shape[1:], torch.ones_like(gain), None, 1e-5)[0]
                if keep is not None:
                    mask = keep[piece].to(x.dtype)
                    mask_product.addmm_(gradient[piece].T, mask)
                    normal.mul_(mask)
                row_product.addmm_(gradient[piece].T, normal)
        d_weight = (row_product * gain).addcmul_(mask_product, shift).mul_(ctx.scale)
        d_gain, d_shift = (ctx.scale * (weight * product).sum(dim=0) for product in (row_product, mask_product))
        return None, None, d_gain, d_shift, d_weight, d_bias, None, None, None


def _rows(x: Tensor, rows: Tensor | None, piece: slice) -> Tensor:
    return x[piece] if rows is None else x.index_select(0, rows[piece])


def input_projection(
    x: Float[Tensor, "M C"],
    rows: Int[Tensor, " R"] | None,
    norm: nn.LayerNorm,
    linear: nn.Linear,
    probability: float,
) -> Float[Tensor, "R D"]:
    """Return ReLU(linear(dropout(norm(x)))) for the selected rows. No gradient is computed for x."""
    trains = torch.is_grad_enabled()
    dtype = product_dtype(x)
    with torch.autocast("cpu", enabled=False):
        parameters = (norm.weight, norm.bias, linear.weight, linear.bias)
        return _InputProjection.apply(x, rows, *parameters, probability, trains, dtype).to(x.dtype)


class _FeedForward(Function):
    """Computes W2 dropout(ReLU(W1 x + b1)) + b2 for K stacks of rows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight1: Tensor,
        bias1: Tensor,
        weight2: Tensor,
        bias2: Tensor,
        p: float,
        trains: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        count = len(x)
        num_rows = x.shape[1]
        hidden_dim = weight1.shape[1]
        rows, weight1, weight2, bias1, bias2 = (tensor.to(dtype) for tensor in (x, weight1, weight2, bias1, bias2))
        pieces = _pieces(num_rows, hidden_dim)
        hidden_rows = num_rows if trains else max((piece.stop - piece.start for piece in pieces), default=0)
        hidden = x.new_empty(count, hidden_rows, hidden_dim, dtype=dtype)
        out = torch.empty_like(x, dtype=dtype)
        for k in range(count):
            for piece in pieces:
                part = hidden[k, piece] if trains else hidden[k, : piece.stop - piece.start]
                _relu_(torch.addmm(bias1[k], rows[k, piece], weight1[k].T, out=part))
                if p:
                    part.mul_(keep_mask(tuple(part.shape), p, dtype))
                torch.addmm(bias2[k], part, weight2[k].T, alpha=1 / (1 - p), out=out[k, piece])
        ctx.save_for_backward(rows, weight1, weight2, hidden)
        ctx.p = p
        ctx.dtype = x.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight1, weight2, hidden = ctx.saved_tensors
        scale = 1 / (1 - ctx.p)
        dtype = ctx.dtype
        ignored = hidden.new_zeros(())  # a required argument that has no effect, because `beta=0`
        d_x = torch.empty_like(x, dtype=dtype)
        d_hidden = torch.empty_like(hidden[0])
        d_weight1 = torch.empty_like(weight1, dtype=dtype)
        d_weight2 = torch.empty_like(weight2, dtype=dtype)
        d_bias1 = d_x.new_empty(len(hidden), hidden.shape[2])
        for k in range(len(x)):
            for piece in _pieces(*d_hidden.shape):
                part = d_hidden[piece]
                torch.addmm(ignored, gradient[k, piece], weight2[k], beta=0, alpha=scale, out=part)
                torch.ops.aten.threshold_backward.grad_input(part, hidden[k, piece], 0, grad_input=part)
                d_x[k, piece] = part @ weight1[k]
            d_weight1[k] = d_hidden.T @ x[k]
            d_weight2[k] = torch.addmm(ignored, gradient[k].T, hidden[k], beta=0, alpha=scale)
            d_bias1[k] = _sum_of_rows(d_hidden, dtype)
        return d_x, d_weight1, d_bias1, d_weight2, _sum_of_rows(gradient, dtype), None, None, None


def feed_forward(
    x: Float[Tensor, "K M D"],
    weight1: Float[Tensor, "K F D"],
    bias1: Float[Tensor, "K F"],
    weight2: Float[Tensor, "K D F"],
    bias2: Float[Tensor, "K D"],
    probability: float,
) -> Float[Tensor, "K M D"]:
    """Return the output of two linear maps with ReLU and dropout between them.

    Under autocast, the result is in autocast's format.
    """
    trains = torch.is_grad_enabled()
    dtype = product_dtype(x)
    with torch.autocast("cpu", enabled=False):
        return _FeedForward.apply(x, weight1, bias1, weight2, bias2, probability, trains, dtype)


class _AddNorm(Function):
    """Computes LN(x + dropout(y)) for K stacks of rows, in the dtype of x. All stacks may have the same x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, gain: Tensor, bias: Tensor, p: float) -> Tensor:
        keep = keep_mask(tuple(y.shape), p, y.dtype) if p else None
        summed = torch.add(x, (y if keep is None else y * keep).to(x.dtype), alpha=1 / (1 - p))
        parts = [torch.native_layer_norm(summed[k], y.shape[-1:], gain[k], bias[k], 1e-5) for k in range(len(y))]
        out, mean, deviation = (_stacked(tensors) for tensors in zip(*parts, strict=True))
        ctx.save_for_backward(summed, mean, deviation, gain, bias, keep)
        ctx.p = p
        ctx.shared = x.ndim < y.ndim
        ctx.dtype = y.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        summed, mean, deviation, gain, bias, keep = ctx.saved_tensors
        backward = torch.ops.aten.native_layer_norm_backward
        parts = [
            backward(gradient[k], summed[k], summed.shape[-1:], mean[k], deviation[k], gain[k], bias[k], [True] * 3)
            for k in range(len(summed))
        ]
        d_summed, d_gain, d_bias = (_stacked(tensors) for tensors in zip(*parts, strict=True))
        d_y = d_summed.to(ctx.dtype)
        if keep is not None:
            d_y = (d_y * keep).mul_(1 / (1 - ctx.p))
        return (d_summed.sum(dim=0) if ctx.shared else d_summed), d_y, d_gain, d_bias, None


def _stacked(parts: tuple[Tensor, ...]) -> Tensor:
    return parts[0][None] if len(parts) == 1 else torch.stack(parts)


def add_norm(
    x: Float[Tensor, "*K M D"],
    y: Float[Tensor, "K M D"],
    gain: Float[Tensor, "K D"],
    bias: Float[Tensor, "K D"],
    probability: float,
) -> Float[Tensor, "K M D"]:
    """Return norm(x + dropout(y)), with the layer norm of each stack."""
    with torch.autocast("cpu", enabled=False):
        return _AddNorm.apply(x, y, gain, bias, probability)


class _SelfAttention(Function):
    """Computes K multi-head self-attentions for packed sequences. The backward pass recomputes logits and weights."""

    @staticmethod
    def forward(ctx: Any, joint: Tensor, windows: Tensor | None, groups: tuple[Tensor, ...], p: float) -> Tensor:
        num_rows, _, count, num_heads, head_dim = joint.shape
        out = joint.new_empty(count, num_rows, num_heads * head_dim)
        scales = _logit_scales(windows, head_dim)
        keeps = []
        for rows in _attention_batches(groups, count * num_heads):
            query, key, value = _heads(joint, rows)
            weights = _attention_weights(query, key, scales).to(value.dtype)
            if p:
                keeps.append(keep_mask(tuple(weights.shape), p, weights.dtype))
                weights.mul_(keeps[-1])
            attended = _products(weights, value, 1 / (1 - p)).view(*query.shape)
            out[:, _index(rows)] = attended.permute(1, 0, 3, 2, 4).reshape(count, -1, num_heads * head_dim)
        ctx.save_for_backward(joint, windows, *keeps)
        ctx.groups = groups
        ctx.p = p
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        joint, windows, *keeps = ctx.saved_tensors
        count, num_heads, head_dim = joint.shape[2:]
        scales = _logit_scales(windows, head_dim)
        scale = 1 / (1 - ctx.p)
        d_joint = torch.empty_like(joint)
        for i, rows in enumerate(_attention_batches(ctx.groups, count * num_heads)):
            query, key, value = _heads(joint, rows)
            weights = _attention_weights(query, key, scales)
            shape = (count, *rows.shape, num_heads, head_dim)
            incoming = gradient[:, _index(rows)].reshape(shape).permute(1, 0, 3, 2, 4).contiguous()
            d_weights = _products(incoming, value.transpose(-1, -2), scale)
            dropped = weights.to(value.dtype)
            if ctx.p:
                d_weights.mul_(keeps[i])
                dropped = dropped * keeps[i]
            d_value = _products(dropped.transpose(-1, -2), incoming, scale)
            d_logits = torch._softmax_backward_data(d_weights.to(weights.dtype), weights, -1, weights.dtype)
            d_logits = d_logits.mul_(_scales_for(scales, rows.shape[1])).to(key.dtype)
            parts = (d_logits @ key, d_logits.transpose(-1, -2) @ query, d_value)
            for k, part in enumerate(parts):
                d_joint[_index(rows), k] = part.permute(0, 3, 1, 2, 4).reshape(-1, count, num_heads, head_dim)
        return d_joint, None, None, None


def _products(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return scale * a @ b for many small matrices. The scaling takes no additional time."""
    left = a.flatten(0, -3)
    right = b.flatten(0, -3)
    out = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out).view(*a.shape[:-1], b.shape[-1])


def _attention_batches(groups: tuple[Tensor, ...], num_maps: int) -> list[Tensor]:
    """Split the groups into batches. A batch has at most `PIECE` attention weights, but at least one sequence."""
    return [rows for group in groups for rows in group.split(max(1, PIECE // (num_maps * group.shape[1] ** 2)))]


def _heads(joint: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the queries, keys and values of the sequences in `rows`, each [N, K, H, T, D / H]."""
    sequences = joint[_index(rows)].unflatten(0, tuple(rows.shape))
    query, key, value = sequences.permute(2, 0, 3, 4, 1, 5).contiguous()
    return query, key, value


def _index(rows: Tensor) -> Tensor | slice:
    """Return the row indices as a flat tensor, or as a slice if they are consecutive.

    The indices are consecutive if the sequences of the batch are sorted by length.
    """
    first = int(rows[0, 0])
    last = int(rows[-1, -1])
    return slice(first, last + 1) if last + 1 - first == rows.numel() else rows.flatten()


def _logit_scales(windows: Tensor | None, head_dim: int) -> Tensor | float:
    """Return the factors of the logits: the windows (or 1), divided by the square root of a head's width."""
    return head_dim**-0.5 if windows is None else (windows / math.sqrt(head_dim))[:, None]


def _scales_for(scales: Tensor | float, length: int) -> Tensor | float:
    return scales if isinstance(scales, float) else scales[..., :length, :length]


def _attention_weights(query: Tensor, key: Tensor, scales: Tensor | float) -> Tensor:
    logits = (query @ key.transpose(-1, -2)).to(torch.promote_types(query.dtype, torch.float32))
    return logits.mul_(_scales_for(scales, query.shape[-2])).softmax(dim=-1)


def self_attention(
    joint: Float[Tensor, "M 3 K H E"],
    windows: Float[Tensor, "K T T"] | None,
    groups: tuple[Int[Tensor, "_ _"], ...],
    probability: float,
) -> Float[Tensor, "K M D"]:
    """Return the concatenated heads of K attentions. `joint` contains the packed queries, keys and values.

    Each group [N, T] contains the row indices of N sequences of equal length T.
    """
    with torch.autocast("cpu", enabled=False):
        return _SelfAttention.apply(joint, windows, groups, probability)
