"""Whether two models differ by more than the draw of queries explains: paired tests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report, per_query

METRICS = ("R@1", "R@5", "R@10", "R@100", "SumR", "mAP")
PERMUTATIONS = 10_000
SIGNS = 2**20  # that are drawn at a time: megabytes, however many queries there are


@dataclass(frozen=True)
class Comparison:
    """One metric of two models on the same queries; percent, mAP a fraction.

    `fisher_p` is of the randomization test (`randomization_p`), `student_p` of the paired t-test, both two-sided; a
    small p means that chance alone rarely gives such a difference.
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

    Raises: ConfigError when the reports are not about the same queries, or SciPy is not installed.
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
        from scipy.stats import ttest_rel
    except ImportError as error:
        raise ConfigError(f"comparing needs scipy ({error}); run: pip install 'untrimmed[torch]'") from error
    comparisons = []
    for metric in metrics:
        a, b = (np.mean([per_query(report.rank, metric) for report in side], axis=0) for side in sides)
        b = np.where(np.isclose(a, b, rtol=1e-9, atol=0.0), a, b)  # means of seeds in another order
        # Where all differ alike, a t-test divides by 0; no difference, or that of one query, says nothing.
        alike = float(len(a) < 2 or np.array_equal(a, b))
        student_p = float(ttest_rel(a, b).pvalue) if np.ptp(a - b) else alike
        comparisons.append(Comparison(metric, float(a.mean()), float(b.mean()), randomization_p(a - b), student_p))
    return comparisons


def randomization_p(difference: Float[np.ndarray, " Q"]) -> float:
    """Two-sided p of Fisher's randomization test: how often a sum of random signs lies as far from 0 as the own.

    Of 10,000 draws and the own one, so never below 1 / 10,001; the draws are the same each time.

    >>> randomization_p(np.array([1.0, -1.0])), round(randomization_p(np.full(20, 0.5)), 5)
    (1.0, 0.0001)
    """
    difference = difference[difference != 0]  # no sign changes these
    if not len(difference):
        return 1.0
    rng = np.random.default_rng(0)
    # Sums that are equal may differ in the last digits, by the order in which processors add up.
    own = abs(difference.sum()) - 1e-9 * np.abs(difference).sum()
    at_a_time, count = max(1, SIGNS // len(difference)), 0
    for start in range(0, PERMUTATIONS, at_a_time):
        shape = (min(at_a_time, PERMUTATIONS - start), len(difference))
        signs = rng.integers(0, 2, size=shape, dtype=np.int8) * 2.0 - 1.0
        count += int((np.abs(signs @ difference) >= own).sum())
    return (count + 1) / (PERMUTATIONS + 1)


def shown_p(p: float) -> str:
    """A p as tables print it, two digits of it.

    >>> shown_p(0.03456), shown_p(1.0), shown_p(1 / 10_001)
    ('0.035', '1', '< 0.0001')
    """
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
