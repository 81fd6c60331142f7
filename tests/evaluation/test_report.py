"""Reports: metrics computed by hand, and the four output formats."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from untrimmed.evaluation.report import COLUMNS, MOMENT, MOMENT_COLUMNS, as_document, make_report, to_csv, to_latex

# Four queries, three videos; the right videos 0, 0, 1, 2 have ranks 1, 2, 1, 3.
FUSED = np.array([[0.9, 0.1, 0.2], [0.4, 0.5, 0.1], [0.0, 0.7, 0.3], [0.8, 0.7, 0.6]])
VIDEO_INDEX = np.array([0, 0, 1, 2])
RATIOS = np.array([0.1, 0.22, 0.9, np.nan])
EVENTS = {"R@1 IoU=0.5": 25.0, "R@10 IoU=0.5": 75.0, "R@1 IoU=0.7": 0.0, "R@10 IoU=0.7": 50.0}


@pytest.fixture
def report():
    branches = {"clip": FUSED, "frame": -FUSED}
    ids = ["a#0", "a#1", "b#0", "c_d#0"]
    return make_report(
        "ms_sl on toy",
        FUSED,
        branches,
        VIDEO_INDEX,
        caption_ids=ids,
        moment_ratios=RATIOS,
        events=EVENTS,
        num_events=3,
    )


def test_metrics_equal_those_computed_by_hand(report):
    figures = report.figures
    assert report.rank.tolist() == [1, 2, 1, 3]
    assert (figures["R@1"], figures["R@5"], figures["SumR"]) == (50.0, 100.0, 350.0)
    assert figures["mAP"] == pytest.approx((1 + 1 / 2 + 1 + 1 / 3) / 4)
    assert figures["median_rank"] == 1.5
    assert report.rows["frame only"]["R@1"] == 25.0  # only the last query's video has the lowest score


def test_a_printed_report_is_one_short_line(report):
    recall = "R@1 50.0, R@5 100.0, R@10 100.0, R@100 100.0, SumR 350.0"
    assert str(report) == f"ms_sl on toy: {recall}, mAP 0.7083, MdR 1.5, MnR 1.8, queries 4"


def test_moment_ratio_groups_have_both_papers_edges_and_skip_queries_without_moments(report):
    assert report.rows["M/V (0,0.2]"]["queries"] == 1
    assert report.rows["M/V (0.2,0.4]"]["R@1"] == 0.0
    assert report.rows["M/V (0,0.25]"]["queries"] == 2
    assert report.rows["M/V (0,0.25]"]["R@1"] == 50.0
    assert np.isnan(report.rows["M/V (0.25,0.5]"]["R@1"])


def test_without_moments_there_are_no_groups():
    unknown = np.full(4, np.nan)
    report = make_report("x", FUSED, {}, VIDEO_INDEX, caption_ids="abcd", moment_ratios=unknown, note="no moments")
    assert list(report.rows) == ["fused"]
    assert report.events == {}
    assert json.loads(json.dumps(as_document(report), allow_nan=False))["note"] == "no moments"
    assert to_latex(report).splitlines()[1] == "% no moments"


def test_event_recall_has_a_row_for_each_iou_in_every_format(report):
    assert report.rows["event IoU=0.5"] == {"R@1": 25.0, "R@10": 75.0, "queries": 3.0}
    assert report.events == EVENTS
    by_row = {line["row"]: line for line in csv.DictReader(io.StringIO(to_csv(report)))}
    assert (by_row["event IoU=0.7"]["R@10"], by_row["event IoU=0.7"]["SumR"]) == ("50.0", "")
    assert "event IoU=0.7 & 0.0 &  & 50.0 &" in to_latex(report)


def test_moments_in_the_right_video_are_in_every_format(report):
    assert as_document(report)["moments"] is None
    assert "mIoU" not in to_csv(report) + to_latex(report)
    moments = dict(zip(MOMENT_COLUMNS, (50.0, 25.0, 0.0, 31.25), strict=True)) | {"queries": 3.0}
    report = replace(report, moments=moments)
    assert as_document(report)["moments"] == moments
    line = next(line for line in csv.DictReader(io.StringIO(to_csv(report))) if line["row"] == MOMENT)
    assert (line["mIoU"], line["R1@IoU=0.5"], line["R@1"], line["queries"]) == ("31.25", "25.0", "", "3.0")
    assert f"{MOMENT} & 50.0 & 25.0 & 0.0 & 31.2 & 3" in to_latex(report)
    assert to_latex(report).count(r"\end{tabular}") == 2


def test_json_keeps_full_precision_and_every_rank(report):
    document = json.loads(json.dumps(as_document(report), allow_nan=False))
    assert document["rows"]["fused"]["mAP"] == report.figures["mAP"]
    assert document["ranks"] == {"a#0": 1, "a#1": 2, "b#0": 1, "c_d#0": 3}
    assert document["rows"]["M/V (0.25,0.5]"]["R@1"] is None
    assert document["videos"] == 3


def test_csv_has_one_line_per_row_and_blanks_for_missing_metrics(report):
    lines = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert [line["row"] for line in lines] == list(report.rows)
    assert float(lines[0]["mAP"]) == report.figures["mAP"]
    by_row = {line["row"]: line for line in lines}
    assert by_row["M/V (0.25,0.5]"]["R@1"] == ""
    assert by_row["M/V (0,0.2]"]["mAP"] == ""


def test_latex_is_a_complete_table_with_rows_of_equal_width(report):
    lines = to_latex(report).splitlines()
    assert lines[0].startswith("% ms_sl on toy, 4 queries, 3 videos")
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 1 + len(report.rows)
    assert {line.count("&") for line in rows} == {len(COLUMNS)}
    assert rows[1].startswith("fused & 50.0 & 100.0")
    assert lines[-1] == r"\end{tabular}"
