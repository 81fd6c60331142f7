import dataclasses

import numpy as np
import pytest
import torch

from untrimmed.data.dataset import load_dataset
from untrimmed.errors import FeatureError
from untrimmed.models.registry import create_model
from untrimmed.presets.settings import TrainSettings
from untrimmed.running import opened as opened_module
from untrimmed.running.batches import (
    caption_training_batch,
    prefetched,
    query_batch,
    query_batches,
    training_batch,
    video_batch,
)
from untrimmed.running.encoding import Encoding
from untrimmed.running.opened import OpenedModel
from untrimmed.scores import max_sim

SIZES = {"query_dim": 12, "video_dim": 10, "dim": 8, "max_frames": 20, "init_std": 0.3}


@pytest.fixture(scope="module")
def dataset(data_root):
    return load_dataset("tvr", data_root, "test", max_frames=20)


def model_of(method):
    torch.manual_seed(0)
    return create_model(method, **SIZES)


def opened(model, dataset, videos, queries):
    train = TrainSettings(eval_video_batch=videos, eval_query_batch=queries)
    return OpenedModel(model=model, dataset=dataset, train=train)


@pytest.mark.parametrize("method", ["gmmformer_v2", "ms_sl"])
@pytest.mark.parametrize("at_once", [1, 2**24])
def test_scores_in_batches_equal_scores_at_once(method, at_once, dataset, monkeypatch):
    monkeypatch.setattr(opened_module, "SIMILARITIES_AT_A_TIME", at_once)
    model = model_of(method)
    scores = opened(model, dataset, 3, 4).score()
    assert model.training
    model.eval()
    with torch.no_grad():
        queries = model.encode_queries(query_batch(dataset, np.arange(len(dataset.caption_ids))))
        reference = model.score(queries, model.encode_videos(video_batch(dataset, np.arange(len(dataset.video_ids)))))
    assert np.allclose(scores.fused, reference.fused.numpy(), atol=2e-6)
    for name, score in reference.branches.items():
        assert np.allclose(scores.branches[name], score.value.numpy(), atol=2e-6)


def test_videos_are_encoded_in_file_order_as_gmmformer_needs(dataset):
    model = model_of("gmmformer").eval()
    scores = opened(model, dataset, 2, 50).score()
    with torch.no_grad():
        queries = model.encode_queries(query_batch(dataset, np.arange(len(dataset.caption_ids))))
        parts = [model.score(queries, model.encode_videos(video_batch(dataset, np.array([i, i + 1])))) for i in (0, 2)]
    expected = torch.cat([part.fused for part in parts], dim=1).numpy()
    assert np.allclose(scores.fused[:, :4], expected, atol=2e-6)


def test_a_failing_model_returns_to_its_mode(dataset, monkeypatch):
    model = model_of("ms_sl")

    def fail(*_):
        assert not model.training
        raise FeatureError("unreadable")

    monkeypatch.setattr(model, "score", fail)
    monkeypatch.setattr(model, "rank_moments", fail)
    for run in (OpenedModel.score, OpenedModel.locate):
        with pytest.raises(FeatureError, match="unreadable"):
            run(OpenedModel(model=model, dataset=dataset))
        assert model.training
        assert torch.is_grad_enabled()


def test_captions_are_batched_by_length_or_in_the_released_order(dataset):
    lengths = dataset.features.words_packed.lengths
    by_length = np.concatenate(query_batches(dataset, 3))
    assert np.all(np.diff(lengths[by_length]) >= 0)
    released = query_batches(dataset, 3, "released")
    assert [sorted(rows) for rows in released] == [
        list(range(start, min(start + 3, len(lengths)))) for start in range(0, len(lengths), 3)
    ]
    assert all(np.all(np.diff(lengths[rows]) <= 0) for rows in released)
    assert any(list(rows) != sorted(rows) for rows in released)


def test_scores_do_not_depend_on_the_order_of_captions(dataset):
    plain = opened(model_of("gmmformer_v2"), dataset, 3, 3)
    released = dataclasses.replace(plain, order="released").score()
    np.testing.assert_allclose(released.fused, plain.score().fused, atol=2e-6)


def test_a_model_in_double_precision_is_scored_in_double_precision(dataset):
    plain = opened(model_of("ms_sl"), dataset, 3, 3)
    single = plain.score().fused

    def encode(encoder, rows):
        return encoder(rows.to("cpu", torch.float64))

    double = dataclasses.replace(plain, model=plain.model.double(), encode=encode).score().fused
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, atol=2e-6)


@pytest.mark.parametrize("method", ["gmmformer_v2", "gmmformer_v2+ral", "ms_sl"])
def test_a_split_is_scored_in_the_format_of_its_encoding(method, dataset, monkeypatch):
    tiles, seen = max_sim._best_rows_in_tiles, []
    monkeypatch.setattr(max_sim, "_best_rows_in_tiles", lambda *given: seen.append(given) or tiles(*given))
    model, cpu = model_of(method), torch.device("cpu")
    in_float32 = dataclasses.replace(opened(model, dataset, 3, 4), encode=Encoding(cpu))
    wide = in_float32.score()
    assert seen == []
    narrow = dataclasses.replace(in_float32, encode=Encoding(cpu, "bfloat16")).score()
    assert seen
    assert narrow.fused.dtype == np.float32
    np.testing.assert_allclose(narrow.fused, wide.fused, atol=0.05)
    np.testing.assert_array_equal(in_float32.score().fused, wide.fused)


def test_a_training_batch_contains_the_features_of_its_rows(dataset):
    batch = training_batch(dataset, np.array([2, 0]))
    lengths = batch.videos.frame_mask.sum(dim=1).tolist()
    assert lengths == sorted(lengths, reverse=True)
    rows = dataset.training_rows(np.array([2, 0]))
    for q, caption in enumerate(rows.captions):
        words = dataset.features.words_packed.table(int(caption))
        assert np.array_equal(batch.queries.words[q, : len(words)].numpy(), words)
        assert rows.videos[batch.video_index[q]] == dataset.video_index[caption]


def test_a_training_batch_has_the_annotations_of_its_rows(dataset):
    first = dataset.captions_of(2)[0]
    changes = {first: {"moments": ()}, **{row: {"duration_s": None} for row in dataset.captions_of(0)}}
    annotations = [dataclasses.replace(a, **changes.get(row, {})) for row, a in enumerate(dataset.annotations)]
    partial = dataclasses.replace(dataset, annotations=tuple(annotations))
    batch = training_batch(partial, np.array([2, 0])).to("cpu")
    assert set(batch.video_ids) == {dataset.video_ids[2], dataset.video_ids[0]}
    for q, caption_id in enumerate(batch.caption_ids):
        annotation = annotations[dataset.caption_ids.index(caption_id)]
        assert batch.video_ids[batch.video_index[q]] == annotation.video
        assert batch.moments[q] == annotation.moments
        assert batch.spans_s[q].tolist() == pytest.approx(annotation.main_moment or [np.nan] * 2, nan_ok=True)
    without = batch.caption_ids.index(annotations[first].caption_id)
    assert np.flatnonzero(batch.spans_s.isnan().any(dim=1)).tolist() == [without]
    known = partial.durations_s[[partial.video_ids.index(video) for video in batch.video_ids]]
    assert batch.durations_s.tolist() == pytest.approx(known, nan_ok=True)
    assert np.isnan(known).tolist() == [video == dataset.video_ids[0] for video in batch.video_ids]


def test_a_data_set_without_times_has_no_spans_in_its_batches(dataset):
    annotations = [dataclasses.replace(a, moments=(), duration_s=None) for a in dataset.annotations]
    batch = training_batch(dataclasses.replace(dataset, annotations=tuple(annotations)), np.array([0, 1]))
    assert batch.spans_s is None
    assert batch.durations_s is None
    assert set(batch.moments) == {()}


def test_a_batch_of_captions_has_one_copy_of_the_video_per_caption(dataset):
    twins = dataset.captions_of(1)[:2]
    captions = np.array([twins[0], dataset.captions_of(0)[0], twins[1], dataset.captions_of(3)[0]])
    batch = caption_training_batch(dataset, captions)
    assert batch.video_index.tolist() == [0, 1, 2, 3]
    frames, lengths = dataset.features.frames, dataset.features.frames.lengths
    order = sorted(captions, key=lambda caption: -lengths[dataset.video_index[caption]])  # stable, like the release
    assert batch.videos.frame_mask.sum(dim=1).tolist() == [lengths[dataset.video_index[c]] for c in order]
    for row, caption in enumerate(order):
        words = dataset.features.words_packed.table(int(caption))
        assert np.array_equal(batch.queries.words[row, : len(words)].numpy(), words)
        video = frames.table(int(dataset.video_index[caption]))
        assert np.array_equal(batch.videos.frames[row, : len(video)].numpy(), video)


def test_reading_ahead_keeps_the_order_and_raises_errors():
    assert list(prefetched(lambda rows: rows.sum(), [np.arange(n) for n in range(5)])) == [0, 0, 1, 3, 6]
    assert list(prefetched(len, [])) == []

    def fail(rows):
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        list(prefetched(fail, [np.arange(1)]))
