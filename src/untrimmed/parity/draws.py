"""Replay the random numbers that cases recorded, instead of drawing new ones."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from untrimmed.losses.draws import Draws
from untrimmed.parity.case import Case


class RecordedDraws(Draws):
    """Replays the negatives that a case recorded. Negatives that were not recorded are drawn at random.

    A negative is recorded as its rank among the candidates. Rank 0 is the candidate with the highest score.
    """

    recorded: dict[str, np.ndarray | None]

    def __init__(self, case: Case, file_names: dict[str, str]):
        super().__init__(hard_pool=case.setting("hard_pool_size") if case.setting("use_hard_negative") else None)
        object.__setattr__(self, "recorded", {term: case.batch.get(name) for term, name in file_names.items()})

    def candidate_ranks(self, term: str, num_rows: int, num_candidates: int) -> Tensor:
        """Return, for each row, the recorded ranks of its negatives."""
        stored = self.recorded.get(f"candidate {term}")
        return super().candidate_ranks(term, num_rows, num_candidates) if stored is None else torch.from_numpy(stored)

    def foreign_ranks(self, term: str, num_foreign: Tensor) -> Tensor:
        """Return the recorded ranks of each video's negatives among the queries of other videos."""
        stored = self.recorded.get(f"foreign {term}")
        return super().foreign_ranks(term, num_foreign) if stored is None else torch.from_numpy(stored)


class NoisyDraws(RecordedDraws):
    """Replays the recorded noise of each loss term, and the recorded negatives.

    Noise with three axes is used at every training step. If noise has four axes, the first axis is the step.
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
