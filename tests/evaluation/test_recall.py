import numpy as np
import pytest

from untrimmed.evaluation.recall import mean_average_precision, ranks, recall, retrieval_metrics

SCORES = np.array([[0.9, 0.5, 0.5, 0.1], [0.3, 0.3, 0.3, 0.3], [np.nan, 0.2, -np.inf, np.nan]])


def test_ties_are_broken_by_column():
    assert ranks(SCORES, np.array([2, 2, 1])).tolist() == [3, 3, 1]


def test_ties_can_give_the_best_or_the_worst_rank():
    assert ranks(SCORES, np.array([2, 2, 1]), ties="best").tolist() == [2, 1, 1]
    assert ranks(SCORES, np.array([2, 2, 1]), ties="worst").tolist() == [3, 4, 1]


def test_nan_ranks_below_minus_infinity():
    assert ranks(SCORES[2:], np.array([2])).tolist() == [2]
    assert ranks(SCORES[2:], np.array([0])).tolist() == [3]
    assert ranks(SCORES[2:], np.array([3])).tolist() == [4]


def test_the_best_of_several_right_videos_counts_and_minus_one_is_padding():
    assert ranks(SCORES[:1], np.array([[3, 1, -1]])).tolist() == [2]


def test_ranks_agree_with_a_stable_sort():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (2100, 40)).astype(np.float32)
    truth = rng.integers(0, 40, 2100)
    order = np.argsort(-scores, axis=1, kind="stable")
    assert (ranks(scores, truth) == np.argmax(order == truth[:, None], axis=1) + 1).all()


def test_a_query_without_a_right_video_is_refused():
    for truth in (np.array([4, 0, 0]), np.array([[-1, -1], [0, 1], [0, 1]])):
        with pytest.raises(ValueError, match="video"):
            ranks(SCORES, truth)


def test_metrics_by_hand():
    scores = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
    result = retrieval_metrics(scores, np.array([0, 0]), at=(1, 2))
    # ranks 1 and 3
    assert result == {"R@1": 50.0, "R@2": 50.0, "SumR": 100.0, "median_rank": 2.0, "mean_rank": 2.0, "mAP": 2 / 3}


def test_map_uses_the_first_right_video_only():
    scores = np.array([[0.9, 0.1, 0.5]])
    result = retrieval_metrics(scores, np.array([[1, 0]]), at=(1,))
    assert result["R@1"] == 100
    assert result["mAP"] == pytest.approx(1 / 3)


def test_no_queries_give_no_ranks_and_a_recall_of_nan():
    assert ranks(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)).tolist() == []
    assert np.isnan(recall(np.zeros(0, dtype=np.int64))["SumR"])


def test_precision_of_one_relevant_video_is_the_inverse_rank():
    assert mean_average_precision(np.array([1, 4])) == 0.625
