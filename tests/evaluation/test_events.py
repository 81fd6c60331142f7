import numpy as np
import pytest

from untrimmed.evaluation.events import event_recall, event_sum


def recall_of(video, spans, true_video, truth, **options):
    return event_recall(np.array(video), np.array(spans, dtype=float), np.array(true_video), truth, **options)


def test_video_and_moment_must_both_be_right():
    # query 0: right video at rank 2 with IoU 4 / 8; query 1: right span in a wrong video
    video, spans = [[9, 1], [0, 5]], [[[0, 8], [0, 4]], [[0, 4], [7, 9]]]
    truth = [np.array([[0.0, 8.0]]), np.array([[0.0, 4.0]])]
    result = recall_of(video, spans, [1, 5], truth, at=(1, 2), min_iou=(0.5, 0.6))
    assert result == {"R@1 IoU=0.5": 0, "R@2 IoU=0.5": 50, "R@1 IoU=0.6": 0, "R@2 IoU=0.6": 0}


def test_an_overlap_that_equals_the_threshold_counts_in_float32():
    truth = [np.array([[0.0, 10.0]])]
    assert recall_of([[0]], [[[0.0, 7.0]]], [0], truth, at=(1,), min_iou=(0.7,)) == {"R@1 IoU=0.7": 100}


def test_of_four_annotated_spans_two_must_match_as_released_and_one_in_the_paper():
    four = np.array([[0.0, 5.0], [10.0, 15.0], [20.0, 25.0], [20.0, 30.0]])
    for spans, annotators, expected in (
        ([0, 5], 2, 0),
        ([0, 5], 1, 100),
        ([20, 27], 2, 100),  # 5 / 7 and 7 / 10
    ):
        result = recall_of([[3]], [[spans]], [3], [four], at=(1,), min_iou=(0.7,), annotators=annotators)
        assert result == {"R@1 IoU=0.7": expected}
    assert recall_of([[3]], [[[0, 5]]], [3], [four[:3]], at=(1,), min_iou=(0.7,)) == {"R@1 IoU=0.7": 100}


def test_two_predictions_that_match_one_span_each_do_not_count_together():
    four = np.array([[0.0, 5.0], [10.0, 15.0], [20.0, 25.0], [30.0, 35.0]])
    result = recall_of([[3, 3]], [[[0, 5], [10, 15]]], [3], [four], at=(2,), min_iou=(0.5,))
    assert result == {"R@2 IoU=0.5": 0}


def test_queries_may_have_different_numbers_of_annotated_spans():
    truth = [np.array([[50.0, 60.0]]), np.array([[0.0, 4.0], [50.0, 60.0]]), np.empty((0, 2))]
    result = recall_of([[1], [1], [1]], [[[0, 4]]] * 3, [1, 1, 1], truth, at=(1,), min_iou=(0.5,))
    assert result == {"R@1 IoU=0.5": pytest.approx(100 / 3)}


def test_padding_is_not_a_prediction():
    result = recall_of([[-1, -1]], [[[0, 4], [0, 4]]], [0], [np.array([[0.0, 4.0]])], at=(2,), min_iou=(0.5,))
    assert result == {"R@2 IoU=0.5": 0}


def test_recall_without_queries_is_nan():
    result = event_recall(np.zeros((0, 3), dtype=int), np.zeros((0, 3, 2)), np.zeros(0, dtype=int), [], at=(1,))
    assert all(np.isnan(value) for value in result.values())


def test_the_sum_that_selects_an_epoch_excludes_iou_03():
    recalls = {f"R@{k} IoU={m}": value for k in (1, 10, 100) for m, value in ((0.3, 50.0), (0.5, 2.0), (0.7, 1.0))}
    assert event_sum(recalls) == 9.0
