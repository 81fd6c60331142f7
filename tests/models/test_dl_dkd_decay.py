import itertools
import math

import pytest

from untrimmed.models.dl_dkd_decay import distillation_decay, share_decay


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("constant", (1, 1, 1)),
        ("exponential", (1, 0.95, 0.95**200)),
        ("linear", (1, 0.99, 0.05)),
        ("sigmoid", (800 / 801, 800 / (800 + math.exp(0.125)), 800 / (800 + math.exp(25)))),
        ("rising_linear", (0, 0.01, 0.95)),
        ("slow_growth", (0.001, 0.00105, 0.1)),
        ("capped_growth", (0.001, 0.005, 0.1 * (1 - 0.95**200))),
    ],
)
def test_decay_factors_of_two_early_epochs_and_a_late_one(kind, values):
    assert [distillation_decay(kind, epoch) for epoch in (0, 1, 200)] == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("kind", ["exponential", "linear", "sigmoid", "cosine"])
def test_a_share_falls_to_its_floor_and_stays(kind):
    course = [share_decay(kind, epoch, start=0.8, floor=0.5, num_epochs=120) for epoch in range(150)]
    assert course[0] == pytest.approx(0.8, abs=0.002)
    assert all(later <= earlier for earlier, later in itertools.pairwise(course))
    assert course[-1] == pytest.approx(0.5, abs=1e-12)


def test_decay_does_not_overflow_in_late_epochs():
    assert distillation_decay("sigmoid", 10**6) == pytest.approx(0, abs=1e-200)
    assert distillation_decay("slow_growth", 10**6) == 0.1
