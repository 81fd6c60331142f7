"""TF-PRVR in a library: computed from stored frames, searched exactly, changed to and back without decoding."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import untrimmed
from tests.refusals import refused
from tests.search.conftest import CLIPS
from tests.toy import WideWordEncoder, stored_video, write_clip
from untrimmed.errors import CheckpointError, FeatureError, IndexMismatchError
from untrimmed.moments.tf_prvr import moment_scores, video_moments
from untrimmed.search.corpora.engine import load_search_model
from untrimmed.search.corpora.tf_prvr import TFPRVRModel
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import FrameFeatures, TextFeatures

SENTENCES = ("something green", "a red and yellow sun", "blue")


def scores_by_hand(lib, text):
    index, query = VideoIndex(lib.folder), WideWordEncoder()._text(text).sentence[None]
    return {
        record.path: moment_scores(query, video_moments(index.get(record.video_id).features.vectors).vectors).max()
        for record in index.scan()
    }


def search_results(lib, text="something green"):
    return [(hit.video.name, hit.score, hit.moments) for hit in lib.search(text)]


def long_video(rng, query, span_s, *, duration_s=300.0, fps=2.0, dim=8):
    """Return shots of some seconds; those inside `span_s` are closer to the query."""
    times_s = np.arange(0, duration_s, 1 / fps)
    cuts = np.unique(np.concatenate([rng.choice(times_s[1:], 20, replace=False), span_s]))
    shot = np.searchsorted(cuts, times_s, side="right")
    vectors = rng.standard_normal((len(cuts) + 1, dim))[shot] + 0.1 * rng.standard_normal((len(times_s), dim))
    vectors -= (vectors @ query)[:, None] * query
    vectors[(times_s >= span_s[0]) & (times_s < span_s[1])] += 3 * query
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return FrameFeatures(vectors.astype(np.float16), times_s, duration_s)


def test_search_gives_the_score_of_the_best_moment(lib):
    lib.use("tf_prvr")
    assert lib.settings().model == "tf_prvr"
    for text in SENTENCES:
        expected, hits = scores_by_hand(lib, text), lib.search(text)
        assert {str(hit.video): hit.score for hit in hits} == pytest.approx(expected, abs=1e-3)  # stored in float16
        assert [str(hit.video) for hit in hits] == sorted(expected, key=expected.__getitem__, reverse=True)
        assert len({round(score, 3) for score in expected.values()}) == len(CLIPS), "no ties"


def test_moments_are_inside_the_video_and_disjoint_or_nested(lib):
    lib.use("tf_prvr")
    for hit in lib.search("blue", moments=4):
        assert 1 <= len(hit.moments) <= 4
        assert all(0 <= moment.start_s < moment.end_s <= hit.duration_s + 1e-6 for moment in hit.moments)
        for first, second in combinations(hit.moments, 2):
            are_disjoint = first.end_s <= second.start_s or second.end_s <= first.start_s
            assert are_disjoint or first.start_s <= second.start_s < second.end_s <= first.end_s


@pytest.mark.parametrize("span_s", [(40.0, 60.0), (0.0, 30.0), (100.0, 108.0), (270.0, 300.0)])
def test_the_matching_span_is_found_and_has_high_relevance(span_s):
    rng, query = np.random.default_rng(0), np.eye(8)[0]
    videos = [long_video(rng, query, (0.0, 0.0)) for _ in range(3)]
    videos.append(long_video(rng, query, span_s))
    corpus = TFPRVRModel().corpus().update(stored_video(str(i), video) for i, video in enumerate(videos))
    prepared = corpus.prepare(TextFeatures("it", 5 * query.astype(np.float32), np.ones((1, 4), np.float32), ("it",)))
    assert prepared.rank(limit=1)[0].video_id == "3"
    best = prepared.moments("3", limit=1)[0]
    overlap = min(best.end_s, span_s[1]) - max(best.start_s, span_s[0])
    assert overlap / (max(best.end_s, span_s[1]) - min(best.start_s, span_s[0])) > 0.6
    times_s, curve = prepared.relevance("3")
    inside = (times_s >= span_s[0]) & (times_s < span_s[1])
    assert np.median(curve[inside]) > np.median(curve[~inside]) + 0.1


def test_the_highest_relevance_is_the_score(lib, videos):
    lib.use("tf_prvr")
    times_s, curve = lib.relevance("blue", videos / "sea # 1.mp4")
    assert len(times_s) == len(curve) > 1
    assert (np.diff(times_s) > 0).all()
    assert curve.max() == pytest.approx(next(h.score for h in lib.search("blue") if h.video.name == "sea # 1.mp4"))


@pytest.mark.parametrize("back", [None, "frames", "none"])
def test_the_library_can_return_to_frames_without_decoding_or_encoding(back, lib, encoder):
    previous, encoded = search_results(lib), encoder.num_encoded
    lib.use("tf_prvr")
    assert search_results(lib) != previous
    lib.use(back)
    assert search_results(lib) == previous
    assert encoder.num_encoded == encoded
    assert {VideoIndex(lib.folder).get(record.video_id).encoded for record in lib.videos()} == {b""}


def test_a_video_indexed_later_gets_moments_too(lib, tmp_path):
    lib.use("tf_prvr")
    write_clip(tmp_path / "late.mp4", ["green", "blue", "red"])
    lib.index(tmp_path / "late.mp4")
    assert len(lib.search("green")) == len(CLIPS) + 1
    assert search_results(lib) == search_results(untrimmed.open(lib.folder))
    expected = scores_by_hand(lib, "green")
    assert {str(hit.video): hit.score for hit in lib.search("green")} == pytest.approx(expected, abs=1e-3)
    assert {record.model for record in lib.videos()} == {"tf_prvr"}


def test_an_interrupted_change_of_model_continues_where_it_stopped(lib):
    previous, steps = search_results(lib), []

    def interrupt(done, total):
        steps.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lib.use("tf_prvr", progress=interrupt)
    assert search_results(lib) == previous
    lib.use("tf_prvr", progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 4), (2, 4), (3, 4), (1, 1)]


def test_a_zero_frame_is_named_with_its_video(lib):
    with VideoIndex(lib.folder) as index:
        video = index.get(next(iter(index.scan())).video_id)
        vectors = video.features.vectors.copy()
        vectors[1] = 0
        index.put(replace(video, features=replace(video.features, vectors=vectors)))
    with refused(FeatureError, Path(video.record.path).name, "frame 1"):
        lib.use("tf_prvr")


def test_a_picture_is_compared_with_frames(lib):
    picture = np.full((32, 32, 3), (0, 0, 255), dtype=np.uint8)
    previous = lib.similar(picture)
    lib.use("tf_prvr")
    assert lib.similar(picture) == previous


def test_a_folder_with_the_name_of_the_model_is_a_folder(lib, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tf_prvr").mkdir()
    with refused(CheckpointError, "tf_prvr"):
        lib.use("tf_prvr")


def test_an_encoding_of_another_model_is_refused():
    with refused(IndexMismatchError, "tf_prvr", "untrimmed index"):
        TFPRVRModel().restore(b"something else")


def test_the_model_of_the_library_needs_no_folder(lib):
    lib.use("tf_prvr")
    settings = lib.settings()
    model = load_search_model(lib.folder, settings.model, settings.model_folder)
    assert (model.identity, model.folder) == ("tf_prvr", None)
