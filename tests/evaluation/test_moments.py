import numpy as np
import pytest

from untrimmed.evaluation.moments import mean_iou, moment_metrics, moment_recall


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


def test_metrics_of_moments_count_only_annotated_queries():
    # IoU 2 / 4 = 0.5, 8 / 8 = 1 (the second annotation), 0; the last query has no annotation.
    predicted = np.array([[0.0, 2.0], [0.0, 8.0], [8.0, 9.0], [0.0, 1.0]])
    truth = [np.array(spans, dtype=float).reshape(-1, 2) for spans in ([(0, 4)], [(5, 6), (0, 8)], [(0, 1)], [])]
    metrics = moment_metrics(predicted, truth)
    assert metrics["queries"] == 3
    assert metrics["mIoU"] == pytest.approx(50.0)
    assert [metrics[f"R1@IoU={m}"] for m in (0.3, 0.5, 0.7)] == pytest.approx([200 / 3, 200 / 3, 100 / 3])


def test_two_of_several_annotators_must_agree_with_a_moment():
    truth = [np.array([(0, 2), (4, 6), (4, 6), (8, 9)], dtype=float)]
    for span, expected in (((0.0, 2.0), 0.0), ((4.0, 6.0), 100.0)):
        metrics = moment_metrics(np.array([span]), truth, annotators=2)
        assert (metrics["R1@IoU=0.7"], metrics["mIoU"]) == (expected, 100.0)


def test_without_annotated_queries_metrics_of_moments_are_nan():
    metrics = moment_metrics(np.empty((0, 2)), [])
    assert metrics.pop("queries") == 0
    assert np.isnan(list(metrics.values())).all()
