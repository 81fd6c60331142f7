"""I3D, a 3D Inception-v1 (Carreira and Zisserman 2017, arXiv 1705.07750, Figure 3), up to the last pooling layer.

State-dict names are those of pytorch-i3d: TensorFlow's names, with branches called b0 to b3. Widths follow from the
weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from untrimmed.encoders.features.weights import load_into, map_shape
from untrimmed.errors import EncoderError

MIXED = ("3b", "3c", "4b", "4c", "4d", "4e", "4f", "5b", "5c")
_NORM_EPS = 1e-3


class Unit(nn.Module):
    """A convolution without bias, batch norm and ReLU, padded like TensorFlow's SAME."""

    def __init__(self, state: Mapping[str, Tensor], key: str, stride: int = 1):
        super().__init__()
        rows, columns, *size = map_shape(state, f"{key}.conv3d.weight", 5)
        self.conv3d = nn.Conv3d(columns, rows, (size[0], size[1], size[2]), stride=stride, bias=False)
        self.bn = nn.BatchNorm3d(rows, eps=_NORM_EPS)

    def forward(self, x: Float[Tensor, "B I T Y X"]) -> Float[Tensor, "B O T2 Y2 X2"]:
        """Return the unit's output."""
        return functional.relu(self.bn(self.conv3d(_padded(x, self.conv3d.kernel_size, self.conv3d.stride))))


class Mixed(nn.Module):
    """An Inception block: four parallel branches."""

    def __init__(self, state: Mapping[str, Tensor], key: str):
        super().__init__()
        for branch in ("b0", "b1a", "b1b", "b2a", "b2b", "b3b"):
            self.add_module(branch, Unit(state, f"{key}.{branch}"))

    def forward(self, x: Float[Tensor, "B I T Y X"]) -> Float[Tensor, "B O T Y X"]:
        """Return the concatenated outputs of all branches."""
        unit = self.get_submodule
        pooled = _max_pool(x, (3, 3, 3), (1, 1, 1))
        branches = unit("b0")(x), unit("b1b")(unit("b1a")(x)), unit("b2b")(unit("b2a")(x)), unit("b3b")(pooled)
        return torch.cat(branches, dim=1)


class I3D(nn.Module):
    """I3D without its classifier, with the given weights."""

    def __init__(self, state: Mapping[str, Tensor], *, name: str):
        super().__init__()
        try:
            self.Conv3d_1a_7x7 = Unit(state, "Conv3d_1a_7x7", stride=2)
            self.Conv3d_2b_1x1 = Unit(state, "Conv3d_2b_1x1")
            self.Conv3d_2c_3x3 = Unit(state, "Conv3d_2c_3x3")
            for block in MIXED:
                self.add_module(f"Mixed_{block}", Mixed(state, f"Mixed_{block}"))
        except (KeyError, ValueError) as error:
            raise EncoderError(f"{name}: lacks {error}; use the weights of pytorch-i3d's Inception-v1 I3D") from error
        if (colours := self.Conv3d_1a_7x7.conv3d.in_channels) != 3:
            raise EncoderError(f"{name}: reads {colours} channels (optical flow?), expected 3; use the RGB weights")
        load_into(self, state, name=name, unused=[r"logits\."])
        last = (f"Mixed_5c.{branch}.conv3d.weight" for branch in ("b0", "b1b", "b2b", "b3b"))
        self.dim = sum(int(state[key].shape[0]) for key in last)

    def forward(self, clip: Float[Tensor, "T 3 Y X"]) -> Float[Tensor, " D"]:
        """Return the features of a clip: the last feature maps, averaged over positions and times."""
        x = self.Conv3d_1a_7x7(clip.transpose(0, 1)[None])
        x = _max_pool(x, (1, 3, 3), (1, 2, 2))
        x = self.Conv3d_2c_3x3(self.Conv3d_2b_1x1(x))
        x = _max_pool(x, (1, 3, 3), (1, 2, 2))
        for block in MIXED:
            x = self.get_submodule(f"Mixed_{block}")(x)
            if block == "3c":
                x = _max_pool(x, (3, 3, 3), (2, 2, 2))
            elif block == "4f":
                x = _max_pool(x, (2, 2, 2), (2, 2, 2))
        times = x.mean(dim=(3, 4))[0]
        # average neighbouring times, as in the release
        pooled = functional.avg_pool1d(times, min(2, times.shape[1]), stride=1)
        return pooled.mean(dim=1)


def _padded(x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Pad the last three axes with zeros, so that a layer's output length is its input length / stride, rounded up."""
    pads: list[int] = []
    for length, size, step in reversed(list(zip(x.shape[2:], kernel, stride, strict=True))):
        total = max(size - (length % step or step), 0)
        pads += [total // 2, total - total // 2]
    return functional.pad(x, pads)


def _max_pool(x: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """Return the maximum over windows. Padding with zeros does not change it, because ReLU outputs are not negative."""
    return functional.max_pool3d(_padded(x, kernel, stride), kernel, stride)
