import numpy as np
import pytest

from untrimmed.evaluation.moments import mean_iou, moment_recall


def spans(*rows):
    return np.array(rows, dtype=float).reshape(-1, 2)


def test_mean_iou_uses_the_first_prediction_and_its_best_true_span():
    predicted = [spans((0, 4), (2, 6)), spans()]
    truth = [spans((2, 6), (0, 2)), spans((0, 1))]
    assert mean_iou(predicted, truth) == pytest.approx(100 * (1 / 2 + 0) / 2)  # (0,4) with (0,2): 2 / 4


@pytest.mark.parametrize(("top", "min_iou", "expected"), [(1, 0.3, 50.0), (1, 0.7, 0.0), (2, 0.7, 50.0)])
def test_moment_recall_counts_queries_with_a_match_among_the_first_spans(top, min_iou, expected):
    predicted = [spans((0, 4), (2, 6)), spans((8, 9))]
    truth = [spans((2, 6)), spans((0, 1))]  # first query: IoU 1/3 at rank 1, 1 at rank 2; second: never
    assert moment_recall(predicted, truth, top=top, min_iou=min_iou) == expected


def test_no_queries_give_zero():
    assert mean_iou([], []) == 0.0
    assert moment_recall([], [], top=1, min_iou=0.5) == 0.0
