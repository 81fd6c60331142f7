"""TF-PRVR on data sets, by `evaluate` and the command, as for trained models."""

import h5py
import numpy as np
import pytest

from tests.refusals import refused
from tests.run_world import SMALL
from untrimmed.data.annotations import Annotation
from untrimmed.data.dataset import dataset_of_arrays, load_shared_space
from untrimmed.data.layout import Layout
from untrimmed.data.packed import PackSettings
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.evaluation.recall import retrieval_metrics
from untrimmed.moments.clearest import SpanSettings, clearest_moments
from untrimmed.moments.overlap import iou
from untrimmed.moments.tf_prvr import TFPRVRSettings, moment_scores, video_moments
from untrimmed.running.evaluate import evaluate


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with `tvr`, whose teacher has frames and sentences in one space."""
    root = tmp_path_factory.mktemp("teacher")
    simulate("tvr", root, num_videos=24, settings=SMALL, teacher=True)
    return root


def scores_by_hand(root, split="test", **settings):
    layout, dataset = Layout.at(root, "tvr"), load_shared_space("tvr", root, split)
    with h5py.File(layout.teacher_frames) as frames, h5py.File(layout.teacher_sentences) as sentences:
        queries = np.concatenate([sentences[caption][()].reshape(1, -1) for caption in dataset.caption_ids])
        videos = [video_moments(frames[video][()], TFPRVRSettings(**settings)) for video in dataset.video_ids]
    return np.stack([moment_scores(queries, video.vectors).max(axis=1) for video in videos], axis=1), dataset


def world(seed=0):
    """Videos of shots; each sentence is a shot, in the same space."""
    rng = np.random.default_rng(seed)
    frames, words, annotations = {}, {}, []
    for video in ("a", "b", "c", "d"):
        shots = rng.standard_normal((4, 6))
        frames[video] = np.repeat(shots, 25, axis=0) + 0.05 * rng.standard_normal((100, 6))
        for number, shot in enumerate(shots):
            caption = f"{video}#{number}"
            words[caption] = shot[None]
            moments = ((number * 12.5, (number + 1) * 12.5),)
            annotations.append(Annotation(video, caption, "a shot", moments, 50.0))
    return frames, words, annotations


def test_metrics_are_those_of_the_best_moments(root):
    scores, dataset = scores_by_hand(root)
    report = evaluate("tf_prvr", data="tvr", root=root)
    assert report.title == "tf_prvr on tvr, test"
    expected = retrieval_metrics(scores, dataset.video_index)
    assert {name: report.figures[name] for name in expected} == pytest.approx(expected)
    assert any(name.startswith("M/V") for name in report.rows)


def test_settings_can_be_changed_and_are_named(root):
    scores, dataset = scores_by_hand(root, beta=0.2, wavelet="haar")
    report = evaluate("tf_prvr", data="tvr", root=root, changed={"model.beta": 0.2, "model.wavelet": "haar"})
    assert report.title == "tf_prvr on tvr, test, model.beta=0.2, model.wavelet=haar"
    assert report.figures["mAP"] == pytest.approx(retrieval_metrics(scores, dataset.video_index)["mAP"])


def test_a_data_set_in_memory_is_evaluated():
    frames, words, annotations = world()
    report = evaluate("tf_prvr", dataset_of_arrays(frames, words, annotations))
    assert report.figures["R@1"] > 80, "chance is 25"
    assert report.events["R@1 IoU=0.5"] > 60, report.events
    assert "IoU" not in "".join(evaluate("tf_prvr", dataset_of_arrays(frames, words, annotations), moments=False).rows)


def test_moments_equal_those_of_a_library():
    frames, words, annotations = world(seed=3)
    dataset = dataset_of_arrays(frames, words, annotations)
    videos = [video_moments(dataset.features.frames.table(row)) for row in range(4)]
    queries = np.concatenate([words[caption] for caption in dataset.caption_ids])
    curves = [np.repeat(moment_scores(queries, video.vectors), np.diff(video.edges), axis=1) for video in videos]
    others = np.concatenate(curves, axis=1).mean(axis=1)
    middle_s, met = (np.arange(100) + 0.5) / 2, []
    for query, annotation in enumerate(annotations):
        best = int(np.argmax([curve[query].max() for curve in curves]))
        (moment,) = clearest_moments(
            curves[best][query],
            middle_s,
            50.0,
            videos[best].candidates,
            others=others[query],
            settings=SpanSettings(),
            limit=1,
        )
        overlap = iou(np.array([moment.start_s, moment.end_s]), np.array(annotation.moments[0]))
        met.append(dataset.video_ids[best] == annotation.video and overlap >= 0.5)
    assert 0 < sum(met) < len(met)
    assert evaluate("tf_prvr", dataset).events["R@1 IoU=0.5"] == pytest.approx(100 * np.mean(met))


def test_a_sentence_is_the_mean_of_its_words_or_the_last_word():
    frames, words, annotations = world()
    rng, several = np.random.default_rng(1), {}
    for caption, rows in words.items():
        aside = rng.standard_normal((1, 6))
        aside -= (aside @ rows.T) / (rows @ rows.T) * rows
        several[caption] = np.concatenate([rows + 3 * aside, rows - 3 * aside])  # of equal length
    dataset = dataset_of_arrays(frames, several, annotations)
    expected = evaluate("tf_prvr", dataset_of_arrays(frames, words, annotations), moments=False)
    assert evaluate("tf_prvr", dataset, moments=False).rank.tolist() == expected.rank.tolist()
    last_words = dataset_of_arrays(frames, {caption: rows[-1:] for caption, rows in several.items()}, annotations)
    last = evaluate("tf_prvr", dataset, moments=False, changed={"model.sentence": "last"})
    assert last.rank.tolist() == evaluate("tf_prvr", last_words, moments=False).rank.tolist() != expected.rank.tolist()


def test_a_sentence_of_zeros_is_refused():
    frames, words, annotations = world()
    words["b#2"] = np.zeros((1, 6))
    with refused(FeatureError, "'b#2'"):
        evaluate("tf_prvr", dataset_of_arrays(frames, words, annotations))


def test_all_frames_are_read(root):
    dataset, layout = load_shared_space("tvr", root, "test"), Layout.at(root, "tvr")
    with h5py.File(layout.teacher_frames) as frames:
        counts = [len(frames[video]) for video in dataset.video_ids]
    assert dataset.features.frames.lengths.tolist() == counts
    assert dataset.query_dim == dataset.video_dim == SMALL.teacher_dim


def test_features_of_two_spaces_are_refused(data_root):
    with refused(FeatureError, "10", "12"):
        evaluate("tf_prvr", data="tvr", root=data_root)
    frames, words, annotations = world()
    wide = {caption: np.pad(rows, ((0, 0), (0, 1))) for caption, rows in words.items()}
    with refused(FeatureError, "7", "6"):
        evaluate("tf_prvr", dataset_of_arrays(frames, wide, annotations, PackSettings()))


def test_a_frame_of_zeros_is_refused():
    frames, words, annotations = world()
    frames["c"][7] = 0
    with refused(FeatureError, "'c'", "frame 7"):
        evaluate("tf_prvr", dataset_of_arrays(frames, words, annotations))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            ("(data)", "(root)"),
        ),
        ({"changed": {"model.gamma": 1}}, ("'gamma'",)),
        ({"changed": {"train.epochs": 1}}, ("'train.epochs'", "tf_prvr")),
        ({"changed": {"model.beta": 1.0}}, ("1.0",)),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with refused(ConfigError, *message):
        evaluate("tf_prvr", **options)
