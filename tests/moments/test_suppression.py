import numpy as np
import pytest

from untrimmed.moments.suppression import suppress


def kept(*rows, limit=5, max_iou=0.3):
    """The positions of the spans that are kept in each row. The best span is first."""
    longest = max(map(len, rows))
    spans = np.array([[*row, *[(0, 0)] * (longest - len(row))] for row in rows], dtype=float)
    spans = spans.reshape(len(rows), longest, 2)
    real = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
    return [np.flatnonzero(row).tolist() for row in suppress(spans, real, max_iou=max_iou, limit=limit)]


def test_a_span_inside_a_better_one_is_dropped_and_a_distant_one_kept():
    assert kept([(1, 9), (0, 10), (20, 30)]) == [[0, 2]]  # IoU of the first two: 8 / 10


@pytest.mark.parametrize(("max_iou", "number"), [(0.34, 2), (1 / 3, 2), (0.33, 1)])
def test_overlap_up_to_the_limit_is_allowed(max_iou, number):
    assert len(kept([(0, 4), (2, 6)], max_iou=max_iou)[0]) == number  # IoU 2 / 6


def test_with_no_overlap_allowed_spans_may_touch():
    assert kept([(0, 4), (4, 6), (3, 5), (5.9, 8), (6, 8)], max_iou=0) == [[0, 1, 4]]


def test_a_dropped_span_drops_no_other():
    # (3, 9) overlaps (0, 6) with IoU 3 / 9 and is dropped; (7, 12) overlaps only the dropped one
    assert kept([(0, 6), (3, 9), (7, 12)]) == [[0, 2]]


def test_rows_do_not_see_each_other_and_padding_is_never_kept():
    assert kept([(0, 4), (0, 4), (5, 6)], [(0, 4)], [], [(1, 2), (2, 3), (3, 4)], limit=2) == [[0, 2], [0], [], [0, 1]]


def test_a_span_of_no_length_is_kept_once():
    assert kept([(3, 3), (3, 3), (0, 5)]) == [[0, 1, 2]]


def test_no_spans_give_none():
    assert kept([]) == [[]]
