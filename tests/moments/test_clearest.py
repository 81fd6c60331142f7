import numpy as np
import pytest

from untrimmed.moments.clearest import clearest_scenes

EDGES_S = np.array([0.0, 1.0, 2.0, 4.0, 8.0])


def found(relevance, scenes, *, background=0.0, length_exponent=0.0, limit=5, min_s=0.0):
    moments = clearest_scenes(
        np.array(relevance), EDGES_S, np.array(scenes), background=background, length_exponent=length_exponent,
        limit=limit, min_s=min_s,
    )  # fmt: skip
    return [(moment.start_s, moment.end_s, pytest.approx(moment.score)) for moment in moments]


def test_the_most_relevant_scene_comes_first_and_what_it_meets_is_left_out():
    scenes = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (2, 4), (0, 4)]
    assert found([0.3, 0.5, 0.1, 0.2], scenes) == [(1, 2, 0.5), (0, 1, 0.3), (4, 8, 0.2), (2, 4, 0.1)]
    assert found([0.3, 0.5, 0.1, 0.2], scenes, limit=2) == [(1, 2, 0.5), (0, 1, 0.3)]


def test_length_counts_by_its_power():
    # (0.5 - 0.1) * 1^0.5 = 0.4, (0.4 - 0.1) * 4^0.5 = 0.6
    assert found([0.5, 0.0, 0.0, 0.4], [(0, 1), (3, 4)], background=0.1, length_exponent=0.5) == [
        (4, 8, 0.4),
        (0, 1, 0.5),
    ]


def test_a_video_that_fits_throughout_is_one_moment():
    scenes = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (2, 4), (0, 4)]
    # All: 0.46875 * 8^0.2 = 0.710; from 2 s on: 0.483 * 6^0.2 = 0.692; from 4 s on: 0.5 * 4^0.2 = 0.660
    assert found([0.40, 0.45, 0.45, 0.50], scenes, length_exponent=0.2) == [(0, 8, 0.46875)]


def test_what_is_below_the_background_is_no_moment_unless_it_is_all_there_is():
    assert found([0.3, 0.1, 0.1, 0.1], [(0, 1), (1, 2), (2, 4)], background=0.2) == [(0, 1, 0.3)]
    assert found([0.1, 0.1, 0.1, 0.05], [(0, 3), (3, 4)], background=0.2) == [(0, 4, 0.1)]


def test_short_scenes_are_left_out_unless_all_are_short():
    scenes = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (2, 4), (0, 4)]
    assert found([0.3, 0.5, 0.1, 0.2], scenes, min_s=2.0) == [(0, 2, 0.4), (4, 8, 0.2), (2, 4, 0.1)]
    assert found([0.3, 0.5, 0.1, 0.2], scenes, min_s=9.0) == [(0, 8, pytest.approx(0.225))]


def test_equal_ones_come_in_order_of_time_whatever_their_order():
    assert found([0.25, 0.0, 0.25, 0.25], [(3, 4), (0, 1), (2, 3)]) == [(0, 1, 0.25), (2, 4, 0.25), (4, 8, 0.25)]
