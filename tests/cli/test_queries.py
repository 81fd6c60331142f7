"""Search options: queries with more parts than a sentence."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from untrimmed.search.query import answer as asking_module
from untrimmed.search.query.confidence import Calibration, Confidence


@pytest.fixture
def indexed(run, videos):
    assert run("index", videos)[0] == 0
    return run


def search(run, *words):
    code, out, err = run("search", *words, "--json")
    assert code in (0, 1), err
    return json.loads(out)


def test_a_sentence_needs_no_quotes(indexed):
    quoted = search(indexed, "red white", "-k", "1")
    assert quoted["text"] == "red white"
    assert search(indexed, "red", "white", "-k", "1")["hits"] == quoted["hits"]
    assert search(indexed, "red", "-k", "1", "white")["text"] == "red white"


def test_then_prints_both_moments(indexed):
    code, out, err = indexed("search", "red", "--then", "green", "-k", "1", "--moments", "1")
    assert (code, err) == (0, "")
    line = out.strip()
    assert line.endswith("flag.mp4")
    assert "then" in line
    document = search(indexed, "red", "--then", "green", "--within-s", "5")
    assert (document["text"], document["then"]) == ("red", "green")
    first = document["hits"][0]
    assert first["moments"][0]["end_s"] <= first["then"][0]["start_s"]


@pytest.mark.parametrize("then", [(), ("--then", "green")])
def test_all_moments_are_in_time_order_and_the_best_one_has_the_number_of_the_hit(indexed, then, tmp_path):
    best = search(indexed, "red", *then, "-k", "1", "--moments", "1")["hits"][0]
    document = search(indexed, "red", *then, "-k", "1", "--moments", "all")["hits"][0]
    starts = [moment["start_s"] for moment in document["moments"]]
    assert starts == sorted(starts)
    assert (document["start_s"], document["peak_s"]) == (best["start_s"], best["peak_s"])
    assert best["moments"][0] in document["moments"]
    assert len(document.get("then", starts)) == len(starts)


def test_a_number_of_moments_is_a_number_or_all(indexed):
    assert "--moments" in indexed("search", "red", "--moments", "some")[2]
    code, _, err = indexed("search", "red", "--moments", "0")
    assert code == 2
    assert "'all'" in err


def test_not_and_weights_change_the_first_hit(indexed):
    assert search(indexed, "white")["hits"][0]["score"] > 0.8
    document = search(indexed, "white", "--not", "white", "--weight", "not=3")
    assert document["without"] == ["white"]
    assert document["hits"][0]["score"] < 0.8


def test_a_sentence_may_be_excluded_from_whole_videos(indexed):
    shot, video = (search(indexed, "white", "--not", "green", *flag) for flag in ((), ("--nowhere",)))
    scores = [{hit["video"]: hit["score"] for hit in document["hits"]} for document in (shot, video)]
    assert all(score <= scores[0][name] for name, score in scores[1].items())
    code, _, err = indexed("search", "white", "--nowhere")
    assert code == 2
    assert "--not" in err


def test_an_example_may_be_a_hit_a_place_an_id_or_a_picture(indexed, videos, tmp_path):
    sea = search(indexed, "blue")["hits"][0]
    for place in ("1", "1.1", f"{sea['video']}@1", f"{sea['video_id']}@0:00.5-2"):
        search(indexed, "blue")  # 1 is the first hit of this search
        document = search(indexed, "--like", place, "-k", "1")
        assert document["hits"][0]["video_id"] == sea["video_id"]
        assert document["like"] == [place]
    picture = tmp_path / "blue.png"
    Image.fromarray(np.full((40, 40, 3), (0, 0, 255), np.uint8)).save(picture)
    assert search(indexed, "--image", picture, "-k", "1")["hits"][0]["video_id"] == sea["video_id"]
    away = search(indexed, "white", "--unlike", f"{videos / 'flag.mp4'}@3", "--weight", "unlike=5")
    assert away["hits"][0]["score"] < search(indexed, "white")["hits"][0]["score"]


def test_similar_takes_a_hit_of_the_last_search(indexed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    sea = search(indexed, "blue")["hits"][0]
    for number in ("1", "1.1"):
        search(indexed, "blue")
        code, out, err = indexed("similar", number, "-k", "1", "--json")
        assert code == 0, err
        assert (
            json.loads(out)["hits"]
            == search(indexed, "--like", f"{sea['video_id']}@{sea['start_s']}-{sea['end_s']}", "-k", "1")["hits"]
        )
    code, _, err = indexed("similar", "9")
    assert (code, "9" in err) == (2, True)
    Image.fromarray(np.full((40, 40, 3), 255, np.uint8)).save(tmp_path / "9", "PNG")
    code, out, _ = indexed("similar", "9", "-k", "1", "--json")
    assert json.loads(out)["hits"][0]["video"].endswith("flag.mp4")


def test_filters_exclude_videos(indexed, videos):
    names = {os.path.basename(hit["video"]) for hit in search(indexed, "red", "--max-duration", "0:05")["hits"]}
    assert names == {"sea [1].mp4"}
    assert len(search(indexed, "red", "--max-size", "1G", "--min-height", "10", "--since", "2001-01-01")["hits"]) == 2
    code, out, err = indexed("search", "red", "--until", "2001-01-01")
    assert (code, out) == (1, "")
    assert "2001-01-01" in err


def test_within_s_requires_then(indexed):
    code, _, err = indexed("search", "red", "--within-s", "3")
    assert (code, "--then" in err) == (2, True)


def test_flat_and_fold(indexed):
    flat = search(indexed, "white", "--flat", "--moments", "5", "-k", "9")["hits"]
    assert all(len(hit["moments"]) == 1 for hit in flat)
    folded = search(indexed, "white", "--flat", "--fold", "0.9", "--moments", "5", "-k", "9")["hits"]
    assert len(folded) <= len(flat)


def test_confidences_are_printed_and_low_ones_hidden(indexed, monkeypatch):
    assert search(indexed, "blue")["hits"][0]["confidence"] is None
    code, _, err = indexed("search", "blue", "--min-confidence", "0.5")
    assert (code, "'toy'" in err) == (2, True)
    chances = Confidence(Calibration(20.0, 0.0), background_score=0.9)
    monkeypatch.setattr(asking_module, "_confidence", lambda *_: chances)
    first, second = search(indexed, "blue")["hits"]
    assert first["confidence"] == pytest.approx(chances.of(first["score"]), abs=1e-3)
    assert search(indexed, "blue", "--min-confidence", "0.5")["hits"] == [first]
    code, out, err = indexed("search", "blue")
    assert f"{first['confidence']:.0%}" in out
    assert err == ""
    code, out, err = indexed("search", "blue", "--in", second["video"])
    assert (code, bool(err)) == (0, True)
    code, out, err = indexed("search", "blue", "--in", second["video"], "--min-confidence", "0.5")
    assert (code, out, len(err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(("confidence", "is_doubtful"), [(0.494, True), (0.496, False), (0.5, False)])
def test_only_a_confidence_that_is_printed_below_half_is_doubtful(indexed, monkeypatch, confidence, is_doubtful):
    class Fixed:
        def of(self, score):
            return confidence

    monkeypatch.setattr(asking_module, "_confidence", lambda *_: Fixed())
    code, out, err = indexed("search", "blue")
    assert (code, f"{confidence:.0%}" in out, bool(err)) == (0, True, is_doubtful)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), ""),
        (("--unlike", "a@1"), ""),
        (("red", "--weight", "no=1"), "'no'"),
        (("red", "--weight", "not=x"), "'x'"),
        (("red", "--since", "yesterday"), "'yesterday'"),
        (("red", "--min-size", "big"), "'big'"),
        (("red", "--like", "1-2"), "1-2"),
        (("red", "--image", "nowhere.png"), "nowhere.png"),
    ],
)
def test_invalid_values_are_named_in_one_line(indexed, words, named):
    search(indexed, "red")
    code, _, err = indexed("search", *words)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
