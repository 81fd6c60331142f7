"""Figures about a split, with numbers worked out by hand."""

from untrimmed.data.annotations import Annotation
from untrimmed.data.describe import describe


def test_counts_and_means_are_those_of_the_captions():
    annotations = [
        Annotation("a", "a#0", "one two three", ((0.0, 5.0),), 10.0),
        Annotation("a", "a#1", "one", ((0.0, 1.0), (2.0, 3.0)), 10.0),
        Annotation("b", "b#0", "one two", (), 30.0),
    ]
    found = describe(annotations, "train")
    assert (found.videos, found.captions, found.captions_per_video) == (2, 3, 1.5)
    assert (found.words_per_query, found.longest_query) == (2.0, 3)
    assert found.moments_per_video == 1.5
    assert found.captions_with_moment == 2
    assert found.video_length_s == 20.0
    assert found.moment_length_s == 3.0  # (5 + 1) / 2
    assert found.moment_ratio == 0.3  # (0.5 + 0.1) / 2
    assert found.moment_ratios == (1, 0, 0, 0, 1, 0, 0, 0, 0, 0)


def test_the_whole_video_and_more_count_in_the_last_bin():
    annotations = [Annotation("a", f"a#{i}", "x", ((0.0, end_s),), 10.0) for i, end_s in enumerate((10.0, 12.0))]
    assert describe(annotations, "test").moment_ratios[-1] == 2


def test_unknown_times_are_none_not_zero():
    found = describe([Annotation("a", "a#0", "x")], "test")
    assert (found.video_length_s, found.moment_length_s, found.moment_ratio) == (None, None, None)
    assert sum(found.moment_ratios) == 0
