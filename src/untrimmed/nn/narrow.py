"""Layers in bfloat16 for inference on the CPU.

The layers process pieces of rows, so that float32 intermediate results fit into the processor's caches. If oneDNN
supports bfloat16, one kernel computes the product, bias and ReLU.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from untrimmed.nn import lean
from untrimmed.nn.linear import StackedLinear
from untrimmed.nn.norm import StackedLayerNorm

ROWS = 1024  # number of rows in a piece


def applies(x: Tensor) -> bool:
    """Whether x is on the CPU, products with x are in bfloat16, and gradients are disabled."""
    return x.device.type == "cpu" and lean.product_dtype(x) == torch.bfloat16 and not torch.is_grad_enabled()


def linear(
    x: Float[Tensor, "M I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"], *, relu: bool = False
) -> Float[Tensor, "M O"]:
    """Return the output of a linear map in bfloat16, optionally after ReLU."""
    x = x.bfloat16()
    weight = weight.bfloat16()
    bias = bias.bfloat16()
    if _has_fused_linear():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    out = F.linear(x, weight, bias)
    return out.relu_() if relu else out


def _has_fused_linear() -> bool:
    operations = torch.ops.mkldnn
    has_operations = hasattr(operations, "_linear_pointwise") and hasattr(operations, "_is_mkldnn_bf16_supported")
    return has_operations and torch.backends.mkldnn.is_available() and bool(operations._is_mkldnn_bf16_supported())


def after_attention(
    x: Float[Tensor, "M D"],
    attended: Float[Tensor, "K M D"],
    norm1: StackedLayerNorm,
    layer1: StackedLinear,
    layer2: StackedLinear,
    norm2: StackedLayerNorm,
) -> Float[Tensor, "K M D"]:
    """Return the output of K post-norm layers, given their input x and their attention output."""
    out = x.new_empty(attended.shape)
    shape = x.shape[-1:]
    with torch.autocast("cpu", enabled=False):
        for k in range(len(attended)):
            weight1 = layer1.weight[k].bfloat16()
            weight2 = layer2.weight[k].bfloat16()
            for start in range(0, len(x), ROWS):
                piece = slice(start, start + ROWS)
                y = torch.add(x[piece], attended[k, piece])
                y = F.layer_norm(y, shape, norm1.weight[k], norm1.bias[k])
                y.add_(linear(linear(y, weight1, layer1.bias[k], relu=True), weight2, layer2.bias[k]))
                out[k, piece] = F.layer_norm(y, shape, norm2.weight[k], norm2.bias[k])
    return out
