"""The command `untrimmed reproduce`."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from tests.cli.conftest import invoke
from tests.reproduction.conftest import TINY
from untrimmed.cli.reproduce import reproduce
from untrimmed.data.simulation.simulate import simulate
from untrimmed.reproduction import runner
from untrimmed.reproduction.commands import commands_of
from untrimmed.reproduction.papers import PAPERS
from untrimmed.reproduction.tables import Column

app = typer.Typer()
app.command()(reproduce)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    """Rows that take a second each."""
    monkeypatch.setattr(runner.RunSettings.__init__, "__defaults__", (None, None, "auto", TINY))


def run(*words):
    return invoke(app, words)


def test_without_arguments_the_five_papers_are_listed():
    listed = run().stdout
    assert all(name in listed for name in PAPERS)


def test_a_paper_is_listed_with_the_command_for_each_part():
    listed = run("gmmformer").stdout
    for word in ("table8", "figure7", "untrimmed plot texts"):
        assert word in listed


def test_a_table_is_what_the_paper_prints_and_the_commands_of_its_rows(tmp_path):
    printed = run("ral", "T5", "--runs", tmp_path / "runs").stdout
    assert "44.5" in printed
    table = PAPERS["ral"].entry("table5")
    assert all(f"{each.train}\n{each.evaluate}\n" in printed for each in commands_of(table))
    assert not (tmp_path / "runs").exists()


def test_a_table_without_training_ends_with_its_commands():
    *_, command, last = run("tf_prvr", "table1").stdout.splitlines()
    assert command == "untrimmed evaluate tf_prvr --data activitynet_eva_clip_l --root DIR --no-moments"
    assert last.endswith("untrimmed reproduce tf_prvr table1 --root DIR")


def test_rows_are_tried_on_simulated_features_and_the_second_time_read(tmp_path):
    words = ["ral", "T5", "--runs", tmp_path / "runs", "--seed", 2, "--simulated"]
    first, second = run(*words), run(*words)
    assert re.search(r"\b15\b.*\b2\b", first.stdout)
    assert "44.5" not in first.stdout
    assert "1/4 CLIP4Clip, MSR-VTT, ViT-B/32" in first.stderr
    assert "2/4 + RAL, MSR-VTT, ViT-B/32" in second.stderr
    assert second.stdout == first.stdout


def test_a_figure_ends_with_the_command_that_draws_it(tmp_path):
    simulate("tvr", tmp_path / "data", num_videos=15, settings=TINY.features)
    sizes = {key: value for key, value in TINY.overrides_of(Column(name="tvr")).items() if "num_clips" not in key}
    figure = PAPERS["ral"].entry("figure11")
    rows = tuple(replace(row, overrides=row.overrides | sizes) for row in (figure.rows[0], figure.rows[-1]))
    small = replace(PAPERS["ral"], entries=(replace(figure, rows=rows),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PAPERS, "ral", small)
        printed = run("ral", "figure11", "--root", tmp_path / "data", "--runs", tmp_path / "runs").stdout
    *_, last = printed.splitlines()
    assert "TVR, simulated" in printed
    command = shlex.split(last.removeprefix("next    "))
    assert (command[:3], command[-2:]) == (["untrimmed", "plot", "sweep"], ["-o", "figure11.png"])
    assert all(Path(folder, "config.yaml").is_file() for folder in command[3:-2])
    assert len(command[3:-2]) == 2


def test_a_figure_of_another_command_prints_that_command():
    printed = run("jsg", "figure3").stdout.splitlines()
    figure = PAPERS["jsg"].entry("figure3")
    assert all(command in printed for command in figure.commands)  # not truncated, even on a narrow terminal
    assert run("jsg", "figure1").exit_code == 0


def test_a_document_holds_its_command_and_the_table(tmp_path):
    out = tmp_path / "ral.md"
    result = run("ral", "table5", "--out", out, "--runs", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert f"untrimmed reproduce ral table5 --out {out}" in text
    assert "| 44.5, 71.4, 81.6, 2.0, 15.3 | 47.1, 74.1, 81.8, 2.0, 14.9 | `clip4clip --data DATA" in text
    assert not (tmp_path / "runs").exists()


def test_where_nothing_can_be_written_no_row_is_trained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file") as refused:
        run("ral", "table5", "--out", tmp_path / "file" / "ral.md", "--runs", tmp_path / "runs")
    assert refused.value.filename  # the command line prints it in one line
    assert not (tmp_path / "runs").exists()
    with pytest.raises(OSError, match="file"):
        run("ral", "table5", "--runs", tmp_path / "file" / "runs", "--simulated")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["gmmformr"], "gmmformer, gmmformer_v2, ral, proto, jsg"),
        (["jsg", "table7"], "'table7'"),
        (["jsg", "table1", "--root", "nowhere"], "nowhere"),
        (["jsg", "--out", "jsg.txt"], ".md"),
        (["jsg", "table1", "--simulated", "--out", "jsg.md"], "--out"),
        (["tf_prvr", "table1", "--simulated"], "tf_prvr table1"),
    ],
)
def test_a_wrong_command_is_one_line_with_exit_code_2(words, named, refusal):
    assert named in refusal("reproduce", *words)


def test_lists_and_tables_are_printed_as_json():
    papers = json.loads(run("--json").stdout)
    assert [paper["paper"] for paper in papers] == list(PAPERS)
    assert json.loads(run("gmmformer", "--json").stdout) == next(p for p in papers if p["paper"] == "gmmformer")
    (table,) = json.loads(run("gmmformer", "table1", "--json").stdout)["tables"]
    assert table["rows"][-1][-1] == "176.6"
    assert len(table["header"]) == len(table["rows"][0])
