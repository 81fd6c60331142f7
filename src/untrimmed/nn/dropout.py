"""Dropout with masks that are drawn quickly and take one byte per element (two for bfloat16).

The autograd functions in `nn/lean.py` use the same masks.
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


def is_eager_cpu(x: Tensor) -> bool:
    """Whether x is on the CPU and torch.compile is not tracing.

    While torch.compile traces, callers use PyTorch's operations.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def rate(dropout: nn.Module) -> float:
    """Return the dropout probability of a module, which is 0 in evaluation mode."""
    return float(dropout.p) if dropout.training else 0.0  # type: ignore[arg-type]


def keep_mask(shape: tuple[int, ...], probability: float, dtype: torch.dtype) -> Shaped[Tensor, "..."]:
    """Return a random mask: 0 with `probability` (rounded to a multiple of 1 / 65536), otherwise 1.

    If `dtype` is bfloat16, the mask is in bfloat16. Otherwise the mask is in uint8, because bools take twice as long.

    The bits come from a NumPy generator, which is twice as fast as torch's generator. Torch's generator draws the seed
    of the NumPy generator. Therefore the mask depends on `torch.manual_seed`, but not on the number of threads.
    """
    count = math.prod(shape)
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    bits = torch.from_numpy(generator.random_raw(-(-count // 4)).view(np.int16))[:count].view(shape)
    mask = bits.ge_(round(probability * 65536) - 32768)  # in place: a new tensor of bools takes four times as long
    return mask.mul_(BFLOAT16_ONE).view(dtype) if dtype == torch.bfloat16 else mask.to(torch.uint8)


def _times(x: Tensor, mask: Tensor) -> Tensor:
    """Return x * mask. The mask is converted first, because products of different dtypes take several times as long."""
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
    """Dropout with the masks of `keep_mask` on the CPU, and with torch's masks on other devices."""

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return x with random elements set to 0 and all other elements scaled up. In evaluation mode, return x."""
        if not is_eager_cpu(x):
            return super().forward(x)
        return _Dropout.apply(x, self.p) if self.training and self.p > 0 else x
