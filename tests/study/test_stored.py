"""Results of a study that are read from files, without data and runs."""

import json
import shutil

import pytest

from tests.refusals import refused
from untrimmed.errors import ConfigError
from untrimmed.study.orders import chosen, search_results
from untrimmed.study.page import table
from untrimmed.study.setup import Candidate, StudySetup
from untrimmed.study.stored import has_results, stored_results, stored_runs
from untrimmed.study.study import StudyPlan, Trainer, study


@pytest.fixture(scope="module")
def finished(data_root, tmp_path_factory):
    """A study of two methods and two seeds, and its folder without runs."""
    out = tmp_path_factory.mktemp("studies")
    setup = StudySetup(data="tvr", root=data_root, out=out, dim=8, frames=20, batch=4)
    methods = (Candidate.of("ms_sl"), Candidate.of("gmmformer,model.dropout=0.3"))
    grid = ("model.input_dropout+train.weight_decay=0.1,0.2",)
    plan = StudyPlan(methods=methods, rates=(1e-5, 3e-4), grid=grid, search_steps=4, steps=8, seeds=2)
    *_, results = study(setup, plan, Trainer())
    for run in (out / "tvr").glob("*/"):
        shutil.rmtree(run)
    return results, out / "tvr"


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished[1], tmp_path / "tvr")


def test_a_table_is_the_same_from_the_files_alone(finished):
    results, folder = finished
    stored = stored_results(folder)
    assert table(stored) == table(results)
    assert stored.setup.facts == results.setup.facts
    assert not (folder / "tvr").exists()


def test_every_run_has_its_candidate_and_the_settings_of_the_search(finished):
    results, folder = finished
    runs = {(run.candidate, run.point, run.steps, run.seed, bool(run.ranks)) for run in stored_runs(folder)}
    searched = {(method, point, 4, 0, False) for method in results.plan.methods for point in results.plan.points}
    assert len(searched) == 8
    finals = {(method, results.points[method], 8, seed, True) for method in results.plan.methods for seed in (0, 1)}
    assert runs == searched | finals
    stored = stored_results(folder)
    assert stored.points == results.points
    assert list(chosen(stored)) == list(chosen(results))
    assert list(search_results(stored)) == list(search_results(results))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ms_sl.json", "{}"),
        ("ms_sl-0.1-8-0.json", "{"),
        ("ms_sl-0.1-8-0.json", "[1]"),
        ("ms_sl-0.1-8-0.json", '{"test": 3}'),
    ],
)
def test_a_file_that_is_no_result_is_named(folder, name, text):
    (folder / name).write_text(text)
    with refused(ConfigError, name):
        stored_results(folder)


@pytest.mark.parametrize("name", ["sizes.json", "data.json", "untrained.json"])
def test_a_folder_without_a_file_of_the_study_is_refused(folder, name):
    (folder / name).unlink()
    with refused(ConfigError, name):
        stored_results(folder)


@pytest.mark.parametrize("name", ["sizes.json", "data.json", "untrained.json", "costs.json"])
@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_file_of_the_study_is_named(folder, name, text):
    (folder / name).write_text(text)
    with refused(ConfigError, name):
        stored_results(folder)


def test_ranks_of_other_data_and_folders_without_results_are_refused(folder, tmp_path):
    path = next(run.path for run in stored_runs(folder) if run.ranks)
    path.write_text(json.dumps({"test": [1, 2]}))
    with refused(ConfigError, path.name, "2"):
        stored_results(folder)
    for run in stored_runs(folder):
        run.path.unlink()
    assert not has_results(folder)
    assert not has_results(tmp_path / "missing")
    with refused(ConfigError, "tvr"):
        stored_results(folder)


def test_candidates_without_costs_have_empty_cells(folder):
    (folder / "costs.json").unlink()
    assert all(line[-3:] == ("", "", "") for line in table(stored_results(folder)).lines)
