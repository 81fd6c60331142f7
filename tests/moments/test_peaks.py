import numpy as np
import pytest

from untrimmed.moments.peaks import best_index, span_around, widened

TIMES_S = np.array([0.0, 1.0, 2.0, 3.0, 4.0])


def test_the_best_time_of_a_span_is_inside_it():
    curve = np.array([0.9, 0.1, 0.4, 0.3, 0.8])
    assert best_index(0.5, 3.5, TIMES_S, curve) == 2
    assert best_index(3.0, 4.0, TIMES_S, curve) == 4
    assert best_index(1.2, 1.6, TIMES_S, curve) == 1, "no time is in the span, and 1 s is nearest to its middle"


def test_a_span_ends_where_the_curve_falls_below_half_of_the_height_of_its_peak():
    curve = np.array([0.7, 0.5, 1.0, 0.6, 0.5])
    free = np.ones(5, dtype=bool)
    assert span_around(curve, 2, free, 0.2) == (2, 4)  # half way from 0.2 to 1.0 is 0.6
    assert span_around(curve, 2, free, 0.0) == (0, 5)
    assert span_around(curve, 2, np.array([True, False, True, True, False]), 0.0) == (2, 4)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((4.0, 6.0), (4.0, 6.0)),  # long enough
        ((4.0, 4.5), (3.75, 4.75)),
        ((1.0, 1.5), (1.0, 2.0)),  # no space before it
        ((8.75, 9.0), (8.0, 9.0)),  # no space after it
    ],
)
def test_a_short_span_is_widened_evenly_where_there_is_space(span, expected):
    assert widened(*span, 1.0, after_s=1.0, before_s=9.0) == expected


def test_a_span_is_not_widened_beyond_the_space():
    assert widened(2.0, 2.25, 1.0, after_s=1.75, before_s=2.5) == (1.75, 2.5)
