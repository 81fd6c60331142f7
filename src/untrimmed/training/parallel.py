"""Where a model runs: device, number format, one process or several.

Several processes (torchrun) share the encoding of each batch and gather the encodings, through which gradients flow
back, so that losses see the whole batch: in-batch negatives, hard pools and both directions of InfoNCE are those of a
single process, and so is the gradient. Every process reads every batch; that costs a copy from a mapped file.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import torch
from torch import Tensor

from untrimmed.batches import Record
from untrimmed.errors import ConfigError
from untrimmed.models.base import RetrievalModel

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Precision = Literal["fp32", "bf16"]
R = TypeVar("R", bound=Record)


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one, else the CPU.

    Raises: ConfigError for another name, or for CUDA where there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()):
        raise ConfigError(f"device {name!r} is not known; choose auto, cpu or cuda (cuda:1 for the second)")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if count == 0:
        raise ConfigError(f"device {name!r}: PyTorch {torch.__version__} finds no CUDA device here; use --device cpu")
    if colon and int(number) >= count:
        raise ConfigError(f"device {name!r}: there are {count} of them, counted from 0; choose another number")
    return torch.device(name)


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


@dataclass(frozen=True)
class SharedEncoding(Encoding):
    """Each process encodes its part of a batch and gets the others' encodings."""

    fabric: "Fabric | None" = None

    def __call__(self, encode: Callable[[R], Record], rows: R) -> Record:
        """The encodings of the whole batch, in its order, on every process."""
        assert self.fabric is not None
        total, size = len(rows), self.fabric.world_size
        share = -(-total // size)
        # Rows are dealt in turn, so that each process gets long and short videos; a short last round begins again.
        own = (torch.arange(share) * size + self.fabric.global_rank) % total
        encoded = super().__call__(encode, rows.select(own))
        whole = {name: self._gather(tensor)[:total] for name, tensor in encoded.tensors().items()}
        return dataclasses.replace(encoded, **whole)

    def _gather(self, tensor: Tensor) -> Tensor:
        assert self.fabric is not None
        sent = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor  # gloo has no bool
        parts: Any = self.fabric.all_gather(sent, sync_grads=tensor.requires_grad)
        return parts.transpose(0, 1).flatten(0, 1).to(tensor.dtype)


def launch(device: str, precision: Precision) -> tuple["Fabric", Encoding]:
    """This process as one of those that torchrun started, or alone; and how its encoders run.

    Raises: ConfigError when Lightning is not installed or the device is not there.
    """
    chosen = choose_device(device)
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.strategies import DDPStrategy
    except ImportError as error:
        raise ConfigError(f"training needs lightning ({error}); run: pip install 'untrimmed[train]'") from error
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    if num_processes == 1:
        devices = [chosen.index or 0] if chosen.type == "cuda" else 1
        fabric = Fabric(accelerator=chosen.type, devices=devices)
        fabric.launch()
        return fabric, Encoding(fabric.device, precision)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes))
    # A term with weight 0 leaves parameters without gradient; DDP must not wait for them.
    strategy = DDPStrategy(find_unused_parameters=True)
    fabric = Fabric(accelerator=chosen.type, devices=here, num_nodes=num_processes // here, strategy=strategy)
    fabric.launch()
    return fabric, SharedEncoding(fabric.device, precision, fabric)
