"""Which device a model runs on."""

import torch

from untrimmed.errors import ConfigError


def choose_device(name: str, *, mps: bool = False) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one, else the CPU, with `mps` Apple's GPU before it.

    Raises: ConfigError for another name, or for a device that is not there.
    """
    if name == "auto":
        apple = mps and torch.backends.mps.is_available()
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if apple else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda", *(["mps"] if mps else [])) or (colon and not number.isdecimal()):
        known = f"auto, cpu{', mps' if mps else ''} or cuda (cuda:1 for the second)"
        raise ConfigError(f"device {name!r} is not known; choose {known}")
    count = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}.get(kind, 1)
    if count == 0:
        raise ConfigError(
            f"device {name!r}: PyTorch {torch.__version__} finds no {kind.upper()} device here; use --device cpu"
        )
    if colon and int(number) >= count:
        raise ConfigError(f"device {name!r}: there are {count} of them, counted from 0; choose another number")
    return torch.device(name)
