"""The picture of a study, for names of any length."""

from itertools import pairwise

import pytest

from untrimmed.plots.combinations import Bar, Combinations, draw_combinations

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")


@pytest.mark.parametrize("label", ["ral", "ms_sl+ral+evidence+partial_order"])
def test_all_that_is_written_lies_within_the_picture(label):
    bars = (Bar("ms_sl", 231.1, True), Bar(label, 254.2, False))
    figure = draw_combinations([Combinations("tvr", bars), Combinations("charades", bars)])
    figure.draw_without_rendering()  # lays it out
    box = figure.get_tightbbox()  # in inches, of all texts and marks
    assert min(box.xmin, box.ymin) >= 0
    assert box.xmax <= figure.get_figwidth()
    assert box.ymax <= figure.get_figheight()


@pytest.mark.parametrize("sum_r", [(100.0, 119.96), (225.0, 245.0), (29.0, 310.4), (250.1, 250.1), (99.94, 100.06)])
@pytest.mark.parametrize("label", ["ral", "proto,model.iterations=1,model.prototype_residual=all"])
def test_ticks_lie_apart_and_within_their_axis(label, sum_r):
    bars = tuple(Bar(label, value, False) for value in sum_r)
    figure = draw_combinations([Combinations("tvr", bars)])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [tick.get_window_extent() for tick in axes.get_xticklabels()]
    assert boxes
    assert axes.bbox.x0 <= boxes[0].x0
    assert boxes[-1].x1 <= axes.bbox.x1
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert max(text.get_window_extent().x1 for text in axes.texts) <= axes.bbox.x1, "figures beside the points, too"


def test_what_was_kept_is_explained_where_anything_was():
    grown, alone = (Combinations("tvr", (Bar("ms_sl", 100.0, kept), Bar("x", 90.0, False))) for kept in (True, False))
    (legend,) = draw_combinations([grown]).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "kept: the next attachments were tried on it",
        "not kept",
    ]
    assert draw_combinations([alone]).legends == []


def test_a_world_on_which_nothing_is_trained_yet_is_an_empty_panel():
    draw_combinations([Combinations("tvr", ())]).draw_without_rendering()
