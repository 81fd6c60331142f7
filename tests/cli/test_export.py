"""`untrimmed evaluate RUN` prints the moments in the right video and writes files about every query."""

import json

import numpy as np
import pytest

from untrimmed.running.loaded import open_model
from untrimmed.training.train import train


@pytest.fixture(scope="module")
def run_folder(data_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "my run"
    sizes = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
    train("ms_sl", data="tvr", root=data_root, out=folder, **sizes, **{"train.epochs": 1})
    return folder


def test_all_files_agree_with_the_report(typed, run_folder, tmp_path):
    files = {"--per-query": "q.jsonl", "--trec": "new/run.txt", "--qrels": "qrels", "--scores": "s.npz"}
    words = [word for option, name in files.items() for word in (option, tmp_path / name)]
    code, out, err = typed("evaluate", run_folder, "--format", "json", *words)
    assert code == 0, err
    assert all(name in err for name in files.values())
    document = json.loads(out)
    rows = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert {row["id"]: row["rank"] for row in rows} == document["ranks"]
    assert document["moments"]["mIoU"] == pytest.approx(100 * np.mean([row["iou"] for row in rows]), abs=0.01)
    for branch in ("clip", "frame"):
        assert document["rows"][f"{branch} only"]["R@1"] == pytest.approx(
            100 * np.mean([row[f"rank_{branch}"] == 1 for row in rows])
        )
    run = [line.split() for line in (tmp_path / "new" / "run.txt").read_text().splitlines()]
    right = dict(line.split()[::2] for line in (tmp_path / "qrels").read_text().splitlines())
    assert {query: int(rank) for query, _, video, rank, *_ in run if right[query] == video} == document["ranks"]
    assert {line[5] for line in run} == {"my%20run"}
    with np.load(tmp_path / "s.npz") as arrays:
        np.testing.assert_array_equal(arrays["fused"], open_model(run_folder).score().fused)


def test_the_printed_tables_fit_80_columns(typed, run_folder, tmp_path):
    code, out, _ = typed("evaluate", run_folder, "--per-query", tmp_path / "q.csv")
    assert code == 0
    assert "R1@IoU=0.5" in out
    assert max(map(len, out.splitlines())) <= 80


def test_two_files_of_one_name_are_refused(refusal, run_folder, tmp_path):
    refusal("evaluate", run_folder, "--trec", tmp_path / "a", "--qrels", tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "name"), [("--per-query", "a.txt"), ("--scores", "a.npy")])
def test_another_suffix_is_refused(refusal, run_folder, tmp_path, option, name):
    assert name in refusal("evaluate", run_folder, option, tmp_path / name)


def test_a_failed_evaluation_leaves_no_file(typed, run_folder, tmp_path):
    labels = tmp_path / "none.jsonl"
    code, *_ = typed("evaluate", run_folder, "--truths", labels, "--trec", tmp_path / "new" / "run.txt")
    assert code == 2
    assert not list(tmp_path.iterdir())


def test_files_are_refused_for_a_library_and_with_top(refusal, run_folder, tmp_path):
    assert "--trec" in refusal("evaluate", tmp_path, "--trec", tmp_path / "a")
    assert "--trec" in refusal("evaluate", run_folder, "--top", 2, "--trec", tmp_path / "a")
