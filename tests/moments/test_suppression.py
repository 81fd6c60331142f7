import numpy as np
import pytest

from untrimmed.moments.suppression import suppress


def kept(spans, scores, *, limit=5, max_iou=0.3):
    positions = suppress(np.array(spans, dtype=float).reshape(-1, 2), np.array(scores), limit=limit, max_iou=max_iou)
    return positions.tolist()


def test_a_span_inside_a_better_one_is_dropped_and_a_distant_one_kept():
    assert kept([(0, 10), (1, 9), (20, 30)], [0.5, 0.9, 0.1]) == [1, 2]  # IoU of the first two: 8 / 10


@pytest.mark.parametrize(("max_iou", "number"), [(0.34, 2), (0.33, 1)])
def test_overlap_up_to_the_limit_is_allowed(max_iou, number):
    assert len(kept([(0, 4), (2, 6)], [0.9, 0.8], max_iou=max_iou)) == number  # IoU 2 / 6


def test_a_dropped_span_drops_no_other():
    # (3, 9) overlaps (0, 6) with IoU 3 / 9 and is dropped; (7, 12) overlaps only the dropped one
    assert kept([(0, 6), (3, 9), (7, 12)], [0.9, 0.8, 0.7]) == [0, 2]


def test_equal_scores_are_decided_by_the_earlier_start_whatever_the_order():
    assert kept([(3, 6), (2, 5), (9, 12)], [0.5, 0.5, 0.5], limit=2) == [1, 2]
    assert kept([(9, 12), (2, 5), (3, 6)], [0.5, 0.5, 0.5], limit=2) == [1, 0]


def test_no_spans_give_none():
    assert kept([], []) == []
