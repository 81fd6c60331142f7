from fractions import Fraction

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.encoders.features.windows import MAX_RATE, Windows, as_fraction, common_rate
from untrimmed.errors import ConfigError
from untrimmed.video.timeline import MAX_FPS


def test_a_vector_of_tvr_has_five_and_four_pictures_in_turn():
    windows = Windows(Fraction(75), as_fraction(1 / 1.5))
    positions = windows.positions(np.arange(4 * 75) / 75)  # four seconds
    assert positions.tolist() == list(range(300))
    vectors = windows.vectors(positions)
    pictures = windows.is_read(positions, Fraction(3))
    # Pictures at 0, 1/3, 2/3, 1, 4/3 | 5/3, 2, 7/3, 8/3 | 3, 10/3, 11/3 seconds.
    assert np.bincount(vectors[pictures]).tolist() == [5, 4, 3]
    # 25 frames per second: 38 of them begin before 1.5 s, 37 from 1.52 s to 2.96 s, 25 in the last second.
    assert np.bincount(vectors[windows.is_read(positions, Fraction(25))]).tolist() == [38, 37, 25]
    assert windows.times_s(np.array([0, 1, 2])).tolist() == [0, 1.5, 3]


@pytest.mark.parametrize("fps", [0.5, 1 / 3, 0.7, 2.0])
def test_a_number_of_frames_per_vector_is_exact_at_any_rate(fps):
    exact = as_fraction(fps)
    windows = Windows(common_rate([32 * exact, exact]), exact)
    positions = windows.positions(np.arange(round(20 * windows.rate)) / float(windows.rate))
    assert set(np.bincount(windows.vectors(positions)).tolist()[:-1]) == {32}


def test_the_rate_contains_the_frames_of_all_networks():
    assert common_rate([Fraction(3), Fraction(25)]) == 75
    assert common_rate([Fraction(1, 2), Fraction(16)]) == 16


def test_the_largest_rate_is_that_of_decoding():
    assert MAX_RATE == MAX_FPS


def test_too_many_frames_are_refused():
    with refused(ConfigError, "1000", "--fps"):
        common_rate([Fraction(25), Fraction(999, 7)])
