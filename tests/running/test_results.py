"""Event-level recall of every method on a split."""

import dataclasses

import numpy as np
import pytest
import torch

from untrimmed.data.dataset import load_dataset
from untrimmed.errors import FeatureError
from untrimmed.models.registry import create_model, list_models
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.ranked_moments import RankedMoments
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.opened import OpenedModel
from untrimmed.running.results import why_no_events

SIZES = {"query_dim": 12, "video_dim": 10, "dim": 8, "max_frames": 20}


def opened(model, split, videos=5, queries=7):
    train = TrainSettings(eval_video_batch=videos, eval_query_batch=queries)
    return OpenedModel(model=model, dataset=split, train=train)


@pytest.fixture
def split(data_root, tmp_path):
    return load_dataset("tvr", data_root, "test", max_frames=20, cache_dir=tmp_path)


@pytest.mark.parametrize("method", list_models())
def test_every_method_has_an_event_recall(method, split):
    torch.manual_seed(0)
    result = opened(create_model(method, **SIZES), split).event_recall()
    assert set(result) == {f"R@{k} IoU={m}" for k in (1, 10, 100) for m in (0.3, 0.5, 0.7)}
    assert all(0 <= value <= 100 for value in result.values())
    assert result["R@1 IoU=0.3"] <= result["R@100 IoU=0.3"]
    assert result["R@100 IoU=0.7"] <= result["R@100 IoU=0.3"]


def test_batches_of_videos_are_merged_into_one_ranking(split):
    torch.manual_seed(0)
    model = create_model("jsg", **SIZES, init_std=0.3)
    settings = LocateSettings(before_suppression=30, limit=12)
    in_parts = opened(model, split).locate(settings)
    at_once = opened(model, split, 100, 100).locate(settings)
    assert np.allclose(in_parts.score, at_once.score, atol=1e-5)
    assert len(in_parts.score) == len(split.caption_ids)
    assert model.training


@pytest.mark.parametrize("method", ["ms_sl", "jsg", "gmmformer"])
def test_the_best_moment_in_the_right_video_is_the_first_of_that_video_in_the_corpus(method, split):
    torch.manual_seed(0)
    model = opened(create_model(method, **SIZES, init_std=0.3), split, videos=5)
    every = LocateSettings(before_suppression=10**6, limit=10**6, max_overlap=1.0)
    ranked = model.locate(every)
    moments = model.moments()
    for row, video in enumerate(split.video_index):
        own = np.flatnonzero(ranked.video_index[row] == video)
        best = own[ranked.score[row, own] > ranked.score[row, own[0]] - 1e-5]  # one, unless windows tie
        assert np.abs(ranked.span_s[row, best] - moments.span_s[row]).max(axis=1).min() < 1e-3
    report = model.report()
    assert report.moments == moments.in_right_video(split)
    assert report.scores is None
    assert model.report(moments=False).moments == {}


def test_two_of_several_annotators_must_match_but_only_one_of_several_moments(split, monkeypatch):
    spans = ((0.0, 1.0), (5.0, 6.0), (5.0, 6.0), (7.0, 8.0))
    annotated = [dataclasses.replace(annotation, moments=spans) for annotation in split.annotations]
    right = split.video_index[:, None]
    for span, agreed in (((0.0, 1.0), 0.0), ((5.0, 6.0), 100.0)):
        span_s = np.broadcast_to(np.float32(span), (*right.shape, 2))
        located = RankedMoments(right, span_s, np.ones(right.shape, np.float32))
        monkeypatch.setattr(OpenedModel, "locate", lambda *_, located=located: located)
        for several, expected in ((True, agreed), (False, 100.0)):
            labelled = dataclasses.replace(split, annotations=tuple(annotated), several_annotators=several)
            result = opened(create_model("ms_sl", **SIZES), labelled).event_recall()
            assert result["R@1 IoU=0.7"] == expected


def test_a_split_without_durations_or_moments_is_refused(split):
    model = create_model("ms_sl", **SIZES)
    timeless = [dataclasses.replace(annotation, duration_s=None) for annotation in split.annotations]
    assert why_no_events(split) == ""
    with pytest.raises(FeatureError):
        opened(model, dataclasses.replace(split, annotations=tuple(timeless))).locate()
    momentless = [dataclasses.replace(annotation, moments=()) for annotation in split.annotations]
    with pytest.raises(FeatureError):
        opened(model, dataclasses.replace(split, annotations=tuple(momentless))).event_recall()
