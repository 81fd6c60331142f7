"""Test whether the difference between two models could be chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.errors import ConfigError, install_advice
from untrimmed.evaluation.report import Report, per_query

METRICS = ("R@1", "R@5", "R@10", "R@100", "SumR", "mAP")
PERMUTATIONS = 10_000
SIGNIFICANT = 0.05  # a smaller p-value counts as significant
# number of random signs drawn at a time, which limits memory for any number of queries
SIGNS = 2**20


@dataclass(frozen=True)
class Comparison:
    """The values of a metric for two models on the same queries, in percent (mAP: a fraction), and their p-values.

    `fisher_p` is the p-value of the randomization test (`randomization_p`), and `student_p` is the p-value of the
    paired t-test. Both are two-sided. A small p-value means that the difference is unlikely to be chance.
    """

    metric: str
    first: float
    second: float
    fisher_p: float
    student_p: float

    @property
    def difference(self) -> float:
        """The first model's value minus the second model's value."""
        return self.first - self.second


def compare(
    first: Report | Sequence[Report], second: Report | Sequence[Report], metrics: Sequence[str] = METRICS
) -> list[Comparison]:
    """Compare two models with two paired tests, and return one comparison per metric.

    If a model has several reports, they are from different seeds. The value of a query is then the mean over seeds.

    Raises: ConfigError if the reports have different queries, or if SciPy is not installed.
    """
    sides = [[side] if isinstance(side, Report) else list(side) for side in (first, second)]
    reference = sides[0][0]
    for report in (*sides[0], *sides[1]):
        if reference.caption_ids != report.caption_ids:
            raise ConfigError(
                f"{reference.title} and {report.title} have different queries ({len(reference.caption_ids)} and "
                f"{len(report.caption_ids)}); compare models on one split of one data set"
            )
    try:
        from scipy.stats import ttest_rel
    except ImportError as error:
        raise ConfigError(f"comparing needs scipy ({error}); {install_advice('torch')}") from error
    comparisons = []
    for metric in metrics:
        a, b = (np.mean([per_query(report.rank, metric) for report in side], axis=0) for side in sides)
        # if seeds are in another order, rounding can make equal means differ
        b = np.where(np.isclose(a, b, rtol=1e-9, atol=0.0), a, b)
        # If all differences are equal, the t-test would divide by 0. In this case, p is 1 if the differences are 0 or
        # if there is one query, otherwise 0.
        p_if_equal = float(len(a) < 2 or np.array_equal(a, b))
        student_p = float(ttest_rel(a, b).pvalue) if np.ptp(a - b) else p_if_equal
        comparisons.append(Comparison(metric, float(a.mean()), float(b.mean()), randomization_p(a - b), student_p))
    return comparisons


def values_of_seeds(reports: Sequence[Report], metric: str = "SumR") -> list[float]:
    """Return the value of a metric for each seed, computed with the fused score."""
    return [report.figures[metric] for report in reports]


def p_of_sum_r(first: Sequence[Report], second: Sequence[Report]) -> tuple[float | None, float]:
    """Return two p-values of the difference in SumR: over seeds (`p_over_seeds`), and over queries.

    The p-value over queries comes from the randomization test of `compare`.

    Raises: the errors of `compare`.
    """
    over_seeds = p_over_seeds(values_of_seeds(first), values_of_seeds(second))
    return over_seeds, compare(first, second, ("SumR",))[0].fisher_p


def p_over_seeds(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the p-value of Welch's t-test on one value per seed.

    Return None if a model has only one seed, or if neither model's values differ between seeds.
    """
    from scipy.stats import ttest_ind_from_stats

    sides = (first, second)
    if min(map(len, sides)) < 2 or not any(np.ptp(side) for side in sides):  # the test would divide by 0
        return None
    statistics = [figure for side in sides for figure in (np.mean(side), np.std(side, ddof=1), len(side))]
    return float(ttest_ind_from_stats(*statistics, equal_var=False).pvalue)


def randomization_p(difference: Float[np.ndarray, " Q"]) -> float:
    """Return the two-sided p-value of Fisher's randomization test on one difference per query.

    The test assigns random signs to the differences 10,000 times. The p-value is the share of assignments, including
    the actual signs, whose sum is at least as far from 0 as the actual sum. Therefore the p-value is at least
    1 / 10,001. The random signs are the same in every call.

    >>> randomization_p(np.array([1.0, -1.0])), round(randomization_p(np.full(20, 0.5)), 5)
    (1.0, 0.0001)
    """
    difference = difference[difference != 0]  # leave out differences of 0, which have no sign
    if not len(difference):
        return 1.0
    rng = np.random.default_rng(0)
    # equal sums may differ in their last digits, because processors add numbers in different orders
    actual = abs(difference.sum()) - 1e-9 * np.abs(difference).sum()
    at_a_time = max(1, SIGNS // len(difference))
    count = 0
    for start in range(0, PERMUTATIONS, at_a_time):
        shape = (min(at_a_time, PERMUTATIONS - start), len(difference))
        signs = rng.integers(0, 2, size=shape, dtype=np.int8) * 2.0 - 1.0
        count += int((np.abs(signs @ difference) >= actual).sum())
    return (count + 1) / (PERMUTATIONS + 1)


def format_p(p: float | None) -> str:
    """Return a p-value as text with two significant digits, for tables. For None, the text is empty.

    >>> format_p(0.03456), format_p(1.0), format_p(1 / 10_001), format_p(None)
    ('0.035', '1', '< 0.0001', '')
    """
    if p is None:
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
