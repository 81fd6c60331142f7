import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.refusals import refused, require_named
from tests.reproduction.conftest import TINY
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError
from untrimmed.reproduction.commands import commands_of, drawing
from untrimmed.reproduction.results import printed_grids, smoke_grid, trained_grids
from untrimmed.reproduction.runner import run_table, simulated_data, trial_of
from untrimmed.running.evaluate import evaluate
from untrimmed.running.run import is_run


def test_a_trial_on_simulated_features_lists_rows_without_figures(table, settings):
    measured = run_table(table, settings)
    assert list(measured.figures) == [("mean", "tvr")]
    figures = measured.figures["mean", "tvr"]
    assert 0 <= figures["R@1"] <= 100 <= figures["SumR"]
    grid = smoke_grid(table, measured, settings)
    require_named(grid.title, "Two systems", "15", "3")
    assert [line[:2] for line in grid.lines] == [("mean", "TVR")]


def test_without_data_a_table_has_only_the_papers_results(table):
    (grid,) = printed_grids(table)
    assert grid.header == ("", "data", "R@1", "SumR")
    mean = table.rows[0].label  # the label states that only mean pooling is trained
    assert mean.startswith("mean (")
    assert grid.lines == ((mean, "TVR", "9.9", "141.0"), ("closed", "TVR", "50.0", "300.0"))
    for note, words in zip(grid.notes, (["XML"], ["closed", "no program"]), strict=True):
        require_named(note, *words)


def test_a_finished_row_is_not_trained_again(table, settings):
    first, second = [], []
    before = run_table(table, settings, first.append)
    after = run_table(table, settings, second.append)
    assert any("epoch" in progress.activity for progress in first)
    assert not any("epoch" in progress.activity for progress in second)
    assert after.figures == before.figures


def test_a_trained_row_without_results_is_only_evaluated(table, settings):
    before = run_table(table, settings)
    (cached,) = settings.runs.glob("*.json")
    cached.unlink()
    steps = []
    assert run_table(table, settings, steps.append).figures == before.figures
    assert not any("training" in progress.activity for progress in steps)


@pytest.mark.parametrize("change", ["seed", "scale", "features", "overrides", "data"])
def test_different_settings_have_different_folders(change, table, settings):
    row, column = table.rows[0], table.columns[0]
    other, changed, on = settings, row, column
    if change == "seed":
        other = dataclasses.replace(settings, seed=4)
    elif change == "scale":
        other = dataclasses.replace(settings, scale=dataclasses.replace(TINY, num_videos=20))
    elif change == "features":
        features = dataclasses.replace(TINY.features, noise=0.1)
        other = dataclasses.replace(settings, scale=dataclasses.replace(TINY, features=features))
    elif change == "data":
        settings = dataclasses.replace(settings, root=Path("data"))
        on, other = dataclasses.replace(column, data="tvr_clip"), settings
    else:
        changed = dataclasses.replace(row, overrides={"weights.video_nce": 0.5})
    assert trial_of(changed, on, other).folder != trial_of(row, column, settings).folder


def test_ranking_strategies_share_a_run_but_not_its_results(settings, table):
    row = dataclasses.replace(table.rows[0], method="jsg")
    glance = dataclasses.replace(
        row, name="glance", evaluated_with={"model.glance_weight": 1.0, "model.gaze_weight": 0.0}
    )
    both = dataclasses.replace(table, rows=(row, glance))
    measured = run_table(both, settings)
    assert len([path for path in settings.runs.glob("jsg-*") if is_run(path)]) == 1
    (note,) = settings.runs.glob("jsg-*.json")
    assert len(json.loads(note.read_text())) == 2
    assert set(measured.figures) == {("mean", "tvr"), ("glance", "tvr")}


def test_rows_are_evaluated_on_the_split_of_the_table(table, settings, tmp_path):
    small, there = _with_data(table, settings, tmp_path / "data")
    columns = tuple(dataclasses.replace(column, split="val") for column in small.columns)
    on_val = dataclasses.replace(small, columns=columns)
    ours = [run_table(entry, there).figures["mean", "tvr"]["SumR"] for entry in (small, on_val)]
    run = trial_of(small.rows[0], small.columns[0], there).folder
    assert len([path for path in there.runs.iterdir() if is_run(path)]) == 1
    assert ours == [evaluate(run, split=split, moments=False).figures["SumR"] for split in ("test", "val")]
    assert {command.evaluate for command in commands_of(on_val)} == {"untrimmed evaluate RUN --no-moments --split val"}
    (grid,) = trained_grids(on_val, run_table(on_val, there), there)
    assert "3 val videos" in grid.title


def _with_data(table, settings, root):
    """The table at small sizes, and the settings with a simulated data set."""
    simulate("tvr", root, num_videos=15, settings=TINY.features)
    columns = tuple(dataclasses.replace(column, overrides=TINY.overrides_of(column)) for column in table.columns)
    return dataclasses.replace(table, columns=columns), dataclasses.replace(settings, root=root)


def test_simulated_data_are_named_and_listed_with_untrained_baselines(table, settings, tmp_path):
    small, there = _with_data(table, settings, tmp_path / "data")
    measured = run_table(small, there)
    (grid,) = trained_grids(small, measured, there)
    assert re.fullmatch(r"Two systems \(TVR, simulated: \d+ queries, 3 test videos, one seed 3\)", grid.title)
    rows = ["chance", "zero-shot", "ridge", "ridge, best run of frames", "oracle", "mean"]
    assert [line[:2] for line in grid.lines] == [(row, "ours" if row == "mean" else "untrained") for row in rows]
    assert grid.lines[0][2:] == ("33.3", "333.3")
    assert grid.notes[-1] == "No data for: activitynet."
    assert grid.lines[-1][3] == f"{measured.figures['mean', 'tvr']['SumR']:.1f}"


def test_a_figure_names_the_command_that_draws_its_runs(table, settings, tmp_path):
    small, there = _with_data(table, settings, tmp_path / "data")
    assert list(drawing(small, there)) == []
    rows = tuple(dataclasses.replace(table.rows[0], name=name, paper={}) for name in ("(a) 1", "(b) 1", "(b) 2"))
    rows = (*rows[:2], dataclasses.replace(rows[2], overrides={"weights.video_nce": 0.5}))
    figure = dataclasses.replace(small, rows=rows, name="figure9", picture="sweep", panels=("(a)", "(b)"))
    run_table(figure, there)
    first, second = (shlex.split(command) for command in drawing(figure, there))
    assert (first[:3], first[-2:]) == (["untrimmed", "plot", "sweep"], ["-o", "figure9a.png"])
    assert second[-1] == "figure9b.png"
    assert (len(first), len(second)) == (6, 7)
    assert all(is_run(Path(folder)) for folder in (*first[3:-2], *second[3:-2]))


def test_real_data_has_differences_and_a_list_of_missing_data(table, settings, tmp_path):
    real, there = _with_data(table, settings, tmp_path / "data")
    (tmp_path / "data" / "tvr" / "simulation.json").unlink()  # as if the features were real
    measured = run_table(real, there)
    ours = measured.figures["mean", "tvr"]["SumR"]
    assert measured.missing == ("activitynet",)
    (grid,) = trained_grids(real, measured, there)
    assert grid.title == "Two systems (TVR, seed 3)"
    assert [line[1] for line in grid.lines] == ["paper", "ours", "difference", "paper"]
    assert grid.lines[2][3] == f"{ours - 141.0:+.1f}"
    assert "No data for: activitynet." in grid.notes


def test_a_root_without_the_data_is_refused_with_its_folders(table, settings, tmp_path):
    (tmp_path / "msrvtt").mkdir()
    with refused(ConfigError, "table9", "tvr", "activitynet", "msrvtt"):
        run_table(table, dataclasses.replace(settings, root=tmp_path))
    with pytest.raises(ConfigError):
        run_table(table, dataclasses.replace(settings, root=tmp_path / "missing"))


def test_an_event_column_evaluates_moments_of_any_method(table, settings):
    column = dataclasses.replace(table.columns[0], name="charades_event", data="charades", events=True)
    column = dataclasses.replace(column, metrics=("R@10 IoU=0.3",))
    row = dataclasses.replace(table.rows[0], method="ms_sl", paper={"charades_event": (4.46,)})
    measured = run_table(dataclasses.replace(table, columns=(column,), rows=(row,)), settings)
    assert 0 <= measured.figures["mean", "charades_event"]["R@10 IoU=0.3"] <= 100


def test_simulated_features_are_written_once(settings):
    root, name = simulated_data(settings)
    about = (root / name / "simulation.json").stat().st_mtime_ns
    assert json.loads((root / name / "simulation.json").read_text())["seed"] == 3
    simulated_data(settings)
    assert (root / name / "simulation.json").stat().st_mtime_ns == about
