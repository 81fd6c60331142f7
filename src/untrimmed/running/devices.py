"""How the encoders of a model run: on which device, in which number format."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar, get_args

import torch

from untrimmed.batches import Record
from untrimmed.errors import ConfigError
from untrimmed.models.base import RetrievalModel

Precision = Literal["fp32", "bf16"]
R = TypeVar("R", bound=Record)


def require_precision(name: str) -> None:
    """Raise a ConfigError unless this is one of the number formats."""
    if name not in get_args(Precision):
        raise ConfigError(f"precision {name!r} is not known; choose {' or '.join(get_args(Precision))}")


@dataclass(frozen=True)
class Encoding:
    """How encoders run: on which device, in which number format; encodings are float32 in any case."""

    device: torch.device
    precision: Precision = "fp32"

    def install(self, model: RetrievalModel) -> None:
        """Make both encoders of this model instance run so; whatever calls them gets the encodings of whole batches."""
        for name in ("encode_queries", "encode_videos"):
            setattr(model, name, partial(self, getattr(model, name)))

    def __call__(self, encode: Callable[[R], Record], rows: R) -> Record:
        """The encodings of a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            encoded = encode(rows.to(self.device))
        return encoded.to(self.device, torch.float32)
