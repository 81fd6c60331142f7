"""Training in one process or several.

Each process of torchrun reads the whole batch from memory-mapped files, encodes a share of it, and gathers the
encodings of all processes, with gradients. Every process then computes the losses of the whole batch. The results are
therefore the same as with a single process.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from untrimmed.batches import E, R
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError, install_advice
from untrimmed.precision import Format
from untrimmed.running.encoding import Encoding

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class SharedEncoding(Encoding):
    """Encodes a share of each batch in this process and gathers the encodings of all processes."""

    fabric: "Fabric | None" = None

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """Return the encodings of the whole batch in every process, in the order of the batch."""
        assert self.fabric is not None
        total = len(rows)
        size = self.fabric.world_size
        share = -(-total // size)
        # Of n processes, each encodes every n-th row, so that all processes encode long and short videos. If the number
        # of rows is not a multiple of n, the first rows are used again.
        local_rows = (torch.arange(share) * size + self.fabric.global_rank) % total
        encoded = super().__call__(encoder, rows.select(local_rows))
        gathered = {name: self._gather(tensor)[:total] for name, tensor in encoded.tensors().items()}
        return encoded.with_tensors(gathered)

    def _gather(self, tensor: Tensor) -> Tensor:
        assert self.fabric is not None
        sent = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor  # the backend gloo cannot send bools
        parts: Any = self.fabric.all_gather(sent, sync_grads=tensor.requires_grad)
        return parts.transpose(0, 1).flatten(0, 1).to(tensor.dtype)


def launch(device: str | torch.device, precision: Format, compiled: bool) -> tuple["Fabric", Encoding]:
    """Connect the processes of torchrun if there are several. Return the Fabric and the encoding of batches.

    Raises: ConfigError if Lightning or the device is missing.
    """
    chosen = choose_device(device)
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.strategies import DDPStrategy
    except ImportError as error:
        raise ConfigError(f"training needs lightning ({error}); {install_advice('train')}") from error
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    if num_processes == 1:
        devices = [chosen.index or 0] if chosen.type == "cuda" else 1
        fabric = Fabric(accelerator=chosen.type, devices=devices)
        fabric.launch()
        return fabric, Encoding(fabric.device, precision, compiled)
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes))
    # parameters that affect only a term of weight 0 have no gradient, and DDP must not wait for it
    strategy = DDPStrategy(find_unused_parameters=True)
    fabric = Fabric(accelerator=chosen.type, devices=num_local, num_nodes=num_processes // num_local, strategy=strategy)
    fabric.launch()
    return fabric, SharedEncoding(fabric.device, precision, compiled, fabric)
