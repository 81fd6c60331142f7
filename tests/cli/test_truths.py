"""`evaluate RUN --truths FILE` adds recall with several right videos for the queries with labels."""

import csv
import gzip
import io
import json
import re

import numpy as np
import pytest

from untrimmed.data.layouts import read_split
from untrimmed.running.loaded import open_model
from untrimmed.training.train import train

LABELLED = 12  # the first of the split's 18 captions


@pytest.fixture(scope="module")
def run_folder(data_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("truths") / "run"
    sizes = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
    train("ms_sl", data="tvr", root=data_root, out=folder, **sizes, **{"train.epochs": 1})
    return folder


@pytest.fixture
def captions(data_root):
    return read_split("tvr", data_root, "test")


def write(path, rows, opener=open):
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def label(caption, *others):
    return {"query_id": caption.caption_id, "caption": caption.text, "gt_video_ids": [caption.video, *others]}


def evaluated(typed, folder, labels, *words):
    code, out, err = typed("evaluate", folder, "--no-moments", "--truths", labels, *words)
    assert code == 0, err
    return out, err


def test_both_rows_count_only_queries_with_labels(typed, run_folder, captions, tmp_path):
    last = captions[-1].video
    labels = write(tmp_path / "gt.jsonl", [label(caption, last) for caption in captions[:LABELLED]])
    document = json.loads(evaluated(typed, run_folder, labels, "--format", "json")[0])
    opened = open_model(run_folder)
    scores, right = opened.score().fused[:LABELLED], opened.dataset.video_index[:LABELLED]
    other = opened.dataset.video_index[-1]
    for name, truths in (("one right video", [right]), ("any right video", [right, np.full(LABELLED, other)])):
        best = np.min([1 + (scores > scores[np.arange(LABELLED), truth][:, None]).sum(axis=1) for truth in truths], 0)
        row = document["rows"][name]
        assert row["queries"] == LABELLED
        assert row["R@1"] == pytest.approx(100 * (best <= 1).mean())
        assert row["median_rank"] == np.median(best)
    assert document["rows"]["any right video"]["R@1"] > document["rows"]["one right video"]["R@1"]
    assert document["rows"]["fused"]["queries"] == len(captions)
    right = [1 + (caption.video != last) for caption in captions[:LABELLED]]
    assert document["truths"] == {
        "queries": LABELLED, "right_videos": np.mean(right), "several": sum(count > 1 for count in right),
        "other_queries": 0, "other_texts": 0, "other_videos": 0,
    }  # fmt: skip


def test_compressed_labels_are_read_and_unused_ones_counted(typed, run_folder, captions, tmp_path):
    rows = [label(caption, "nowhere") for caption in captions[:3]]
    rows += [{**rows[0], "query_id": "elsewhere#enc#0"}, {**label(captions[3]), "caption": "Another numbering."}]
    rows += [{"query_id": captions[4].caption_id, "gt_video_ids": [captions[4].video]}]  # no text to compare
    rows[1]["caption"] = f" {rows[1]['caption'].upper()} !"  # the same words
    labels = write(tmp_path / "gt.jsonl.gz", rows, gzip.open)
    out, err = evaluated(typed, run_folder, labels)
    (message,) = [line for line in err.splitlines() if "gt.jsonl.gz" in line]
    counts = [int(number) for number in re.findall(r"(?<![\d.])\d+(?![\d.])", message.partition("gt.jsonl.gz")[2])]
    assert counts == [4, len(captions), 0, 1, 1, 1]
    assert "one right video" in out
    assert "any right video" in out
    assert max(map(len, out.splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(evaluated(typed, run_folder, labels, "--format", "csv")[0])))
    one, several = (next(row for row in rows if row["row"] == name) for name in ("one right video", "any right video"))
    assert one["SumR"] == several["SumR"]  # no label names a second video of the split
    assert several["mAP"] == ""


def test_without_labels_their_rows_are_absent(typed, run_folder):
    code, out, err = typed("evaluate", run_folder, "--no-moments", "--format", "json")
    assert code == 0
    assert json.loads(out)["truths"] is None
    assert "right video" not in out + err


def test_labels_in_the_folder_of_the_data_set_are_used_for_its_test_split(typed, run_folder, captions, data_root):
    rows = [label(caption, captions[-1].video) for caption in captions[:LABELLED]]
    labels = write(data_root / "tvr" / "TextData" / "tvrdenseval.gt.jsonl", rows)
    try:
        code, out, err = typed("evaluate", run_folder, "--no-moments", "--format", "json")
        explicit = json.loads(evaluated(typed, run_folder, labels, "--format", "json")[0])
        validation = json.loads(typed("evaluate", run_folder, "--no-moments", "--split", "val", "--format", "json")[1])
    finally:
        labels.unlink()
    assert code == 0
    assert json.loads(out) == explicit
    assert explicit["truths_file"] == str(labels)
    assert labels.name in err
    assert validation["truths"] is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: [{**row, "query_id": f"x{row['query_id']}"} for row in rows], ()),
        (lambda rows: [], ()),
        (lambda rows: [*rows, rows[0]], ("line 3",)),
        (lambda rows: [{"query": "a"}], ("line 1", "'query_id'")),
        (lambda rows: [{**rows[0], "gt_video_ids": "lake"}], ("line 1", "gt_video_ids", "'lake'")),
        (lambda rows: [{**rows[0], "gt_video_ids": []}], ("line 1", "gt_video_ids", "[]")),
        (lambda rows: [{**rows[0], "gt_video_ids": [3]}], ("line 1", "gt_video_ids", "[3]")),
        (lambda rows: [{**rows[0], "query_id": 3}], ("line 1", "query_id", "3")),
        (None, ()),
    ],
)
def test_invalid_labels_are_refused_in_one_line(refusal, run_folder, captions, tmp_path, change, named):
    path = tmp_path / "gt.jsonl"
    if change is not None:
        write(path, change([label(caption) for caption in captions[:2]]))
    error = refusal("evaluate", run_folder, "--no-moments", "--truths", path)
    assert all(word in error for word in ("gt.jsonl", *named))


def test_labels_are_refused_for_a_library(refusal, tmp_path):
    assert "--truths" in refusal("evaluate", tmp_path, "--truths", tmp_path / "gt.jsonl")
