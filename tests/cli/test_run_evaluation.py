"""The table of tests that `untrimmed evaluate RUN --against RUN2` prints."""

from pathlib import Path

from untrimmed.cli.console import result_console
from untrimmed.cli.run_evaluation import _comparison_table
from untrimmed.evaluation.significance import Comparison


def test_a_small_p_is_printed_as_below_the_resolution_of_the_test(capsys):
    comparisons = [Comparison("R@1", 40.0, 20.0, 1 / 10_001, 1e-30), Comparison("R@5", 1.0, 1.0, 1.0, 0.03456)]
    result_console.print(_comparison_table(Path("one"), Path("other"), comparisons))
    first, second = (line.split() for line in capsys.readouterr().out.splitlines() if "R@" in line)
    assert first[4:] == ["<", "0.0001", "<", "0.0001"]
    assert second[4:] == ["1", "0.035"]
