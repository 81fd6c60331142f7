"""Dropout whose mask is drawn fast and kept in one byte an element.

Layers that are written by hand (`nn/lean.py`) drop with the same masks.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

BFLOAT16_ONE = 0x3F80  # the bits of 1.0


def runs_here(x: Tensor) -> bool:
    """Whether work on x is done by hand: on the CPU, unless torch.compile is reading, which wants plain operations."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def rate(dropout: nn.Module) -> float:
    """The probability with which a module drops now: 0 in evaluation mode."""
    return float(dropout.p) if dropout.training else 0.0  # type: ignore[arg-type]


def keep_mask(shape: tuple[int, ...], probability: float, dtype: torch.dtype) -> Shaped[Tensor, "..."]:
    """1 with 1 - probability (to within 1 / 65536), else 0; to multiply numbers of that format.

    Bytes for wide formats (bools take twice as long), bfloat16 for itself. The bits come from NumPy's generator, twice
    as fast as torch's, which gives it its seed: they follow `torch.manual_seed` and no number of threads.
    """
    count = math.prod(shape)
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    bits = torch.from_numpy(generator.random_raw(-(-count // 4)).view(np.int16))[:count].view(shape)
    kept = bits.ge_(round(probability * 65536) - 32768)  # in place: a result in bools takes four times as long
    return kept.mul_(BFLOAT16_ONE).view(dtype) if dtype == torch.bfloat16 else kept.to(torch.uint8)


def _times(x: Tensor, mask: Tensor) -> Tensor:
    """x * mask; a product of two formats takes several times as long as a conversion and a product."""
    return mask.to(x.dtype, copy=True).mul_(x)


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        mask = keep_mask(tuple(x.shape), probability, x.dtype)
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - probability)
        return _times(x, mask).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _times(gradient, ctx.saved_tensors[0]).mul_(ctx.scale), None


class Dropout(nn.Dropout):
    """Dropout that draws 16 bits an element and keeps one byte of it."""

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The input with some elements 0 and the others scaled up; in evaluation mode the input."""
        if not runs_here(x):
            return super().forward(x)
        return _Dropout.apply(x, self.p) if self.training and self.p > 0 else x
