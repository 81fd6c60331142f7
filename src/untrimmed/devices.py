"""Choose the device that a model runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from untrimmed.errors import ConfigError

if TYPE_CHECKING:
    import torch


def check_device(name: str, *, mps: bool = False) -> None:
    """Check the form of a device name, without checking that this machine has the device. PyTorch is not needed.

    Raises: ConfigError for an unknown name.
    """
    kind, colon, number = name.partition(":")
    kinds = ("cpu", "cuda", *(["mps"] if mps else []))
    if name != "auto" and (kind not in kinds or (colon and not number.isdecimal())):
        choices = f"auto, cpu{', mps' if mps else ''} or cuda (cuda:1 for the second)"
        raise ConfigError(f"device {name!r} is unknown; choose {choices}")


def choose_device(name: str | torch.device, *, mps: bool = False) -> torch.device:
    """Return the device of this name. `auto` selects CUDA, else Apple's GPU (only with `mps`), else the CPU.

    Raises: ConfigError for an unknown name, or a device that this machine does not have.
    """
    import torch

    name = str(name)
    check_device(name, mps=mps)
    if name == "auto":
        apple = mps and torch.backends.mps.is_available()
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if apple else "cpu")
    kind, colon, number = name.partition(":")
    count = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}.get(kind, 1)
    if count == 0:
        raise ConfigError(
            f"device {name!r}: PyTorch {torch.__version__} finds no {kind.upper()} device here; "
            "choose another device (device), e.g. cpu"
        )
    if colon and int(number) >= count:
        raise ConfigError(f"device {name!r}: this machine has {count}, counted from 0; choose a lower number")
    return torch.device(name)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception reports that the device or the machine has too little memory."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
