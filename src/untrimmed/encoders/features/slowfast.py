"""SlowFast 8x8 R50 (Feichtenhofer et al. 2019, arXiv 1812.03982, Table 1) without its classifier.

State-dict names are those of PyTorchVideo; the names of the SlowFast repository are converted. Widths follow from the
weights. The slow path reads every fourth of 32 frames.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from untrimmed.encoders.features.weights import load_into, map_shape
from untrimmed.errors import EncoderError

NUM_FRAMES = 32
SPEED = 4  # the fast path reads this many times as many frames as the slow path
BLOCKS = (3, 4, 6, 3)
_SLOW, _FAST = 0, 1
# patterns of names in the SlowFast repository, each with the name in PyTorchVideo
_RENAMED = (
    (r"s1\.pathway(\d)_stem\.", r"blocks.0.multipathway_blocks.\1."),
    (r"s(\d)\.pathway(\d)_res(\d+)\.", r"blocks.{0}.multipathway_blocks.\2.res_blocks.\3."),
    (r"s(\d)_fuse\.", r"blocks.{0}.multipathway_fusion."),
    (r"\.conv_f2s\.", ".conv_fast_to_slow."),
    (r"\.branch1\.", ".branch1_conv."),
    (r"\.branch1_bn\.", ".branch1_norm."),
    (r"\.branch2\.([abc])\.", r".branch2.conv_\1."),
    (r"\.branch2\.([abc])_bn\.", r".branch2.norm_\1."),
    (r"\.bn\.", ".norm."),
)


class Residual(nn.Module):
    """A residual block of three convolutions: over time, over space, and over channels."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str, stride: int):
        super().__init__()
        self.branch2 = nn.Module()
        for letter in "abc":
            key = f"{prefix}branch2.conv_{letter}"
            self.branch2.add_module(f"conv_{letter}", _map(state, key, (1, stride, stride) if letter == "b" else 1))
            self.branch2.add_module(f"norm_{letter}", _norm(state, f"{prefix}branch2.norm_{letter}"))
        self.branch1_conv: nn.Module | None = None
        if f"{prefix}branch1_conv.weight" in state:
            self.branch1_conv = _map(state, f"{prefix}branch1_conv", (1, stride, stride))
            self.branch1_norm = _norm(state, f"{prefix}branch1_norm")

    def forward(self, x: Float[Tensor, "B I T Y X"]) -> Float[Tensor, "B O T Y2 X2"]:
        """Return the block's output."""
        y = x
        for letter in "abc":
            y = self.branch2.get_submodule(f"norm_{letter}")(self.branch2.get_submodule(f"conv_{letter}")(y))
            y = functional.relu(y) if letter != "c" else y
        return functional.relu(y + (x if self.branch1_conv is None else self.branch1_norm(self.branch1_conv(x))))


class Stem(nn.Module):
    """The first convolution of a path, and its pooling."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str):
        super().__init__()
        self.conv = _map(state, f"{prefix}conv", (1, 2, 2))
        self.norm = _norm(state, f"{prefix}norm")

    def forward(self, x: Float[Tensor, "B 3 T Y X"]) -> Float[Tensor, "B O T Y2 X2"]:
        """Return the stem's output."""
        return functional.max_pool3d(functional.relu(self.norm(self.conv(x))), (1, 3, 3), (1, 2, 2), (0, 1, 1))


class Stage(nn.Module):
    """The residual blocks of one path."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str, stride: int, count: int):
        super().__init__()
        strides = [stride] + [1] * (count - 1)
        blocks = [Residual(state, f"{prefix}res_blocks.{i}.", step) for i, step in enumerate(strides)]
        self.res_blocks = nn.Sequential(*blocks)

    def forward(self, x: Float[Tensor, "B I T Y X"]) -> Float[Tensor, "B O T Y2 X2"]:
        """Return the stage's output."""
        return self.res_blocks(x)


class Fusion(nn.Module):
    """Appends the channels of the fast path to the slow path, at the slow path's frame rate."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str):
        super().__init__()
        self.conv_fast_to_slow = _map(state, f"{prefix}conv_fast_to_slow", (SPEED, 1, 1))
        self.norm = _norm(state, f"{prefix}norm")

    def forward(self, slow: Tensor, fast: Tensor) -> Tensor:
        """Return the channels of the slow path, followed by those of the fast path."""
        return torch.cat([slow, functional.relu(self.norm(self.conv_fast_to_slow(fast)))], dim=1)


class TwoPaths(nn.Module):
    """One stage of both paths. `fusion` passes results of the fast path to the slow path."""

    def __init__(self, slow: nn.Module, fast: nn.Module, fusion: nn.Module | None):
        super().__init__()
        self.multipathway_blocks = nn.ModuleList([slow, fast])
        self.multipathway_fusion = fusion

    def forward(self, slow: Tensor, fast: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the slow and the fast path."""
        slow = self.multipathway_blocks[_SLOW](slow)
        fast = self.multipathway_blocks[_FAST](fast)
        return (slow if self.multipathway_fusion is None else self.multipathway_fusion(slow, fast)), fast


class SlowFast(nn.Module):
    """SlowFast without its classifier, with the given weights."""

    def __init__(self, state: Mapping[str, Tensor], *, name: str):
        super().__init__()
        state = _with_common_names(state)
        blocks = tuple(_num_blocks(state, stage) for stage in range(1, 5))
        if blocks != BLOCKS:
            raise EncoderError(
                f"{name}: has {blocks} residual blocks, SlowFast R50 has {BLOCKS}; use weights of SlowFast R50"
            )
        try:
            stem = "blocks.0.multipathway_blocks."
            stages = [TwoPaths(Stem(state, f"{stem}0."), Stem(state, f"{stem}1."), _fusion(state, 0))]
            for number, count in enumerate(BLOCKS, start=1):
                key = f"blocks.{number}.multipathway_blocks."
                stride = 1 if number == 1 else 2
                slow, fast = (Stage(state, f"{key}{path}.", stride, count) for path in (_SLOW, _FAST))
                stages.append(TwoPaths(slow, fast, _fusion(state, number) if number < len(BLOCKS) else None))
        except (KeyError, ValueError) as error:
            raise EncoderError(f"{name}: lacks {error}; use the weights of SlowFast 8x8 R50") from error
        self.blocks = nn.ModuleList(stages)
        load_into(self, state, name=name, unused=[r"blocks\.6\.", r"head\."])
        last = (f"blocks.4.multipathway_blocks.{path}.res_blocks.{BLOCKS[3] - 1}.branch2.conv_c" for path in (0, 1))
        self.dim = sum(int(state[f"{key}.weight"].shape[0]) for key in last)

    def forward(self, clip: Float[Tensor, "T 3 Y X"]) -> Float[Tensor, " D"]:
        """Return the features of a clip of 32 frames: the mean outputs of the slow and the fast path, concatenated."""
        fast = clip.transpose(0, 1)[None]
        slow = fast[:, :, torch.linspace(0, len(clip) - 1, len(clip) // SPEED).long()]
        for stage in self.blocks:
            slow, fast = stage(slow, fast)
        return torch.cat([path.mean(dim=(2, 3, 4))[0] for path in (slow, fast)])


def _with_common_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under PyTorchVideo's names."""
    if any(key.startswith("blocks.") for key in state):
        return dict(state)
    renamed = {}
    for key, value in state.items():
        name = key
        for pattern, form in _RENAMED:
            stage = re.match(r"s(\d)", name)
            name = re.sub(pattern, form.format(int(stage[1]) - 1) if stage else form, name)
        renamed[name] = value
    return renamed


def _num_blocks(state: Mapping[str, Tensor], stage: int) -> int:
    prefix = f"blocks.{stage}.multipathway_blocks.{_SLOW}.res_blocks."
    return len({key.removeprefix(prefix).split(".")[0] for key in state if key.startswith(prefix)})


def _fusion(state: Mapping[str, Tensor], stage: int) -> Fusion:
    return Fusion(state, f"blocks.{stage}.multipathway_fusion.")


def _map(state: Mapping[str, Tensor], key: str, stride: int | tuple[int, int, int]) -> nn.Conv3d:
    rows, columns, *size = map_shape(state, f"{key}.weight", 5)
    kernel = (size[0], size[1], size[2])
    padding = (size[0] // 2, size[1] // 2, size[2] // 2)
    return nn.Conv3d(columns, rows, kernel, stride=stride, padding=padding, bias=False)


def _norm(state: Mapping[str, Tensor], key: str) -> nn.BatchNorm3d:
    return nn.BatchNorm3d(map_shape(state, f"{key}.weight", 1)[0])
