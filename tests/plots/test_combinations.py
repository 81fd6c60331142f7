"""The picture of a study, for names of any length."""

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
