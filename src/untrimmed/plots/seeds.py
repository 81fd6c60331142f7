"""Group runs that differ only in their seed. Pictures show a group as one line with an error band."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.errors import ConfigError
from untrimmed.plots.style import COLOURS
from untrimmed.plots.trained_run import TrainedRun
from untrimmed.running.run import seed_groups


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in their seed, and their common label in pictures."""

    label: str
    runs: tuple[TrainedRun, ...]


@dataclass(frozen=True)
class Spread:
    """The mean and the standard deviation (None for one seed) over seeds, and the number of seeds."""

    mean: Float[np.ndarray, " N"]
    deviation: Float[np.ndarray, " N"] | None
    num_seeds: int


def group_by_seed(runs: Sequence[TrainedRun]) -> list[SeedGroup]:
    """Return groups of runs that differ only in their seed, in the order of their first runs.

    A group of several runs is labelled with its method. If another group has the same method, the label of the first
    run is used instead.

    Raises: ConfigError for more groups than colours, and for two runs with the same settings and seed.
    """
    by_label = {run.label: run for run in runs}
    names = seed_groups({label: run.config for label, run in by_label.items()})
    groups = [[by_label[label] for label in group] for group in names]
    if len(groups) > len(COLOURS):
        raise ConfigError(
            f"found {len(groups)} settings, expected at most {len(COLOURS)}, the number of colours; give fewer runs "
            "(runs that differ only in their seed count as one)"
        )
    methods = [group[0].model.name for group in groups]
    return [SeedGroup(_label(group, methods), tuple(group)) for group in groups]


def _label(runs: Sequence[TrainedRun], methods: Sequence[str]) -> str:
    if len(runs) == 1:
        return runs[0].label
    method = runs[0].model.name
    return method if methods.count(method) == 1 else runs[0].label


def spread_of(values: Sequence[Sequence[float] | Float[np.ndarray, " _"]]) -> Spread:
    """Return the mean and the sample standard deviation over seeds (rows).

    All rows are cut to the length of the shortest row.

    >>> spread = spread_of([[1.0, 2.0], [3.0, 2.0, 9.0]])
    >>> spread.mean.tolist(), spread.deviation.round(3).tolist(), spread.num_seeds
    ([2.0, 2.0], [1.414, 0.0], 2)
    """
    shortest = min(map(len, values))
    table = np.array([row[:shortest] for row in values], dtype=np.float64)
    return Spread(table.mean(axis=0), table.std(axis=0, ddof=1) if len(table) > 1 else None, len(table))


def seeds_note(counts: Sequence[int], *, drawn: str = "areas") -> str:
    """Return a line of text for a picture, which explains error bands or warns that there is only one seed.

    >>> seeds_note([3, 3]), seeds_note([1, 1])
    ('areas: standard deviation over 3 seeds', 'one seed each: small differences may be chance')
    """
    several = sorted({count for count in counts if count > 1})
    if not several:
        return "one seed each: small differences may be chance" if len(counts) > 1 else "one seed"
    numbers = " or ".join(map(str, several))
    rest = "; others: one seed" if min(counts) == 1 else ""
    return f"{drawn}: standard deviation over {numbers} seeds{rest}"
