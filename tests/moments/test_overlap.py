import numpy as np
import pytest

from untrimmed.moments.overlap import iou, spans_of
from untrimmed.types import Moment


def spans(*rows):
    return np.array(rows, dtype=float).reshape(-1, 2)


def test_iou_of_worked_out_pairs():
    one, other = spans((0, 4), (5, 6)), spans((2, 6), (0, 4), (10, 12))
    # (0,4) with (2,6): 2 / 6; with itself: 1; (5,6) is inside (2,6): 1 / 4
    assert iou(one[:, None], other) == pytest.approx(np.array([[1 / 3, 1, 0], [1 / 4, 0, 0]]))


def test_spans_that_do_not_meet_or_have_no_length_overlap_by_nothing():
    assert iou(spans((0, 1), (3, 3), (3, 3), (0, 2)), spans((2, 4), (3, 3), (0, 5), (2, 4))).tolist() == [0, 0, 0, 0]


def test_the_union_by_lengths_gives_the_same_as_that_from_first_start_to_last_end():
    rng = np.random.default_rng(0)
    start = rng.integers(0, 50, (2, 200_000))
    one, other = (np.stack([s, s + rng.integers(1, 30, s.shape)], axis=-1).astype(float) for s in start)
    inside = np.clip(np.minimum(one[:, 1], other[:, 1]) - np.maximum(one[:, 0], other[:, 0]), 0, None)
    by_lengths = inside / (np.diff(one)[:, 0] + np.diff(other)[:, 0] - inside)
    assert np.array_equal(iou(one, other), by_lengths)


def test_the_precision_is_that_of_the_spans():
    assert iou(spans((0, 4)).astype(np.float32), spans((2, 6)).astype(np.float32)).dtype == np.float32


def test_moments_become_rows_and_none_of_them_no_rows():
    assert spans_of([Moment(1.0, 2.5, 0.3), Moment(4.0, 5.0)]).tolist() == [[1.0, 2.5], [4.0, 5.0]]
    assert spans_of([]).shape == (0, 2)
