"""Random numbers for losses: the choice of negatives, and noise."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """The random numbers for losses. Without `hard_pool`, every negative is equally likely.

    With `hard_pool` = k, the negative of a query is one of the k other videos with the highest scores. As in the
    authors' programs, the negative of a video is then always the query with the highest score among the queries of
    other videos.

    Each loss term draws its own numbers and passes its name, so that a subclass can replay recorded numbers.
    """

    hard_pool: int | None = None
    generator: torch.Generator | None = None

    def candidate_ranks(self, term: str, num_rows: int, num_candidates: int) -> Int[Tensor, " N"]:
        """Return the rank of a random negative for each row.

        Rank 0 is the positive, and negatives follow by descending score. If there are no negatives, all ranks are 0.
        """
        limit = num_candidates - 1
        if self.hard_pool is not None:
            limit = min(self.hard_pool, limit)
        if limit < 1:
            return torch.zeros(num_rows, dtype=torch.long)
        return torch.randint(1, limit + 1, (num_rows,), generator=self.generator)

    def foreign_ranks(self, term: str, num_foreign: Int[Tensor, " V"]) -> Int[Tensor, " V"]:
        """Return a random rank among the queries of other videos, for each video. Rank 0 has the highest score."""
        if self.hard_pool is not None:
            return torch.zeros_like(num_foreign)
        share = torch.rand(len(num_foreign), generator=self.generator, dtype=torch.float64)
        return (share.to(num_foreign.device) * num_foreign).long()

    def normal(self, term: str, *shape: int) -> Float[Tensor, "..."]:
        """Return standard normal noise."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, term: str, *shape: int) -> Float[Tensor, "..."]:
        """Return uniform numbers in [0, 1)."""
        return torch.rand(shape, generator=self.generator)
