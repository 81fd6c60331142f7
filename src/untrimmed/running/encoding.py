"""How the encoders of a model run: on which device, in which number format."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from untrimmed.batches import E, R
from untrimmed.precision import Format


@dataclass(frozen=True)
class Encoding:
    """How encoders run: on which device, in which number format; encodings are float32 in any case."""

    device: torch.device
    precision: Format = "float32"

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """The encodings of a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            encoded = encoder(rows.to(self.device))
        return encoded.to(self.device, torch.float32)
