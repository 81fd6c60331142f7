"""Whether two models differ by more than the draw of queries explains: paired tests, from ranx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report, per_query

METRICS = ("R@1", "R@5", "R@10", "R@100", "SumR", "mAP")
PERMUTATIONS = 10_000


@dataclass(frozen=True)
class Comparison:
    """One metric of two models on the same queries; percent, mAP a fraction.

    `fisher_p` is of the randomization test (10,000 seeded permutations), `student_p` of the paired t-test, both
    two-sided; a small p means that chance alone rarely gives such a difference.
    """

    metric: str
    first: float
    second: float
    fisher_p: float
    student_p: float

    @property
    def difference(self) -> float:
        """How much the first is better."""
        return self.first - self.second


def compare(
    first: Report | Sequence[Report], second: Report | Sequence[Report], metrics: Sequence[str] = METRICS
) -> list[Comparison]:
    """Both paired tests for every metric; several reports of one side are seeds, whose mean a query counts.

    Raises: ConfigError when the reports are not about the same queries, or ranx is not installed.
    """
    sides = [[side] if isinstance(side, Report) else list(side) for side in (first, second)]
    one = sides[0][0]
    for other in (*sides[0], *sides[1]):
        if one.caption_ids != other.caption_ids:
            raise ConfigError(
                f"{one.title} and {other.title} have different queries ({len(one.caption_ids)} and "
                f"{len(other.caption_ids)}); compare models on one split of one data set"
            )
    try:
        from ranx.statistical_tests import fisher_randomization_test, paired_student_t_test
    except ImportError as error:
        raise ConfigError(f"comparing needs ranx ({error}); run: pip install 'untrimmed[train]'") from error
    comparisons = []
    for metric in metrics:
        a, b = (np.mean([per_query(report.rank, metric) for report in side], axis=0) for side in sides)
        same = bool(np.array_equal(a, b))  # a t-test of no difference at all is 0 / 0
        fisher_p = 1.0 if same else float(fisher_randomization_test(b, a, n_permutations=PERMUTATIONS)[0])
        student_p = 1.0 if same else float(paired_student_t_test(b, a)[0])
        comparisons.append(Comparison(metric, float(a.mean()), float(b.mean()), fisher_p, student_p))
    return comparisons
