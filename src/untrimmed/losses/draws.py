"""The random choices of a training step: which negatives, and noise where a loss samples."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """Where the losses take their random numbers from; `hard_pool` None means that every negative is equally likely.

    With a pool of k, a query's negative video is one of its k best-scoring ones and a video's negative query is the
    best-scoring one; that asymmetry is the released behaviour. Terms of a method draw independently; each passes its
    name, so that a subclass can replay recorded choices.
    """

    hard_pool: int | None = None
    generator: torch.Generator | None = None

    def candidate_ranks(self, term: str, num_rows: int, num_candidates: int) -> Int[Tensor, " N"]:
        """For each row, a rank in its descending list in which the positive is kept as rank 0; 0 if it is alone."""
        limit = num_candidates - 1
        if self.hard_pool is not None:
            limit = min(self.hard_pool, limit)
        if limit < 1:
            return torch.zeros(num_rows, dtype=torch.long)
        return torch.randint(1, limit + 1, (num_rows,), generator=self.generator)

    def foreign_ranks(self, term: str, num_foreign: Int[Tensor, " V"]) -> Int[Tensor, " V"]:
        """For each video, a rank in the descending list of queries of other videos, 0 being the best-scoring."""
        if self.hard_pool is not None:
            return torch.zeros_like(num_foreign)
        share = torch.rand(len(num_foreign), generator=self.generator, dtype=torch.float64)
        return (share.to(num_foreign.device) * num_foreign).long()

    def normal(self, term: str, *shape: int) -> Float[Tensor, "..."]:
        """Standard normal noise."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, term: str, *shape: int) -> Float[Tensor, "..."]:
        """Uniform numbers in [0, 1)."""
        return torch.rand(shape, generator=self.generator)
