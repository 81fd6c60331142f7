"""A trained model in a library: it encodes stored frames, ranks by its own scores, and can be changed meanwhile."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

import untrimmed
from tests.refusals import refused
from tests.search.conftest import CLIPS
from tests.toy import WideWordEncoder
from untrimmed.batches import QueryBatch, VideoBatch
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.errors import CheckpointError, IndexMismatchError, UntrimmedError
from untrimmed.models.ral import RALQueries
from untrimmed.models.registry import create_model, list_models
from untrimmed.models.storage import load_model, save_model
from untrimmed.search.cache.block_cache import FOLDER
from untrimmed.search.corpora import trained as trained_module
from untrimmed.search.query.query import Query
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import TextFeatures

SENTENCES = ("something green", "a red and yellow sun", "blue")
WORD_DIM = WideWordEncoder.word_dim
COMPOSED = ["gmmformer_v2+ral", "ms_sl+matching+ral"]


def save_run(folder, method="gmmformer_v2", *, seed=0, query_dim=WORD_DIM, video_dim=4, dim=8):
    """Save a model of a few thousand weights, enough that the scores of videos differ."""
    torch.manual_seed(seed)
    model = create_model(
        method, query_dim=query_dim, video_dim=video_dim, dim=dim, num_heads=2, max_frames=12, max_words=3, init_std=0.3
    )
    save_model(model.eval(), folder)
    return folder


def scores_by_hand(lib, run, text):
    """Return the model's score of each stored video, in one batch, from encodings rounded to float16."""
    model, index = load_model(run), VideoIndex(lib.folder)
    c = model.config
    with torch.inference_mode():
        videos = []
        for record in index.scan():
            frames = index.get(record.video_id).features.vectors
            clips, rows = prepare_video(frames, num_clips=c.num_clips, max_frames=c.max_frames)
            mask = torch.ones(1, len(rows), dtype=torch.bool)
            batch = VideoBatch(clips=torch.tensor(clips)[None], frames=torch.tensor(rows)[None], frame_mask=mask)
            videos.append(model.encode_videos(batch).to("cpu", torch.float16).to("cpu", torch.float32))
        words = torch.tensor(prepare_words(WideWordEncoder()._text(text).words, max_words=c.max_words))[None]
        query = model.encode_queries(QueryBatch(words=words, mask=torch.ones(words.shape[:2], dtype=torch.bool)))
        fused = model.score(query, videos[0].cat(videos)).fused[0]
    return dict(zip((record.path for record in index.scan()), fused.tolist(), strict=True))


def search_results(lib, text="something green"):
    return [(hit.video.name, hit.score, hit.moments) for hit in lib.search(text)]


@pytest.mark.parametrize("method", [*list_models(), *COMPOSED])
def test_every_method_ranks_by_its_own_score(method, lib, tmp_path):
    run = save_run(tmp_path / "run", method)
    lib.use(run)
    for text in SENTENCES:
        expected = scores_by_hand(lib, run, text)
        hits = lib.search(text)
        assert {str(hit.video): hit.score for hit in hits} == pytest.approx(expected, abs=1e-6)
        assert [str(hit.video) for hit in hits] == sorted(expected, key=expected.__getitem__, reverse=True)
        assert len({round(score, 6) for score in expected.values()}) == len(CLIPS), "no ties"


@pytest.mark.parametrize("method", [*list_models(), *COMPOSED])
def test_moments_are_inside_the_video_do_not_overlap_and_are_ranked(method, lib, tmp_path):
    lib.use(save_run(tmp_path / "run", method))
    for hit in lib.search("blue", moments=4):
        assert 1 <= len(hit.moments) <= 4
        assert all(0 <= moment.start_s < moment.end_s <= hit.duration_s + 1e-6 for moment in hit.moments)
        assert all(first.end_s <= second.start_s for first, second in pairwise(sorted(hit.moments)))
        scores = [moment.score for moment in hit.moments]
        assert scores == sorted(scores, reverse=True)
        assert (hit.start_s, hit.end_s) == (hit.moments[0].start_s, hit.moments[0].end_s)


@pytest.mark.parametrize("method", list_models())
def test_relevance_covers_the_video_in_temporal_order(method, lib, videos, tmp_path):
    lib.use(save_run(tmp_path / "run", method))
    times_s, values = lib.relevance("blue", videos / "sea # 1.mp4")
    assert len(times_s) == len(values) > 1
    assert (np.diff(times_s) > 0).all()
    assert 0 < times_s[0] < times_s[-1] < 8.1
    assert (np.abs(values) <= 1 + 1e-5).all()


def test_nothing_is_decoded_or_encoded_again(lib, encoder, tmp_path):
    encoded = encoder.num_encoded
    lib.use(save_run(tmp_path / "run"))
    lib.search("green")
    assert encoder.num_encoded == encoded


def test_a_trained_model_reads_only_the_words_of_a_query(lib, encoder, tmp_path, monkeypatch):
    lib.use(save_run(tmp_path / "run"))
    previous = search_results(lib)
    real = encoder._text
    blank = np.zeros(4, np.float32)
    monkeypatch.setattr(encoder, "_text", lambda text: TextFeatures(text, blank, real(text).words, real(text).tokens))
    assert search_results(lib) == previous
    blue_words = real("blue").words
    monkeypatch.setattr(encoder, "_text", lambda text: TextFeatures(text, blank, blue_words, ("blue",)))
    assert search_results(lib) != previous


@pytest.mark.parametrize(
    "query", ["A red, red sun set", Query("A red, red sun set", without=("blue",))], ids=["one", "two"]
)
def test_hits_have_the_word_weights_of_the_model(lib, tmp_path, query):
    run = save_run(tmp_path / "run", "gmmformer_v2+ral")
    lib.use(run)
    hits = lib.search(query)
    rows = torch.tensor(prepare_words(WideWordEncoder()._text("A red, red sun set").words, max_words=3))[None]
    with torch.inference_mode():
        encoded = load_model(run).encode_queries(QueryBatch(words=rows, mask=torch.ones(1, 3, dtype=torch.bool)))
    read = RALQueries.of(encoded.attached["ral"]).word_weights[0].tolist()  # of three words
    expected = [*read, 0.0, 0.0]
    assert [item.word for item in hits.words] == ["A", "red,", "red", "sun", "set"]
    assert [item.weight for item in hits.words] == pytest.approx(expected, abs=1e-4)
    assert sum(expected) == pytest.approx(1)
    assert len(set(expected)) > 2
    assert not any("ambiguous" in line for line in hits.warnings), "the run has not recorded a usual value"


def test_models_without_word_weights_return_none(lib, tmp_path):
    assert lib.search("red").words == ()
    lib.use(save_run(tmp_path / "run", "gmmformer_v2"))
    assert lib.search("red").words == ()


@pytest.mark.parametrize(("usual", "is_ambiguous"), [(1e-6, True), (1e6, False), ("no number", False)])
def test_a_sentence_with_unusual_uncertainty_is_called_ambiguous(lib, tmp_path, usual, is_ambiguous):
    run = save_run(tmp_path / "run", "gmmformer_v2+ral")
    epochs = [{"SumR": 10.0, "query_uncertainty_p90": 1e3}, {"SumR": 20.0, "query_uncertainty_p90": usual}]
    (run / "metrics.jsonl").write_text("".join(json.dumps({"val": val}) + "\n" for val in epochs))
    lib.use(run)
    assert any("ambiguous" in line for line in lib.search("red").warnings) == is_ambiguous


def test_ranking_in_batches_equals_ranking_at_once(lib, tmp_path, monkeypatch):
    lib.use(save_run(tmp_path / "run"))
    complete = search_results(lib)
    monkeypatch.setattr(trained_module, "_VIDEOS_AT_A_TIME", 3)
    assert search_results(untrimmed.open(lib.folder)) == complete


def test_videos_indexed_later_are_also_encoded_by_the_model(encoder, videos, tmp_path):
    lib, run = untrimmed.open(tmp_path / "library"), save_run(tmp_path / "run")
    lib.index(videos / "flag.mp4")
    lib.use(run)
    copies = tmp_path / "more"
    shutil.copytree(videos, copies)
    lib.index(copies)  # flag.mp4 is a copy of a known file, the others are new
    assert len({record.model for record in lib.videos()}) == 1
    assert all(VideoIndex(lib.folder).get(record.video_id).encoded for record in lib.videos())
    expected = scores_by_hand(lib, run, "blue")
    assert len(expected) == 5
    assert {str(hit.video): hit.score for hit in lib.search("blue")} == pytest.approx(expected, abs=1e-6)


def test_the_library_can_return_to_training_free_search(lib, tmp_path):
    previous = search_results(lib)
    lib.use(save_run(tmp_path / "run"))
    assert search_results(lib) != previous
    lib.use(None)
    assert search_results(lib) == previous
    assert {VideoIndex(lib.folder).get(record.video_id).encoded for record in lib.videos()} == {b""}


@pytest.mark.parametrize("first_in_use", [False, True])
def test_an_interrupted_change_of_model_keeps_the_previous_one_and_can_continue(first_in_use, lib, tmp_path):
    first, second = save_run(tmp_path / "first"), save_run(tmp_path / "second", "ms_sl", seed=1)
    if first_in_use:
        lib.use(first)
    previous, settings = search_results(lib), lib.settings()
    steps = []

    def interrupt(done, total):
        steps.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lib.use(second, progress=interrupt)
    assert lib.settings() == settings
    assert search_results(lib) == previous
    assert search_results(untrimmed.open(lib.folder)) == previous
    lib.use(second, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 4), (2, 4), (3, 4), (1, 1)]
    expected = scores_by_hand(lib, second, "blue")
    assert {str(hit.video): hit.score for hit in lib.search("blue")} == pytest.approx(expected, abs=1e-6)


def test_an_interrupted_return_to_training_free_search_keeps_the_model(lib, tmp_path):
    lib.use(save_run(tmp_path / "run"))
    previous = search_results(lib)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lib.use(None, progress=interrupt)
    assert search_results(lib) == previous


def test_readers_use_the_previous_model_until_the_change_is_complete(lib, tmp_path):
    lib.use(save_run(tmp_path / "first"))
    opened_before = untrimmed.open(lib.folder)
    previous = search_results(opened_before)
    seen = []

    def read(done, total):
        seen.append(search_results(opened_before))
        seen.append(search_results(untrimmed.open(lib.folder)))

    lib.use(save_run(tmp_path / "second", seed=1), progress=read)
    assert seen == [previous] * 8
    assert search_results(opened_before) == search_results(lib) != previous


def test_using_the_same_model_again_encodes_nothing(lib, tmp_path):
    run = save_run(tmp_path / "run")
    lib.use(run)
    steps = []
    lib.use(run, progress=lambda *step: steps.append(step))
    assert steps == []


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"query_dim": 6}, ("6", "5")),
        ({"video_dim": 7}, ("7", "4")),
    ],
)
def test_a_model_of_other_widths_is_refused_and_changes_nothing(widths, message, lib, tmp_path):
    previous, settings = search_results(lib), lib.settings()
    with refused(IndexMismatchError, *message):
        lib.use(save_run(tmp_path / "run", **widths))
    assert lib.settings() == settings
    assert search_results(lib) == previous


def test_a_folder_without_a_model_is_refused(lib, tmp_path):
    with refused(CheckpointError, "nowhere", "`untrimmed train`"):
        lib.use(tmp_path / "nowhere")
    with pytest.raises(UntrimmedError):
        untrimmed.open(tmp_path / "empty").use(save_run(tmp_path / "run"))


def test_a_moved_model_is_refused_in_one_line_and_can_be_named_again(lib, videos, tmp_path):
    run = save_run(tmp_path / "run")
    lib.use(run)
    previous = search_results(lib)
    run.rename(tmp_path / "elsewhere")
    for action in (lambda lib: lib.search("green"), lambda lib: lib.index(videos)):
        with refused(CheckpointError, "model.safetensors") as caught:
            action(untrimmed.open(lib.folder))
        assert "\n" not in str(caught.value)
        assert "untrimmed index --model FOLDER" in str(caught.value)
        assert "untrimmed index --model none" in str(caught.value)
    steps = []
    lib.use(tmp_path / "elsewhere", progress=lambda *step: steps.append(step))
    assert steps == []
    assert search_results(untrimmed.open(lib.folder)) == previous


def test_a_run_that_was_trained_again_in_its_folder_is_noticed(lib, videos, tmp_path):
    run = save_run(tmp_path / "run")
    lib.use(run)
    save_run(run, seed=1)
    for action in (lambda lib: lib.search("green"), lambda lib: lib.index(videos)):
        with refused(IndexMismatchError, "untrimmed index --model", str(run)):
            action(untrimmed.open(lib.folder))
    lib.use(run)
    expected = scores_by_hand(lib, run, "blue")
    assert {str(hit.video): hit.score for hit in lib.search("blue")} == pytest.approx(expected, abs=1e-6)


def test_encodings_with_missing_tensors_are_refused_with_advice(lib, tmp_path):
    """The identity of a model covers its weights, but not settings that were changed by hand."""
    run = save_run(tmp_path / "run")
    lib.use(run)
    previous = search_results(lib)
    index = VideoIndex(lib.folder)
    for record in index.scan():
        video = index.get(record.video_id)
        tensors = load_tensors(video.encoded)
        del tensors["frames"]
        index.put(replace(video, encoded=save_tensors(tensors)))
    shutil.rmtree(lib.folder / FOLDER)
    with refused(IndexMismatchError, "untrimmed index --model"):
        untrimmed.open(lib.folder).search("blue")
    lib.use(None)
    lib.use(run)
    assert search_results(lib) == previous
