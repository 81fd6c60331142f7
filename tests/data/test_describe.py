"""Figures about a split, with numbers worked out by hand."""

import numpy as np

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


def elsewhere(*captions):
    found = describe([Annotation(video, str(number), text) for number, (video, text) in enumerate(captions)], "test")
    return found.equal_elsewhere, found.nearly_equal_elsewhere


def test_equal_captions_count_in_different_videos_alone_whatever_their_case_blanks_and_signs():
    assert elsewhere(("a", "A man  sits down."), ("b", "a man sits down"), ("c", "sits a man up")) == (2, 2)
    assert elsewhere(("a", "a man sits"), ("a", "a man sits")) == (0, 0)
    assert elsewhere(("a", "a man sits"), ("b", "sits a man")) == (0, 2)  # the same words in another order


def test_nearly_equal_captions_have_four_fifths_of_all_their_words_in_common():
    four = "one two three four"
    assert elsewhere(("a", four), ("b", f"{four} five")) == (0, 2)  # 4 of 5
    assert elsewhere(("a", four), ("b", f"{four} five six")) == (0, 0)  # 4 of 6
    nine = "one two three four five six seven eight nine"
    assert elsewhere(("a", f"{nine} ten"), ("b", f"{nine} other")) == (0, 2)  # 9 of 11
    assert elsewhere(("a", f"{four} ten"), ("b", f"{four} other")) == (0, 0)  # 4 of 6


def test_nearly_equal_captions_are_those_that_a_comparison_of_all_pairs_finds():
    rng = np.random.default_rng(0)
    captions = [
        (str(rng.integers(40)), " ".join(rng.choice(list("abcdefghi"), rng.integers(1, 9)))) for _ in range(300)
    ]
    words = [set(text.split()) for _, text in captions]
    near = [
        any(
            video != other and len(own & w) >= 0.8 * len(own | w) for (other, _), w in zip(captions, words, strict=True)
        )
        for (video, _), own in zip(captions, words, strict=True)
    ]
    assert 0 < sum(near) < 300
    assert elsewhere(*captions)[1] == sum(near)
