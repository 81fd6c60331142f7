"""Queries of several parts in libraries with a model, computed from the scores and curves of the model."""

import numpy as np
import pytest

import untrimmed
from tests.search.corpora.test_trained import save_run
from untrimmed.search.query.answer import _as_text
from untrimmed.search.query.find import span_vector
from untrimmed.search.query.query import Place, Query, Weights

METHODS = ["tf_prvr", "gmmformer_v2", "jsg", "ms_sl"]


@pytest.fixture(params=METHODS)
def searched(request, lib, tmp_path):
    """A library that uses one of the methods."""
    lib.use(request.param if request.param == "tf_prvr" else save_run(tmp_path / "run", request.param))
    lib.method = request.param
    return lib


def prepared(lib, what, *, by_frames=False):
    view = lib.engine.view()
    text = lib._ready_encoder(view.encoder).encode_texts([what])[0] if isinstance(what, str) else _as_text(what)
    return (view.frames() if by_frames else view.corpus()).prepare(text)


def scores(query):
    return {video.video_id: video.score for video in query.rank(limit=99)}


def curve(query, video_id):
    """Return times, and relevance shifted so that its maximum is the score of the video."""
    times_s, values = query.relevance(video_id)
    return times_s, values - values.max() + scores(query)[video_id]


def search_results(lib, query):
    return {hit.video_id: hit.score for hit in lib.search(query, limit=99)}


def test_pairs_follow_from_the_model_s_curves(searched):
    red, green = prepared(searched, "red"), prepared(searched, "green")
    expected = {}
    for video_id in scores(red):
        (times_s, first), (_, then) = curve(red, video_id), curve(green, video_id)
        pairs = [
            (2 * first[i] + then[j]) / 3
            for j in range(len(times_s))
            for i in range(j)
            if times_s[j] - times_s[i] <= 3.0 + 1e-9
        ]
        if pairs:
            expected[video_id] = max(pairs)
    query = Query("red", then="green", within_s=3.0, weights=Weights(text=2.0))
    assert search_results(searched, query) == pytest.approx(expected, abs=1e-5)
    for hit in searched.search(query, limit=99):
        assert all(a.end_s <= b.start_s for a, b in zip(hit.moments, hit.then, strict=True))


def test_an_exclusion_is_compared_with_the_median_video(searched):
    red, white = prepared(searched, "red"), prepared(searched, "white")
    usual = np.median(list(scores(white).values()))
    expected = {}
    for video_id in scores(red):
        times_s, excess = curve(white, video_id)
        excess = np.maximum(0, excess - usual)
        if (starts_s := white.shot_starts_s(video_id)) is not None:
            ends_s = [*starts_s[1:], np.inf]
            shots = [(times_s >= start) & (times_s < end) for start, end in zip(starts_s, ends_s, strict=True)]
            excess = np.max([np.where(shot, excess[shot].max(), 0.0) for shot in shots], axis=0)
        expected[video_id] = (curve(red, video_id)[1] - 2.0 * excess).max()
    assert search_results(searched, Query("red", without=("white",))) == pytest.approx(expected, abs=1e-5)


def test_examples_are_compared_with_frames_and_curves_are_averaged(searched):
    place = Place(searched.search("blue", limit=1)[0].video, 0.5, 2.0)
    view = searched.engine.view()
    features = view.index.get(view.records.at(place.video).video_id).features
    vector = span_vector(features, 0.5, 2.0)
    expected = scores(prepared(searched, vector, by_frames=True))
    assert search_results(searched, Query(like=(place,))) == pytest.approx(expected)
    if searched.method == "tf_prvr":
        return  # adds both to one vector, as for frames: tests/search/query/test_query.py
    text, like = prepared(searched, "red"), prepared(searched, vector, by_frames=True)
    of_text, of_like = (w / np.std(list(scores(q).values())) for q, w in ((text, 1.0), (like, 0.75)))
    expected = {}
    for video_id in scores(text):
        (times_s, by_text), (frames_s, by_like) = curve(text, video_id), curve(like, video_id)
        both = of_text * by_text + of_like * np.interp(times_s, frames_s, by_like)
        expected[video_id] = both.max() / (of_text + of_like)
    assert search_results(searched, Query("red", like=(place,))) == pytest.approx(expected, abs=1e-4)
    assert untrimmed.Query is Query
