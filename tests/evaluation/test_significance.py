"""Paired tests between two models."""

import math

import numpy as np
import pytest

from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report
from untrimmed.evaluation.significance import compare

pytest.importorskip("ranx", reason="the extra `train` is not installed")


def report_of(rank, ids=None):
    rank = np.asarray(rank)
    return Report("model", 300, {}, rank, tuple(ids or map(str, range(len(rank)))))


def test_a_clear_difference_is_significant_and_its_p_value_is_the_t_tests():
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


def test_several_seeds_of_a_side_count_by_their_mean_of_each_query():
    good, bad, other = report_of([1] * 21 + [300] * 20), report_of([300] * 20 + [1] * 21), report_of([300] * 41)
    seeds = {c.metric: c for c in compare([good, bad], [other, other])}
    assert seeds["R@1"].first == pytest.approx(100 * (2 * 21) / (2 * 41))
    assert seeds["R@1"].second == 0.0
    assert seeds["SumR"].difference == pytest.approx(4 * seeds["R@1"].first)
    assert seeds["SumR"].fisher_p < 0.001
    with pytest.raises(ConfigError, match="different queries"):
        compare([good, report_of([1])], other)


def test_different_queries_are_refused():
    with pytest.raises(ConfigError, match="different queries"):
        compare(report_of([1, 2]), report_of([1, 2], ids=["x", "y"]))
