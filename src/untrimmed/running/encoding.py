"""How the encoders of a model run: on which device, in which number format."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from untrimmed.batches import E, R
from untrimmed.errors import ConfigError
from untrimmed.models.base import RetrievalModel
from untrimmed.precision import Format


def require_float32(model: RetrievalModel) -> None:
    """Raise a ConfigError if a model has weights in another format: encodings and features are float32."""
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            found = str(parameter.dtype).removeprefix("torch.")
            raise ConfigError(
                f"{model.name}: {name} is {found}, wanted float32; call model.float(), precision='bfloat16' is faster"
            )


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
