"""Simulates the rounding of bfloat16 in float32, as a limit for processors that multiply in bfloat16.

A bfloat16 keeps 8 binary digits, so each rounding moves a number by up to 2^-8 of itself. How much that changes a
model's output depends on its weights (for example on cancellation), so the limit is not a constant. It is measured: the
model runs in float32 with its weights, its input and the result of every operation rounded to bfloat16. A processor
that sums in another order, or keeps more digits inside an operation, rounds other digits about as often. Its output is
about as far from the float32 output as this one. `ROUNDING_LUCK` allows for differences in which digits are rounded.
With AMX and with AVX2 alone, on one and two threads, over eight families of models, the distance was 0.8 to 1.4 times
as large.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

ROUNDING_LUCK = 2.0


@contextmanager
def rounded_to_bfloat16(model: nn.Module) -> Iterator[None]:
    """Round a float32 model like bfloat16 during the block. Its weights stay rounded."""
    model.to(torch.bfloat16).to(torch.float32)
    with _Rounding():
        yield


class _Rounding(TorchFunctionMode):
    """Rounds the floating-point results of all operations, in place for operations in place."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        def rounded(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.dtype != torch.float32:
                return value
            near = value.bfloat16().float()
            return value.copy_(near) if any(value is argument for argument in args) else near

        return tree_map(rounded, function(*args, **(kwargs or {})))


def assert_only_rounded(vectors: np.ndarray, rounded: np.ndarray, exact: np.ndarray) -> None:
    """Check that bfloat16 vectors differ from float32 vectors, but not by more than rounding explains."""

    def distance(others: np.ndarray) -> float:
        """The root mean square over the rows of each row's relative distance from the exact one."""
        shares = np.linalg.norm(others - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
        return float(np.sqrt(np.square(shares).mean()))

    assert vectors.dtype == np.float32
    limit = ROUNDING_LUCK * distance(rounded)
    assert 2**-9 < limit < 2**-4  # rounding took place, and the model does not amplify it too much for a useful limit
    assert 0 < distance(vectors) < limit, f"{distance(vectors):.4f} from float32, rounding explains {limit:.4f}"
