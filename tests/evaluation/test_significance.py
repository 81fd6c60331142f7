"""Paired tests between two models."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from untrimmed.errors import ConfigError
from untrimmed.evaluation import significance
from untrimmed.evaluation.report import Report
from untrimmed.evaluation.significance import compare, p_over_seeds, randomization_p

DRAWN = """
import numpy as np
from untrimmed.evaluation.significance import randomization_p
print(randomization_p(np.random.default_rng(3).normal(0.02, 1, size=2_000)))
"""


def report_of(rank, ids=None):
    rank = np.asarray(rank)
    return Report("model", 300, {}, rank, tuple(ids or map(str, range(len(rank)))))


def test_a_clear_difference_is_significant_in_both_tests():
    rng = np.random.default_rng(0)
    worse = rng.integers(1, 200, size=400)
    better = np.maximum(1, worse // 3)
    by_metric = {c.metric: c for c in compare(report_of(better), report_of(worse))}
    mean_reciprocal = by_metric["mAP"]
    assert mean_reciprocal.fisher_p < 0.01
    assert mean_reciprocal.difference > 0
    difference = 1 / better - 1 / worse
    t = difference.mean() / (difference.std(ddof=1) / math.sqrt(len(difference)))
    assert t > 5
    assert mean_reciprocal.student_p < 1e-5


def test_a_difference_of_chance_is_not_significant():
    rng = np.random.default_rng(1)
    first, second = rng.integers(1, 200, size=300), rng.integers(1, 200, size=300)
    assert all(c.fisher_p > 0.05 and c.student_p > 0.05 for c in compare(report_of(first), report_of(second)))


def test_equal_models_have_p_1():
    same = report_of([1, 5, 30])
    assert {(c.fisher_p, c.student_p, c.difference) for c in compare(same, same)} == {(1.0, 1.0, 0.0)}


def test_an_equal_difference_in_all_queries_is_significant():
    better, worse = report_of([1] * 30), report_of([300] * 30)
    assert {(c.student_p, c.fisher_p) for c in compare(better, worse, ("R@1", "SumR"))} == {(0.0, 1 / 10_001)}


def test_the_seeds_of_a_side_are_averaged_per_query():
    good, bad, other = report_of([1] * 21 + [300] * 20), report_of([300] * 20 + [1] * 21), report_of([300] * 41)
    seeds = {c.metric: c for c in compare([good, bad], [other, other])}
    assert seeds["R@1"].first == pytest.approx(100 * (2 * 21) / (2 * 41))
    assert seeds["R@1"].second == 0.0
    assert seeds["SumR"].difference == pytest.approx(4 * seeds["R@1"].first)
    assert seeds["SumR"].fisher_p < 0.001
    with pytest.raises(ConfigError):
        compare([good, report_of([1])], other)


def test_reports_of_different_queries_are_refused():
    with pytest.raises(ConfigError):
        compare(report_of([1, 2]), report_of([1, 2], ids=["x", "y"]))


def test_equal_values_of_all_seeds_have_no_p():
    assert p_over_seeds([1.0, 1.0], [2.0, 2.0]) is p_over_seeds([1.0, 1.0], [1.0, 1.0]) is None
    assert 0 < p_over_seeds([1.0, 1.0], [2.0, 2.5]) < 1


def test_p_is_the_share_of_sign_assignments_with_at_least_the_same_sum():
    # Of the 16 sign assignments for 1, 1, 1 and 2, 2 have a sum of 5 or -5, and 8 one of 3 or more in size.
    assert randomization_p(np.array([1.0, 1.0, 1.0, 2.0])) == pytest.approx(2 / 16, abs=0.015)
    assert randomization_p(np.array([-1.0, 1.0, 1.0, 2.0])) == pytest.approx(8 / 16, abs=0.02)
    assert randomization_p(np.array([1.0, 1.0, 1.0, 2.0, 0.0])) == randomization_p(np.array([1.0, 1.0, 1.0, 2.0]))


def test_sums_that_differ_only_by_rounding_count_as_equal():
    integers = np.array([1.0, 2.0, 3.0, -4.0] * 5)
    assert randomization_p(integers / 10) == randomization_p(integers)


def test_p_is_the_same_each_time_with_any_number_of_threads():
    printed = {
        subprocess.run(
            [sys.executable, "-c", DRAWN],
            env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "2")
    }
    assert len(printed) == 1
    assert 0.01 < float(printed.pop()) < 0.1


def test_drawing_signs_in_parts_does_not_change_p(monkeypatch):
    difference = np.random.default_rng(3).normal(0.1, 1, size=50)
    at_once = randomization_p(difference)
    monkeypatch.setattr(significance, "SIGNS", 50 * 64)
    assert randomization_p(difference) == at_once


def test_the_order_of_seeds_makes_no_difference():
    rng = np.random.default_rng(3)
    seeds = [report_of(rng.integers(1, 40, size=60)) for _ in range(3)]
    assert {(comparison.fisher_p, comparison.student_p) for comparison in compare(seeds, seeds[::-1])} == {(1.0, 1.0)}
