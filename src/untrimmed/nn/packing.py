"""Pack sequences of different lengths into an array without padding, so that layers compute only real rows."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Converts padded sequences to packed rows (the real rows, in order) and back.

    - `rows`: the positions of the packed rows in the flattened padded array, or None if there is no padding.
    - `groups`: for each sequence length T, an array [N, T] with the indices of the packed rows of the N sequences of
      this length. Attention within a group needs no mask.
    """

    num_sequences: int
    length: int
    rows: Int[Tensor, " M"] | None
    groups: tuple[Int[Tensor, "_ _"], ...]

    def pack(self, x: Tensor) -> Tensor:
        """Remove padding: [N, T, ...] -> [M, ...]."""
        flat = x.flatten(0, 1)
        return flat if self.rows is None else flat[self.rows]

    def unpack(self, x: Tensor) -> Tensor:
        """Restore padding, as zeros: [K, M, D] -> [K, N, T, D]."""
        if self.rows is None:
            return x.unflatten(1, (self.num_sequences, self.length))
        padded = x.new_zeros(len(x), self.num_sequences * self.length, x.shape[-1])
        return padded.index_copy(1, self.rows, x).unflatten(1, (self.num_sequences, self.length))


def packing_of(
    num_sequences: int, length: int, mask: Bool[Tensor, "N T"] | None, device: torch.device
) -> Packing | None:
    """Return the packing of sequences that have padding only at the end.

    The result is None if a sequence is empty or has padding elsewhere.
    """
    if mask is None or bool(mask.all()):
        all_rows = torch.arange(num_sequences * length, device=device).view(num_sequences, length)
        return Packing(num_sequences, length, None, (all_rows,))
    lengths = mask.sum(dim=1)
    at_end = torch.equal(mask, torch.arange(length, device=device) < lengths[:, None])
    if not at_end or int(lengths.min()) == 0:
        return None
    first = lengths.cumsum(0) - lengths
    groups = []
    for size in lengths.unique().tolist():
        starts = first[lengths == size]
        groups.append(starts[:, None] + torch.arange(size, device=device))
    return Packing(num_sequences, length, mask.flatten().nonzero()[:, 0], tuple(groups))
