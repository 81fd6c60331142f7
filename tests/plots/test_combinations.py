"""The picture of a study, for names of any length."""

from itertools import pairwise

import pytest

from untrimmed.plots.combinations import LEGEND, CombinationResult, Combinations, draw_combinations

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")


@pytest.mark.parametrize("label", ["ral", "ms_sl+ral+evidence+partial_order"])
def test_all_text_is_within_the_picture(label):
    results = (CombinationResult("ms_sl", 231.1, True), CombinationResult(label, 254.2, False))
    figure = draw_combinations([Combinations("tvr", results), Combinations("charades", results)])
    figure.draw_without_rendering()  # computes the layout
    box = figure.get_tightbbox()  # in inches, of all texts and marks
    assert min(box.xmin, box.ymin) >= 0
    assert box.xmax <= figure.get_figwidth()
    assert box.ymax <= figure.get_figheight()


@pytest.mark.parametrize("sum_r", [(100.0, 119.96), (225.0, 245.0), (29.0, 310.4), (250.1, 250.1), (99.94, 100.06)])
@pytest.mark.parametrize("label", ["ral", "proto,model.iterations=1,model.builder=perceiver"])
def test_tick_labels_do_not_overlap_and_are_within_their_axis(label, sum_r):
    results = tuple(CombinationResult(label, value, False) for value in sum_r)
    figure = draw_combinations([Combinations("tvr", results)])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [tick.get_window_extent() for tick in axes.get_xticklabels()]
    assert boxes
    assert axes.bbox.x0 <= boxes[0].x0
    assert boxes[-1].x1 <= axes.bbox.x1
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert max(text.get_window_extent().x1 for text in axes.texts) <= axes.bbox.x1, "the numbers beside the points"


def test_a_legend_explains_the_marks_if_a_combination_was_kept():
    figures = {}
    for is_kept in (True, False):
        results = (CombinationResult("ms_sl", 100.0, is_kept), CombinationResult("x", 90.0, False))
        figures[is_kept] = draw_combinations([Combinations("tvr", results)])
    (legend,) = figures[True].legends
    assert [text.get_text() for text in legend.get_texts()] == list(LEGEND.values())
    assert figures[False].legends == []


def test_a_world_without_results_is_an_empty_panel():
    draw_combinations([Combinations("tvr", ())]).draw_without_rendering()
