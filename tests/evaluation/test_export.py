"""Files about every query: their rows are computed by hand, and they can be read back."""

import csv
import json

import numpy as np
import pytest

from untrimmed.evaluation.export import (
    ScoredSplit,
    query_rows,
    write_qrels,
    write_queries_csv,
    write_queries_jsonl,
    write_scores,
    write_trec_run,
)

# Three captions, three videos; the right videos 0, 0, 2 have the fused ranks 1, 2, 3 and the clip ranks 3, 2, 1.
FUSED = np.array([[0.9, 0.1, 0.2], [0.4, 0.5, 0.1], [0.8, 0.7, 0.6]], dtype=np.float32)
LABELLED = np.array([[0, 1], [0, 1], [-1, -1]])  # both videos 0 and 1 are right for the first two captions
NAMES = {"caption_ids": ["a#0", "a 1", "c#0"], "texts": ["a dog", 'a "cat"', "sea"], "video_ids": ["a", "b 1", "c"]}


def split(**changes):
    values = {
        **NAMES,
        "video_index": np.array([0, 0, 2]),
        "fused": FUSED,
        "branches": {"clip": -FUSED},
        "moments_s": [np.array([[0.0, 4.0]]), np.array([[5.0, 6.0], [0.0, 8.0]]), np.empty((0, 2))],
        "span_s": np.array([[0.0, 2.0], [0.0, 8.0], [1.0, 2.0]], dtype=np.float32),
        "right_videos": LABELLED,
    }
    return ScoredSplit(**{**values, **changes})


def test_a_row_has_ranks_and_scores_by_branch_and_the_overlap_of_the_moment():
    first, second, third = query_rows(split())
    assert (first["rank"], second["rank"], third["rank"]) == (1, 2, 3)
    assert (first["rank_clip"], second["rank_clip"], third["rank_clip"]) == (3, 2, 1)
    assert second["score"] == pytest.approx(0.4)
    assert second["score_clip"] == pytest.approx(-0.4)
    assert (second["first_video"], second["any_rank"]) == ("b 1", 1)
    assert (first["iou"], second["iou"], third["iou"]) == (0.5, 1.0, None)
    assert (first["start_s"], first["end_s"]) == (0.0, 2.0)
    assert third["any_rank"] is None


def test_without_labels_and_moments_their_columns_are_absent():
    columns = set(next(query_rows(split(span_s=None, right_videos=None))))
    assert columns == {
        "id", "query", "video", "rank", "score", "rank_clip", "score_clip", "first_video", "first_score",
    }  # fmt: skip


def test_both_tables_have_the_same_rows(tmp_path):
    write_queries_csv(split(), tmp_path / "a.csv")
    write_queries_jsonl(split(), tmp_path / "a.jsonl")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_json = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert from_json == list(query_rows(split()))
    blank = [{name: "" if value is None else str(value) for name, value in row.items()} for row in from_json]
    assert from_csv == blank


def test_a_trec_run_has_six_fields_and_the_best_videos_first(tmp_path):
    write_trec_run(split(), tmp_path / "run", tag="my run", depth=2)
    lines = [line.split(" ") for line in (tmp_path / "run").read_text().splitlines()]
    assert lines[:3] == [
        ["a#0", "Q0", "a", "1", "0.9", "my%20run"],
        ["a#0", "Q0", "c", "2", "0.2", "my%20run"],
        ["a%201", "Q0", "b%201", "1", "0.5", "my%20run"],
    ]
    assert len(lines) == 6


def test_judgements_have_the_annotated_video_and_all_labelled_ones(tmp_path):
    write_qrels(split(), tmp_path / "all")
    assert (tmp_path / "all").read_text().splitlines() == [
        "a#0 0 a 1", "a#0 0 b%201 1", "a%201 0 a 1", "a%201 0 b%201 1", "c#0 0 c 1",
    ]  # fmt: skip
    write_qrels(split(right_videos=None), tmp_path / "one")
    assert (tmp_path / "one").read_text().splitlines() == ["a#0 0 a 1", "a%201 0 a 1", "c#0 0 c 1"]


def test_the_score_matrix_is_read_back_without_pickle(tmp_path):
    write_scores(split(), tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"fused", "branch_clip", "caption_ids", "video_ids", "video_index", "right_videos"}
        np.testing.assert_array_equal(arrays["fused"], FUSED)
        np.testing.assert_array_equal(arrays["branch_clip"], -FUSED)
        assert arrays["fused"].dtype == np.float32
        assert arrays["video_ids"].tolist() == NAMES["video_ids"]
