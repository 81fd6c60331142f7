"""ResNet-152 (He et al. 2016, arXiv 1512.03385) up to pool5, with the names of torchvision's state dict.

As in torchvision, the 3 x 3 convolution of a stage's first block halves the resolution. Widths follow from the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from untrimmed.encoders.features.weights import load_into, map_shape
from untrimmed.errors import EncoderError

BLOCKS = (3, 8, 36, 3)  # number of blocks in each of the four stages


class Bottleneck(nn.Module):
    """A residual block of 1 x 1, 3 x 3 and 1 x 1 convolutions."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str, stride: int):
        super().__init__()
        self.conv1 = _map(state, f"{prefix}conv1")
        self.bn1 = _norm(state, f"{prefix}bn1")
        self.conv2 = _map(state, f"{prefix}conv2", stride=stride)
        self.bn2 = _norm(state, f"{prefix}bn2")
        self.conv3 = _map(state, f"{prefix}conv3")
        self.bn3 = _norm(state, f"{prefix}bn3")
        self.downsample: nn.Module | None = None
        if f"{prefix}downsample.0.weight" in state:
            norm = _norm(state, f"{prefix}downsample.1")
            self.downsample = nn.Sequential(_map(state, f"{prefix}downsample.0", stride=stride), norm)

    def forward(self, x: Float[Tensor, "B I Y X"]) -> Float[Tensor, "B O Y2 X2"]:
        """Return the block's output."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet without its classifier, with the given weights."""

    def __init__(self, state: Mapping[str, Tensor], *, name: str):
        super().__init__()
        blocks = tuple(_num_blocks(state, stage) for stage in range(1, 5))
        if blocks != BLOCKS:
            raise EncoderError(
                f"{name}: has {blocks} residual blocks, ResNet-152 has {BLOCKS}; use weights of ResNet-152"
            )
        try:
            self.conv1 = _map(state, "conv1", stride=2)
            self.bn1 = _norm(state, "bn1")
            for stage, count in enumerate(BLOCKS, start=1):
                strides = [1 if stage == 1 else 2] + [1] * (count - 1)
                parts = [Bottleneck(state, f"layer{stage}.{i}.", stride) for i, stride in enumerate(strides)]
                self.add_module(f"layer{stage}", nn.Sequential(*parts))
        except (KeyError, ValueError) as error:
            raise EncoderError(f"{name}: lacks {error}; use the weights of torchvision's ResNet-152") from error
        load_into(self, state, name=name, unused=[r"fc\."])
        self.dim = int(state[f"layer4.{BLOCKS[3] - 1}.conv3.weight"].shape[0])

    def forward(self, frames: Float[Tensor, "T 3 Y X"]) -> Float[Tensor, "T D"]:
        """Return the features of each picture: the last stage's output, averaged over all positions (pool5)."""
        x = functional.relu(self.bn1(self.conv1(frames)))
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return torch.mean(x, dim=(2, 3))


def _num_blocks(state: Mapping[str, Tensor], stage: int) -> int:
    return len({key.split(".")[1] for key in state if key.startswith(f"layer{stage}.")})


def _map(state: Mapping[str, Tensor], key: str, *, stride: int = 1) -> nn.Conv2d:
    rows, columns, *size = map_shape(state, f"{key}.weight", 4)
    return nn.Conv2d(columns, rows, (size[0], size[1]), stride=stride, padding=size[0] // 2, bias=False)


def _norm(state: Mapping[str, Tensor], key: str) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(map_shape(state, f"{key}.weight", 1)[0])
