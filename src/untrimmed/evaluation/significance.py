"""Whether two models differ by more than the draw of queries explains: paired tests, from ranx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report, per_query

METRICS = ("R@1", "R@5", "R@10", "R@100", "mAP")
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


def compare(first: Report, second: Report, metrics: Sequence[str] = METRICS) -> list[Comparison]:
    """Both paired tests for every metric.

    Raises: ConfigError when the reports are not about the same queries, or ranx is not installed.
    """
    if first.caption_ids != second.caption_ids:
        raise ConfigError(
            f"{first.title} and {second.title} have different queries ({len(first.caption_ids)} and "
            f"{len(second.caption_ids)}); compare models on one split of one data set"
        )
    try:
        from ranx.statistical_tests import fisher_randomization_test, paired_student_t_test
    except ImportError as error:
        raise ConfigError(f"comparing needs ranx ({error}); run: pip install 'untrimmed[train]'") from error
    comparisons = []
    for metric in metrics:
        a, b = per_query(first.rank, metric), per_query(second.rank, metric)
        same = bool(np.array_equal(a, b))  # a t-test of no difference at all is 0 / 0
        fisher_p = 1.0 if same else float(fisher_randomization_test(b, a, n_permutations=PERMUTATIONS)[0])
        student_p = 1.0 if same else float(paired_student_t_test(b, a)[0])
        comparisons.append(Comparison(metric, float(a.mean()), float(b.mean()), fisher_p, student_p))
    return comparisons
