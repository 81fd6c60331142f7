"""DL-DKD's values that change with the epoch: the distillation weight, and the shares of hard data and hard labels."""

import math
from typing import Literal

Decay = Literal[
    "constant",
    "exponential",
    "linear",
    "sigmoid",
    "rising_exponential",
    "rising_linear",
    "rising_sigmoid",
    "slow_growth",
    "capped_growth",
]
ShareDecay = Literal["constant", "exponential", "linear", "sigmoid", "cosine"]

SIGMOID_SCALE = 800.0  # k of k / (k + exp(100 epoch / k)), as in the authors' program


def distillation_decay(kind: Decay, epoch: int) -> float:
    """Return the factor of the distillation loss in an epoch (counted from 0).

    The released scripts use `exponential`. The released setting `decay_way` is a number from 0 to 8, which is the index
    of a kind in `Decay`.

    >>> [distillation_decay("exponential", epoch) for epoch in (0, 1, 2)]
    [1.0, 0.95, 0.9025]
    """
    if kind.startswith("rising_"):
        falling: Decay = kind.removeprefix("rising_")  # type: ignore[assignment]
        return 1 - distillation_decay(falling, epoch)
    if kind == "exponential":
        return 0.95**epoch
    if kind == "linear":
        return max(1 - 0.01 * epoch, 0.05)
    if kind == "sigmoid":
        return _sigmoid(epoch)
    if kind == "slow_growth":
        return min(0.001 * 1.05 ** min(epoch, 100), 0.1)
    if kind == "capped_growth":
        return min(max(0.1 * (1 - 0.95**epoch), 0.001), 0.1)
    return 1.0


def share_decay(kind: ShareDecay, epoch: int, *, start: float, floor: float, num_epochs: int) -> float:
    """Return a share that decreases from `start` with the epoch, but not below `floor`.

    With `linear` and `cosine`, the share reaches `floor` after `num_epochs`.

    >>> share_decay("linear", 60, start=1.0, floor=0.5, num_epochs=120)
    0.75
    """
    if kind == "exponential":
        return max(start * 0.95**epoch, floor)
    if kind == "linear":
        return max(start - (start - floor) * epoch / num_epochs, floor)
    if kind == "sigmoid":
        return max(start * _sigmoid(epoch), floor)
    if kind == "cosine":
        return floor + (start - floor) * (1 + math.cos(math.pi * min(epoch / num_epochs, 1))) / 2
    return start


def _sigmoid(epoch: int) -> float:
    power = min(100 * epoch / SIGMOID_SCALE, 700)  # larger exponents would overflow
    return SIGMOID_SCALE / (SIGMOID_SCALE + math.exp(power))
