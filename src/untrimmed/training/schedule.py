"""The learning rate over a run."""

from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_linear(step: int, *, total_steps: int, warmup_share: float) -> float:
    """The factor on the learning rate before update number `step`, counted from 0: up to 1, then down to 0, linearly.

    As released, the count of finished updates is read before it advances, so the first update has rate 0.

    >>> [warmup_linear(step, total_steps=8, warmup_share=0.25) for step in (0, 1, 2, 5, 8, 9)]
    [0.0, 0.5, 1.0, 0.5, -0.0, 0.0]
    """
    progress = step / total_steps
    if progress < warmup_share:
        return progress / warmup_share
    return max((progress - 1) / (warmup_share - 1), 0.0)


def warmup_linear_schedule(optimizer: Optimizer, *, total_steps: int, warmup_share: float) -> LambdaLR:
    """A scheduler that follows `warmup_linear`; call its `step` after each update."""
    factor: Callable[[int], float] = lambda step: warmup_linear(  # noqa: E731
        step, total_steps=total_steps, warmup_share=warmup_share
    )
    return LambdaLR(optimizer, factor)
