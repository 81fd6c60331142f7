"""The random choices that cases recorded, in place of new ones."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from untrimmed.losses.draws import Draws
from untrimmed.parity.case import Case


class RecordedDraws(Draws):
    """Replays the negatives that a case recorded; without recorded ones, draws as configured."""

    recorded: dict[str, np.ndarray | None]

    def __init__(self, case: Case, file_names: dict[str, str]):
        super().__init__(hard_pool=case.setting("hard_pool_size") if case.setting("use_hard_negative") else None)
        object.__setattr__(self, "recorded", {term: case.batch.get(name) for term, name in file_names.items()})

    def candidate_ranks(self, term: str, num_rows: int, num_candidates: int) -> Tensor:
        """The recorded ranks."""
        stored = self.recorded.get(f"candidate {term}")
        return super().candidate_ranks(term, num_rows, num_candidates) if stored is None else torch.from_numpy(stored)

    def foreign_ranks(self, term: str, num_foreign: Tensor) -> Tensor:
        """The recorded ranks."""
        stored = self.recorded.get(f"foreign {term}")
        return super().foreign_ranks(term, num_foreign) if stored is None else torch.from_numpy(stored)


class NoisyDraws(RecordedDraws):
    """Replays recorded noise too, by term: one array of three axes for every step of training, or one for each."""

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
        """The recorded noise of this step."""
        return next(self.noise[term]).view(shape)
