"""Layers in bfloat16 where nothing is trained, on the CPU.

They are the plain operations, row by row in pieces that fit the caches: what stands between the products, and stays in
float32, is then never read from memory. Bias and ReLU come with the product where oneDNN multiplies bfloat16.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from untrimmed.nn import lean
from untrimmed.nn.linear import StackedLinear
from untrimmed.nn.norm import StackedLayerNorm

ROWS = 1024  # of a piece


def applies(x: Tensor) -> bool:
    """Whether products of x are in bfloat16 and nothing is trained, on the CPU."""
    return x.device.type == "cpu" and lean.product_dtype(x) == torch.bfloat16 and not torch.is_grad_enabled()


def linear(
    x: Float[Tensor, "M I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"], *, relu: bool = False
) -> Float[Tensor, "M O"]:
    """A linear map in bfloat16, with ReLU behind it or not."""
    x = x.bfloat16()
    weight = weight.bfloat16()
    bias = bias.bfloat16()
    if _has_fused_linear():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
    made = F.linear(x, weight, bias)
    return made.relu_() if relu else made


def _has_fused_linear() -> bool:
    operations = torch.ops.mkldnn
    known = hasattr(operations, "_linear_pointwise") and hasattr(operations, "_is_mkldnn_bf16_supported")
    return known and torch.backends.mkldnn.is_available() and bool(operations._is_mkldnn_bf16_supported())


def after_attention(
    x: Float[Tensor, "M D"],
    read: Float[Tensor, "K M D"],
    norm1: StackedLayerNorm,
    layer1: StackedLinear,
    layer2: StackedLinear,
    norm2: StackedLayerNorm,
) -> Float[Tensor, "K M D"]:
    """The rest of K post-norm layers of one input, from what their heads have read: norms, perceptron, residuals."""
    out = x.new_empty(read.shape)
    shape = x.shape[-1:]
    with torch.autocast("cpu", enabled=False):
        for k in range(len(read)):
            one = layer1.weight[k].bfloat16()
            two = layer2.weight[k].bfloat16()
            for start in range(0, len(x), ROWS):
                piece = slice(start, start + ROWS)
                y = torch.add(x[piece], read[k, piece])
                y = F.layer_norm(y, shape, norm1.weight[k], norm1.bias[k])
                y.add_(linear(linear(y, one, layer1.bias[k], relu=True), two, layer2.bias[k]))
                out[k, piece] = F.layer_norm(y, shape, norm2.weight[k], norm2.bias[k])
    return out
