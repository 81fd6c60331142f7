from fractions import Fraction

import pytest

from tests.refusals import require_named
from untrimmed.video.timeline import SampleGrid, SampleTimes, Timeline


def timeline(**changes):
    return Timeline(Fraction(1, 1000), frame_s=0.04, **changes)


def test_the_first_frame_is_at_zero_wherever_the_stamps_begin():
    clock = timeline()
    assert [clock.next_s(pts) for pts in (95_500, 95_540, 96_000)] == pytest.approx([0.0, 0.04, 0.5])
    clock = timeline()
    assert [clock.next_s(pts) for pts in (-80, -40, 0)] == pytest.approx([0.0, 0.04, 0.08])
    assert clock.warnings() == []


def test_frames_without_stamps_follow_the_previous_frame():
    clock = timeline()
    assert [clock.next_s(pts) for pts in (1000, None, None, 1200)] == pytest.approx([0.0, 0.04, 0.08, 0.2])
    require_named(*clock.warnings(), "25 fps", "2")
    assert not clock.is_plain


def test_late_stamps_continue_from_the_frames_before():
    clock = timeline()
    assert [clock.next_s(pts) for pts in (None, None, 7000, 7040)] == pytest.approx([0.0, 0.04, 0.08, 0.12])


def test_a_small_step_back_holds_the_clock():
    clock = timeline()
    assert [clock.next_s(pts) for pts in (0, 500, 460, 540)] == pytest.approx([0.0, 0.5, 0.5, 0.54])
    assert clock.is_plain


@pytest.mark.parametrize("after", [0, -50_000, 10_000_000_000])
def test_after_a_break_time_continues_by_one_frame(after):
    """Two joined recordings, or a broken clock: 10.0 s, then another time."""
    clock = timeline()
    times = [clock.next_s(pts) for pts in (0, 5_000, 10_000, after, after + 40, after + 1040)]
    assert times == pytest.approx([0.0, 5.0, 10.0, 10.04, 10.08, 11.08])
    require_named(*clock.warnings(), "1")


def test_a_grid_gives_each_time_once():
    grid = SampleGrid(2.0)
    assert grid.take_before(0.04) == [0.0]
    assert grid.take_before(0.04) == []
    assert grid.take_before(1.7) == [0.5, 1.0, 1.5]
    assert grid.take_before(2.0) == [], "a frame that begins at 2.0 s is itself on screen then"
    assert grid.take_before(2.04) == [2.0]


def test_a_grid_tolerates_the_rounding_of_stamps():
    """15 frames of 1/30 s are 0.5 s, in floating point a little less or more."""
    grid = SampleGrid(2.0)
    grid.take_before(0.01)
    assert grid.take_before(0.5 + 1e-9) == []
    assert grid.take_before(0.5333) == [0.5]


@pytest.mark.parametrize(
    ("start_s", "end_s", "expected"), [(0.1, 0.4, False), (0.4, 0.6, True), (0.5, 0.52, True), (0.51, 0.99, False)]
)
def test_a_grid_knows_whether_a_frame_may_be_sampled(start_s, end_s, expected):
    assert SampleGrid(2.0).falls_in(start_s, end_s) is expected
    assert SampleTimes(0.5).falls_in(start_s, end_s) is expected


def test_a_single_time_is_taken_once():
    single = SampleTimes(1.0)
    assert single.take_before(1.0) == []
    assert single.take_before(1.04) == [1.0]
    assert single.take_before(9.0) == []
