"""Random numbers that cases recorded, replayed instead of new ones."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from untrimmed.losses.draws import Draws
from untrimmed.parity.case import Case


class RecordedDraws(Draws):
    """Replays the ranks of negatives that a case recorded. Ranks that it did not record are drawn at random."""

    recorded: dict[str, np.ndarray | None]

    def __init__(self, case: Case, file_names: dict[str, str]):
        super().__init__(hard_pool=case.setting("hard_pool_size") if case.setting("use_hard_negative") else None)
        object.__setattr__(self, "recorded", {term: case.batch.get(name) for term, name in file_names.items()})

    def candidate_ranks(self, term: str, num_rows: int, num_candidates: int) -> Tensor:
        """Return the recorded ranks of negatives for each row."""
        stored = self.recorded.get(f"candidate {term}")
        return super().candidate_ranks(term, num_rows, num_candidates) if stored is None else torch.from_numpy(stored)

    def foreign_ranks(self, term: str, num_foreign: Tensor) -> Tensor:
        """Return the recorded ranks of negative queries for each video."""
        stored = self.recorded.get(f"foreign {term}")
        return super().foreign_ranks(term, num_foreign) if stored is None else torch.from_numpy(stored)


class NoisyDraws(RecordedDraws):
    """Also replays the recorded noise of each loss term.

    An array with three axes is the noise of every training step. An array with four axes has the noise of each step in
    turn.
    """

    noise: dict[str, Iterator[Tensor]]

    def __init__(self, case: Case, file_names: dict[str, str], noise: dict[str, str]):
        super().__init__(case, file_names)
        recorded = {
            term: torch.from_numpy(case.batch[name]).to(case.precision)
            for term, name in noise.items()
            if name in case.batch
        }
        per_step = {term: iter(values) if values.ndim == 4 else repeat(values) for term, values in recorded.items()}
        object.__setattr__(self, "noise", per_step)

    def normal(self, term: str, *shape: int) -> Tensor:
        """Return the recorded noise of the next step."""
        return next(self.noise[term]).view(shape)
