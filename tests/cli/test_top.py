"""The command `untrimmed evaluate RUN --top K`: the first videos of queries."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.running.evaluate import evaluate
from untrimmed.running.loaded import open_model
from untrimmed.running.top import read_names, top_videos
from untrimmed.training.train import train

SMALL = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
SHORT = {"train.batch_size": 8, "train.epochs": 1, "train.seed": 1}


@pytest.fixture(scope="module")
def folder(data_root, tmp_path_factory):
    """The folder of a run of GMMFormer."""
    return train(
        "gmmformer", data="tvr", root=data_root, out=tmp_path_factory.mktemp("top") / "run", **SMALL, **SHORT
    ).folder


@pytest.fixture(scope="module")
def opened(folder):
    return open_model(folder, device="cpu")


def test_top_lists_the_first_videos_of_every_caption_by_score(folder, opened, typed):
    code, out, _ = typed("evaluate", folder, "--top", 3, "--format", "json", "--device", "cpu")
    assert code == 0
    document = json.loads(out)
    scores, dataset = opened.score().fused, opened.dataset
    assert [query["id"] for query in document["queries"]] == list(dataset.caption_ids)
    assert [query["rank_of_right"] for query in document["queries"]] == evaluate(folder, device="cpu").rank.tolist()
    for row, query in enumerate(document["queries"]):
        best = np.argsort(-scores[row], kind="stable")[:3]
        assert [video["video"] for video in query["found"]] == [dataset.video_ids[v] for v in best]
        assert [video["score"] for video in query["found"]] == pytest.approx(scores[row, best], abs=1e-5)
        assert [video["right"] for video in query["found"]] == [v == dataset.video_index[row] for v in best]
        assert [video["right"] for video in query["found"]].count(True) == (query["rank_of_right"] <= 3)
        assert query["right_moments"] == [{"start_s": s, "end_s": e} for s, e in dataset.moments[row]]


def test_top_gives_the_best_moment_of_each_video(folder, opened, typed):
    _, out, _ = typed("evaluate", folder, "--top", 2, "--format", "json", "--device", "cpu")
    entry = json.loads(out)["queries"][5]["found"][1]
    video = opened.dataset.video_ids.index(entry["video"])
    everything = opened.videos(np.arange(len(opened.dataset.video_ids)))  # one batch, as in evaluating
    proposals, fits = opened.model.window_similarities(opened.queries(np.array([5])), everything)
    best = int(fits(slice(0, None))[0, video].argmax())
    expected = proposals.spans[best] * opened.dataset.durations_s[video]
    assert [entry["start_s"], entry["end_s"]] == pytest.approx(expected.tolist(), abs=1e-3)


def test_captions_may_be_a_long_list_or_a_file_of_text(opened, tmp_path):
    text = opened.dataset.texts[0]
    names = read_names(Path(",".join([text] * 100)))  # longer than the name of a file can be
    assert names == [text] * 100
    (tmp_path / "captions.txt").write_text(f"{text}\n\n  {opened.dataset.caption_ids[1]}\n")
    assert read_names(tmp_path / "captions.txt") == [text, opened.dataset.caption_ids[1]]
    (tmp_path / "captions.txt").write_bytes(b"\xff\xfe\x00")
    with refused(FeatureError, str(tmp_path / "captions.txt")):
        read_names(tmp_path / "captions.txt")


def test_a_model_without_a_timeline_lists_videos_and_is_evaluated_without_moments(data_root, tmp_path, typed):
    run = train("proto", data="tvr", root=data_root, out=tmp_path / "run", **SMALL, **SHORT)
    code, out, _ = typed(
        "evaluate", run.folder, "--top", 2, "--format", "json", "--device", "cpu", "model.keep_attention=false"
    )
    assert code == 0
    videos = [video for query in json.loads(out)["queries"] for video in query["found"]]
    assert {(video["start_s"], video["end_s"]) for video in videos} == {(None, None)}
    code, out, err = typed("evaluate", run.folder, "--device", "cpu", "model.keep_attention=false")
    assert code == 0
    assert "fused" in out
    assert "event" not in out
    (line,) = err.splitlines()
    assert "model.keep_attention=true" in line


def test_an_error_while_finding_moments_is_reported(opened, monkeypatch):
    def fail(queries, videos):
        raise ConfigError("a setting that contradicts another one")

    monkeypatch.setattr(opened.model, "window_similarities", fail)
    with pytest.raises(ConfigError, match="a setting that contradicts"):
        top_videos(opened, np.arange(2), 1)


def test_selected_captions_are_printed_as_table_csv_and_latex(folder, opened, typed, tmp_path):
    dataset = opened.dataset
    first, second = dataset.caption_ids[4], dataset.texts[2]
    queries = tmp_path / "queries.txt"
    queries.write_text(f"{first}\n\n  {second.upper()}\n")
    command = ["evaluate", folder, "--top", 2, "--queries", queries, "--device", "cpu"]
    code, table, _ = typed(*command)
    assert code == 0
    assert first in table
    assert second in table
    assert dataset.texts[5] not in table
    rows = list(csv.DictReader(io.StringIO(typed(*command, "--format", "csv")[1])))
    assert [(row["id"], row["place"]) for row in rows][:2] == [(first, "1"), (first, "2")]
    assert float(rows[0]["score"]) >= float(rows[1]["score"])
    assert {row["query"] for row in rows} == {dataset.texts[4], second}
    latex = typed(*command, "--format", "latex")[1]
    assert latex.count(r"\midrule") == len(rows) / 2
    ids = ",".join(dataset.caption_ids[:2])
    document = json.loads(typed("evaluate", folder, "--top", 1, "--queries", ids, "--format", "json")[1])
    assert [query["id"] for query in document["queries"]] == list(dataset.caption_ids[:2])
    assert [len(query["found"]) for query in document["queries"]] == [1, 1]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--top", "1", "--queries", "nobody"], "'nobody'"),
        (["--top", "1", "--queries", "empty.txt"], "empty.txt"),
        (["--top", "1", "--against", "RUN"], "--against"),
        (["--top", "1", "--format", "xml"], "'xml'"),
        (["--top", "0"], "0"),
        (["--queries", "empty.txt"], "--top"),
    ],
)
def test_conflicting_options_of_top_are_refused_in_one_line(words, named, folder, refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    assert named in refusal("evaluate", folder, *(word.replace("RUN", str(folder)) for word in words))


def test_top_is_refused_for_a_library(refusal, tmp_path):
    assert "--top" in refusal("evaluate", tmp_path, "--top", 3)
