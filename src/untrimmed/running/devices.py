"""How the encoders of a model run: on which device, in which number format."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from untrimmed.batches import E, R
from untrimmed.errors import ConfigError

Precision = Literal["fp32", "bf16"]


def require_precision(name: str) -> None:
    """Raise a ConfigError unless this is one of the number formats."""
    if name not in get_args(Precision):
        raise ConfigError(f"precision {name!r} is not known; choose {' or '.join(get_args(Precision))}")


@dataclass(frozen=True)
class Encoding:
    """How encoders run: on which device, in which number format; encodings are float32 in any case."""

    device: torch.device
    precision: Precision = "fp32"

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """The encodings of a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            encoded = encoder(rows.to(self.device))
        return encoded.to(self.device, torch.float32)
