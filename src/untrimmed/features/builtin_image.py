"""EfficientNet-Lite (Tan & Le 2019, arXiv 1905.11946; the Lite variants drop squeeze-and-excitation and use ReLU6).

Written for inference alone: the batch normalisations of the released weights are folded into the convolutions, so a
layer is one convolution and a clamp. The released program pads as TensorFlow does ('SAME': the odd pixel goes to the
right and to the bottom), which depends on the size of the input; we compute it per call, so any size may be given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

_BATCH_NORM_EPSILON = 1e-3
# repeats, kernel, stride, expansion, output channels: Table 1 of the paper, before scaling
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM_CHANNELS = 32  # stem and head keep their width in every Lite variant
FEATURE_DIM = 1280
NUM_CLASSES = 1000


@dataclass(frozen=True)
class Variant:
    """How one network of the family is scaled, and the side in pixels of the squares it was trained on."""

    width: float
    depth: float
    side: int


VARIANTS = {
    "lite0": Variant(1.0, 1.0, 224),
    "lite1": Variant(1.0, 1.1, 240),
    "lite2": Variant(1.1, 1.2, 260),
}


def _round_channels(channels: float) -> int:
    """The multiple of 8 nearest to a scaled width, never less than nine tenths of it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class _Convolution(nn.Conv2d):
    """A convolution with TensorFlow's 'SAME' padding, followed by ReLU6 where `clamp` is set."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, clamp: bool = True):
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups)
        self.clamp = clamp

    def forward(self, input: Float[Tensor, "T C Y X"]) -> Float[Tensor, "T K Y2 X2"]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (max((math.ceil(n / stride) - 1) * stride + kernel - n, 0) for n in input.shape[-2:])
        if height % 2 or width % 2:
            input = functional.pad(input, (width // 2, width - width // 2, height // 2, height - height // 2))
            height = width = 0
        output = functional.conv2d(input, self.weight, self.bias, stride, (height // 2, width // 2), 1, self.groups)
        return output.clamp_(0, 6) if self.clamp else output


class _Block(nn.Module):
    """An inverted residual: widen, filter each channel, narrow; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        inner = inputs * expansion
        self.expand = _Convolution(inputs, inner, 1) if expansion > 1 else nn.Identity()
        self.filter = _Convolution(inner, inner, kernel, stride=stride, groups=inner)
        self.project = _Convolution(inner, outputs, 1, clamp=False)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, frames: Float[Tensor, "T C Y X"]) -> Float[Tensor, "T K Y2 X2"]:
        output = self.project(self.filter(self.expand(frames)))
        return output.add_(frames) if self.is_residual else output


class EfficientNetLite(nn.Module):
    """Frames in [-1, 1] -> the map of features before pooling; `classify` turns pooled features into logits."""

    def __init__(self, variant: Variant):
        super().__init__()
        self.stem = _Convolution(3, _STEM_CHANNELS, 3, stride=2)
        self.blocks = nn.Sequential()
        inputs = _STEM_CHANNELS
        for index, (repeats, kernel, stride, expansion, channels) in enumerate(_STAGES):
            outputs = _round_channels(channels * variant.width)
            is_end = index in (0, len(_STAGES) - 1)  # the first and last stage keep their depth
            for repeat in range(repeats if is_end else math.ceil(repeats * variant.depth)):
                self.blocks.append(_Block(inputs, outputs, kernel, 1 if repeat else stride, expansion))
                inputs = outputs
        self.head = _Convolution(inputs, FEATURE_DIM, 1)
        self.classify = nn.Linear(FEATURE_DIM, NUM_CLASSES)

    def forward(self, frames: Float[Tensor, "T 3 Y X"]) -> Float[Tensor, "T 1280 Y2 X2"]:
        """The map of features, a thirty-second of the frame's size, rounded up."""
        return self.head(self.blocks(self.stem(frames)))


def from_released(variant: Variant, weights: Mapping[str, Tensor]) -> EfficientNetLite:
    """The network with the released weights, ready for inference: batch normalisations folded, channels last.

    Raises:
        RuntimeError: the weights are of another network.
    """
    net = EfficientNetLite(variant)
    folded = {"classify.weight": weights["_fc.weight"], "classify.bias": weights["_fc.bias"]}
    pairs = [("stem", "_conv_stem", "_bn0"), ("head", "_conv_head", "_bn1")]
    for i, block in enumerate(net.blocks):
        layers = [("filter", "_depthwise_conv", "_bn1"), ("project", "_project_conv", "_bn2")]
        if isinstance(block.expand, _Convolution):
            layers.append(("expand", "_expand_conv", "_bn0"))
        pairs += [(f"blocks.{i}.{ours}", f"_blocks.{i}.{conv}", f"_blocks.{i}.{norm}") for ours, conv, norm in layers]
    for ours, conv, norm in pairs:
        scale = weights[f"{norm}.weight"] / torch.sqrt(weights[f"{norm}.running_var"] + _BATCH_NORM_EPSILON)
        folded[f"{ours}.weight"] = weights[f"{conv}.weight"] * scale[:, None, None, None]
        folded[f"{ours}.bias"] = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    net.load_state_dict(folded)
    return net.eval().requires_grad_(False).to(memory_format=torch.channels_last)
