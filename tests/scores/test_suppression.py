from untrimmed.scores.suppression import suppress
from untrimmed.types import Moment


def test_a_moment_inside_a_better_one_is_dropped_and_a_distant_one_kept():
    moments = [Moment(0.0, 10.0, 0.5), Moment(1.0, 9.0, 0.9), Moment(20.0, 30.0, 0.1)]
    assert suppress(moments, limit=5, max_iou=0.3) == [moments[1], moments[2]]  # IoU of the first two: 8 / 10


def test_overlap_up_to_the_limit_is_allowed():
    moments = [Moment(0.0, 4.0, 0.9), Moment(2.0, 6.0, 0.8)]  # IoU 2 / 6
    assert len(suppress(moments, limit=5, max_iou=0.34)) == 2
    assert len(suppress(moments, limit=5, max_iou=0.33)) == 1


def test_priority_decides_instead_of_the_scores_when_given():
    moments = [Moment(0.0, 4.0, 0.9), Moment(1.0, 4.0, 0.1)]
    assert suppress(moments, [1.0, 2.0], limit=5, max_iou=0.3) == [moments[1]]


def test_equal_scores_are_decided_by_the_earlier_start_whatever_the_order():
    moments = [Moment(3.0, 6.0, 0.5), Moment(2.0, 5.0, 0.5), Moment(9.0, 12.0, 0.5)]
    expected = [moments[1], moments[2]]
    assert suppress(moments, limit=2, max_iou=0.3) == expected
    assert suppress(moments[::-1], limit=2, max_iou=0.3) == expected


def test_no_moments_give_no_moments():
    assert suppress([], limit=3, max_iou=0.3) == []
