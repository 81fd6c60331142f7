"""Rows and formats of the joint table of runs, from invented reports."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.config import build, to_plain
from untrimmed.errors import ConfigError
from untrimmed.evaluation.recall import recall
from untrimmed.evaluation.report import Report
from untrimmed.models.registry import plain_sections
from untrimmed.presets import load_preset
from untrimmed.running.run import Run, RunConfig
from untrimmed.study.joint_table import joint_csv, joint_entries, joint_latex, joint_markdown, joint_rows
from untrimmed.study.setup import SIZES


def run(folder, method="ms_sl", data="tvr", seed=1, **settings):
    preset = load_preset(method, "tvr", settings | {"train.seed": seed, "model.video_dim": 10})
    sections = to_plain(preset) | plain_sections(preset.sizes()) | {"data": {"name": data, "root": f"/{folder}"}}
    return Run(Path(folder), build(RunConfig, sections), [])


def report_of(run):
    """Every query finds its video at the rank that the folder's name begins with."""
    rank = np.full(40, int(run.folder.name.partition("-")[0]))
    return Report("", 300, {"fused": recall(rank)}, rank, tuple(map(str, range(40))))


def rows_of(*runs):
    return joint_rows(runs, report_of)


def test_seeds_of_equal_settings_share_a_row_and_the_best_is_first():
    rows = rows_of(run("4-a", seed=1), run("2-a", "gmmformer"), run("9-a", seed=2), run("1-a", data="charades"))
    assert [(row.data, row.label, len(row.reports)) for row in rows] == [
        ("tvr", "gmmformer", 1), ("tvr", "ms_sl", 2), ("charades", "ms_sl", 1),
    ]  # fmt: skip
    assert [row.sum_r for row in rows] == [300, 250, 400]


def test_rows_of_one_method_are_labelled_with_what_differs():
    rows = rows_of(run("4-a"), run("9-a", **{"model.dropout": 0.2}), run("50-a", "gmmformer"))
    assert [row.label for row in rows] == ["ms_sl,model.dropout=0.1", "ms_sl,model.dropout=0.2", "gmmformer"]


def test_a_lone_variant_is_labelled_with_its_changes():
    changes = {"weights.orthogonal": 0.5, "model.iterations": 1}
    (row,) = rows_of(run("4-a", "proto", **changes))
    assert row.label == "proto,model.iterations=1,weights.orthogonal=0.5"


def test_runs_of_a_study_are_labelled_with_the_settings_in_their_names(tmp_path):
    (tmp_path / SIZES).touch()
    name = "proto,weights.orthogonal=0.5@model.dropout=0.2-0.001-8-0"
    changes = {"weights.orthogonal": 0.5, "model.dropout": 0.2, "train.epochs": 9, "train.patience": 9}
    report = report_of(run("4-a"))
    of_study = run(tmp_path / name, "proto", **changes)
    (row,) = joint_rows([of_study], lambda run: report)
    assert row.label == "proto,weights.orthogonal=0.5,model.dropout=0.2"
    rows = joint_rows([of_study, run("4-a")], lambda run: report)
    assert "train.epochs=9" in ",".join(row.label for row in rows)


def test_two_runs_of_equal_settings_and_seed_are_refused():
    with refused(ConfigError, "4-a", "9-a"):
        rows_of(run("4-a"), run("9-a"))


@pytest.fixture
def rows():
    other = [run(f"{rank}-b", "gmmformer_v2", seed=seed) for seed, rank in enumerate((4, 9))]
    return rows_of(run("1-a", seed=1), run("4-a", seed=2), *other)


def test_markdown_has_the_best_row_in_bold(rows):
    lines = [line for line in joint_markdown(rows).splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["**`ms_sl`**", "`gmmformer_v2`"]
    assert "**350.0 ± 70.7**" in lines[2]
    assert "250.0 ± 70.7" in lines[3]
    assert "< 0.0001" in lines[3], "p over queries"


def test_latex_escapes_names_and_marks_the_best(rows):
    text = joint_latex(rows)
    assert r"\textbf{ms\_sl}" in text
    assert r"gmmformer\_v2 & 2 &" in text
    assert r"$\pm$" in text
    assert "±" not in text


def test_csv_has_full_precision(rows):
    lines = list(csv.DictReader(io.StringIO(joint_csv(rows))))
    assert [line["model"] for line in lines] == ["ms_sl", "gmmformer_v2"]
    assert [float(line["SumR"]) for line in lines] == [350, 250]
    assert float(lines[0]["SumR deviation"]) == pytest.approx(50 * 2**0.5)
    assert 0.1 < float(lines[1]["p to best, seeds"]) < 0.5
    assert lines[0]["p to best, seeds"] == ""


def test_entries_have_no_p_value_for_the_best_row_and_no_deviation_of_one_seed(rows):
    best, other = joint_entries(rows)
    assert best["p to best, seeds"] is best["p to best, queries"] is None
    assert 0.1 < other["p to best, seeds"] < 0.5
    (single,) = joint_entries([replace(rows[0], reports=rows[0].reports[:1])])
    assert (single["seeds"], single["SumR deviation"]) == (1, None)


def test_data_sets_are_tables_of_their_own(rows):
    both = [*rows, *(replace(row, data="charades") for row in rows)]
    assert joint_markdown(both).count("**`ms_sl`**") == 2
    assert joint_latex(both).count("toprule") == 2
