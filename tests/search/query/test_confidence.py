"""Confidence: computed from a background, in the library and in plain numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tests.toy import COLOURS, ToyEncoder
from untrimmed.encoders.registry import load_encoder
from untrimmed.errors import ConfigError
from untrimmed.search.query import answer as answer_module
from untrimmed.search.query.confidence import (
    Background,
    Calibration,
    Confidence,
    background_of,
    mean_of_best_fifth,
)
from untrimmed.search.query.query import Place, Query

CALIBRATION = Calibration(9.0, -1.0)


@pytest.fixture
def background(monkeypatch):
    """Six clips of 8 s for the toy encoder: five of one colour each, the last one blue and then red."""
    colours = [*COLOURS, "blue red"]
    clips = [np.stack([vector_of(c.split()[i * len(c.split()) // 8]) for i in range(8)]) for c in colours]
    calibrated = Background.of(clips, 1.0, CALIBRATION)
    monkeypatch.setattr(answer_module, "background_of", {"toy:1": calibrated}.get)
    return calibrated


def vector_of(colour):
    return ToyEncoder().encode_frames(np.full((1, 4, 4, 3), np.array(COLOURS[colour]) * 255, np.uint8))[0]


@given(st.floats(-1, 1), st.floats(-0.5, 0.5), st.floats(0.01, 0.99))
def test_confidence_is_logistic_and_least_score_is_its_inverse(score, usual, chance):
    confidence = Confidence(CALIBRATION, usual)
    assert confidence.of(score) == pytest.approx(1 / (1 + math.exp(-(9.0 * (score - usual) - 1.0))))
    assert confidence.of(score) < confidence.of(score + 0.01)
    assert confidence.of(confidence.least_score(chance)) == pytest.approx(chance)


@given(st.lists(st.floats(-1, 1), max_size=30))
def test_the_best_fifth_contains_at_least_one_score(scores):
    best = sorted(scores, reverse=True)[: math.ceil(len(scores) / 5)]
    assert mean_of_best_fifth(np.array(scores)) == pytest.approx(sum(best) / len(best) if best else -math.inf)


def test_confidence_compares_a_score_with_those_of_the_background(background, lib):
    text = ToyEncoder()._text("blue")
    scores = [video.score for video in background.corpus.prepare(text).rank(limit=6)]
    assert len(scores) == 6
    hits = lib.search("blue", limit=4)
    usual = np.mean(sorted(scores)[-2:])
    for hit in hits:
        assert hit.confidence == pytest.approx(1 / (1 + math.exp(-(9.0 * (hit.score - usual) - 1.0))), abs=1e-4)
    assert [hit.confidence for hit in hits] == sorted((hit.confidence for hit in hits), reverse=True)


def test_min_confidence_can_hide_all_hits(background, lib):
    hits = lib.search("blue", limit=4)
    middle = (hits[0].confidence + hits[1].confidence) / 2
    assert lib.search("blue", limit=4, min_confidence=middle) == hits[:1]
    assert lib.search("blue", limit=4, min_confidence=0.0) == hits
    assert lib.search("blue", min_confidence=1.0) == []
    assert lib.search("blue", min_confidence=middle, min_score=1.5) == []
    flat = lib.search(Query("blue", group_by="moment"), limit=9, min_confidence=middle)
    assert flat
    assert all(hit.confidence >= middle for hit in flat)


def test_pairs_are_compared_with_pairs_of_the_background(background, lib):
    in_background = lib.search(Query("blue", then="red"), limit=1)[0]
    absent = lib.search(Query("green", then="yellow"), limit=1)[0]
    # The background has a clip with blue before red, which matches the first query perfectly.
    assert in_background.confidence < 0.3
    assert absent.confidence != in_background.confidence


def test_pairs_closer_than_background_frames_have_no_confidence(background, lib):
    near = Query("red", then="white", within_s=0.6)  # the clips have one frame per second, the library has two
    hits = lib.search(near)
    assert hits
    assert {hit.confidence for hit in hits} == {None}
    with refused(ConfigError, "0.6"):
        lib.search(near, min_confidence=0.5)


@pytest.mark.parametrize("score", [-81.0, -1e9, 1e9])
def test_extreme_scores_have_a_confidence_of_zero_or_one(score):
    assert Confidence(CALIBRATION, 0.2).of(score) == pytest.approx(float(score > 0))


def test_queries_and_models_without_measured_confidence_have_none(background, lib):
    place = Place(lib.search("blue")[0].video, 0.5)
    assert lib.search(Query("blue", like=(place,)))[0].confidence is None
    with pytest.raises(ConfigError):
        lib.search(Query(like=(place,)), min_confidence=0.5)
    lib.use("tf_prvr")
    assert lib.search("blue")[0].confidence is None
    with refused(ConfigError, "tf_prvr"):
        lib.search("blue", min_confidence=0.5)


def test_an_encoder_without_a_background_has_no_confidence(lib):
    assert lib.search("blue")[0].confidence is None
    with refused(ConfigError, "'toy'"):
        lib.search("blue", min_confidence=0.5)
    with refused(ConfigError, "0", "1"):
        lib.search("blue", min_confidence=50)


@pytest.mark.parametrize("identity", ["toy:1", "builtin-2:0000", "../builtin-2:0000", "", "hub-org/name:1"])
def test_an_encoder_with_other_weights_has_no_background(identity):
    assert background_of(identity) is None


def test_the_packaged_background_fits_the_builtin_encoder():
    background = background_of(load_encoder("builtin").encoder.identity)
    assert background is not None, "run benchmarks/confidence.py FOLDER --write for the current encoder"
    assert len(background.corpus) == len(background.durations_s) >= 10
    assert background.calibration.slope > 0
