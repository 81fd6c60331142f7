"""Sequences of different length as rows without padding, so that no work is done on padding."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where the rows of sequences are when only real ones are kept, in order.

    `rows` are their positions in the flattened padded array, None when nothing is padded. `groups` lists, for each
    length, the packed rows of all sequences of that length, so that they can be attended together without a mask.
    """

    num_sequences: int
    length: int
    rows: Int[Tensor, " M"] | None
    groups: tuple[Int[Tensor, "_ _"], ...]

    def pack(self, x: Tensor) -> Tensor:
        """[N, T, ...] -> [M, ...]."""
        flat = x.flatten(0, 1)
        return flat if self.rows is None else flat[self.rows]

    def unpack(self, x: Tensor) -> Tensor:
        """[K, M, D] -> [K, N, T, D], zeros at padding."""
        if self.rows is None:
            return x.unflatten(1, (self.num_sequences, self.length))
        padded = x.new_zeros(len(x), self.num_sequences * self.length, x.shape[-1])
        return padded.index_copy(1, self.rows, x).unflatten(1, (self.num_sequences, self.length))


def packing_of(
    num_sequences: int, length: int, mask: Bool[Tensor, "N T"] | None, device: torch.device
) -> Packing | None:
    """How to pack sequences whose padding stands at the end; None for other masks and for empty sequences."""
    if mask is None or bool(mask.all()):
        every = torch.arange(num_sequences * length, device=device).view(num_sequences, length)
        return Packing(num_sequences, length, None, (every,))
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
