"""Training in one process or several.

Several processes (torchrun) divide the encoding of each batch among themselves, and gather all encodings with their
gradients. Losses see the whole batch, so in-batch negatives, hard pools, both directions of InfoNCE and gradients are
those of a single process. Every process reads every batch, which costs a copy from a memory-mapped file.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from untrimmed.batches import E, R
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError
from untrimmed.precision import Format
from untrimmed.running.encoding import Encoding

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class SharedEncoding(Encoding):
    """Encodes a share of each batch in this process and gathers the encodings of all processes."""

    fabric: "Fabric | None" = None

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """Return the encodings of the whole batch, in its order, in every process."""
        assert self.fabric is not None
        total = len(rows)
        size = self.fabric.world_size
        share = -(-total // size)
        # With n processes, each gets every n-th row, so that all get long and short videos. If rows are missing at the
        # end, the first rows are used again.
        local_rows = (torch.arange(share) * size + self.fabric.global_rank) % total
        encoded = super().__call__(encoder, rows.select(local_rows))
        gathered = {name: self._gather(tensor)[:total] for name, tensor in encoded.tensors().items()}
        return encoded.with_tensors(gathered)

    def _gather(self, tensor: Tensor) -> Tensor:
        assert self.fabric is not None
        sent = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor  # gloo cannot send bools
        parts: Any = self.fabric.all_gather(sent, sync_grads=tensor.requires_grad)
        return parts.transpose(0, 1).flatten(0, 1).to(tensor.dtype)


def launch(device: str | torch.device, precision: Format, compiled: bool) -> tuple["Fabric", Encoding]:
    """Join the processes of torchrun, or run in one process.

    Raises: ConfigError if Lightning or the device is missing.
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
        return fabric, Encoding(fabric.device, precision, compiled)
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes))
    # A term with weight 0 leaves parameters without gradients, for which DDP must not wait.
    strategy = DDPStrategy(find_unused_parameters=True)
    fabric = Fabric(accelerator=chosen.type, devices=num_local, num_nodes=num_processes // num_local, strategy=strategy)
    fabric.launch()
    return fabric, SharedEncoding(fabric.device, precision, compiled, fabric)
