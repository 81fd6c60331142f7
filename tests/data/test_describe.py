"""Statistics of a split, with hand-computed values."""

import numpy as np

from untrimmed.data.annotations import Annotation
from untrimmed.data.describe import describe


def test_counts_and_means_equal_hand_computed_values():
    annotations = [
        Annotation("a", "a#0", "one two three", ((0.0, 5.0),), 10.0),
        Annotation("a", "a#1", "one", ((0.0, 1.0), (2.0, 3.0)), 10.0),
        Annotation("b", "b#0", "one two", (), 30.0),
    ]
    result = describe(annotations, "train")
    assert (result.videos, result.captions, result.captions_per_video) == (2, 3, 1.5)
    assert (result.words_per_query, result.longest_query) == (2.0, 3)
    assert result.moments_per_video == 1.5
    assert result.captions_with_moment == 2
    assert result.video_length_s == 20.0
    assert result.moment_length_s == 3.0  # (5 + 1) / 2
    assert result.moment_ratio == 0.3  # (0.5 + 0.1) / 2
    assert result.moment_ratios == (1, 0, 0, 0, 1, 0, 0, 0, 0, 0)


def test_moment_ratios_of_one_and_above_are_in_the_last_bin():
    annotations = [Annotation("a", f"a#{i}", "x", ((0.0, end_s),), 10.0) for i, end_s in enumerate((10.0, 12.0))]
    assert describe(annotations, "test").moment_ratios[-1] == 2


def test_statistics_of_unknown_times_are_none():
    result = describe([Annotation("a", "a#0", "x")], "test")
    assert (result.video_length_s, result.moment_length_s, result.moment_ratio) == (None, None, None)
    assert sum(result.moment_ratios) == 0


def elsewhere(*captions):
    result = describe([Annotation(video, str(number), text) for number, (video, text) in enumerate(captions)], "test")
    return result.equal_elsewhere, result.nearly_equal_elsewhere


def test_equal_captions_of_different_videos_count_despite_case_and_punctuation():
    assert elsewhere(("a", "A man  sits down."), ("b", "a man sits down"), ("c", "sits a man up")) == (2, 2)
    assert elsewhere(("a", "a man sits"), ("a", "a man sits")) == (0, 0)
    assert elsewhere(("a", "a man sits"), ("b", "sits a man")) == (0, 2)  # the same words in another order


def test_nearly_equal_captions_share_four_fifths_of_their_words():
    four = "one two three four"
    assert elsewhere(("a", four), ("b", f"{four} five")) == (0, 2)  # 4 of 5
    assert elsewhere(("a", four), ("b", f"{four} five six")) == (0, 0)  # 4 of 6
    nine = "one two three four five six seven eight nine"
    assert elsewhere(("a", f"{nine} ten"), ("b", f"{nine} other")) == (0, 2)  # 9 of 11
    assert elsewhere(("a", f"{four} ten"), ("b", f"{four} other")) == (0, 0)  # 4 of 6


def test_nearly_equal_captions_match_a_comparison_of_all_pairs():
    rng = np.random.default_rng(0)
    captions = [
        (str(rng.integers(40)), " ".join(rng.choice(list("abcdefghi"), rng.integers(1, 9)))) for _ in range(300)
    ]
    words = [set(text.split()) for _, text in captions]
    near = [
        any(video != v and len(own & w) >= 0.8 * len(own | w) for (v, _), w in zip(captions, words, strict=True))
        for (video, _), own in zip(captions, words, strict=True)
    ]
    assert 0 < sum(near) < 300
    assert elsewhere(*captions)[1] == sum(near)
