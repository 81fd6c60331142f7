"""What a study trains: the settings of each candidate, and where its run is."""

import shutil
from dataclasses import replace

import pytest

from tests.refusals import refused, require_named
from tests.run_world import SMALL
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError
from untrimmed.study.greedy import CandidateResult, Growth
from untrimmed.study.setup import Candidate, StudySetup
from untrimmed.study.study import StudyPlan, StudyResults, _finalists

FORM = "proto,model.iterations=1,model.prototype_residual=all,train.weight_decay=1e-05"


@pytest.fixture
def world(data_root, tmp_path):
    return StudySetup(data="tvr", root=data_root, out=tmp_path, dim=8, frames=20, batch=4)


@pytest.fixture
def of(world):
    return lambda text: world.trial(Candidate.of(text), rate=3e-4, steps=40, seed=2)


def test_settings_of_a_candidate_reach_its_run_and_no_other(of):
    trial, plain, changed = of(FORM), of("proto"), {"model.iterations": 1, "model.prototype_residual": "all"}
    assert trial.overrides == plain.overrides | changed | {"train.weight_decay": 1e-5}
    assert trial.settings.model["iterations"] == 1
    assert trial.fitted_settings.model["query_dim"] == 12


def test_what_begins_late_does_so_after_the_same_share_of_the_epochs(of):
    settled = of("ms_sl+transport").settings  # published: 100 epochs, transport from 20, hard negatives from 20
    assert settled.train.epochs == 10  # 16 videos to learn from, 4 a step
    assert settled.losses["transport"]["warmup_epoch"] == settled.train.hard_negatives_from_epoch == 2


def test_runs_of_each_form_lie_apart(of, tmp_path):
    assert of(FORM).folder == tmp_path / "tvr" / f"{FORM}-0.0003-40-2"
    assert of("gmmformer_v2+ral").folder == tmp_path / "tvr" / "gmmformer_v2+ral-0.0003-40-2"


@pytest.mark.parametrize("text", ["proto,", "proto,iterations", "proto,model.x=../y", "proto,model.x=[1", "a/b"])
def test_settings_that_cannot_be_part_of_a_name_are_refused(text):
    with refused(ConfigError, "METHOD", "METHOD,KEY=VALUE"):
        Candidate.of(text)


def test_why_a_combination_cannot_be_is_known_without_training(of):
    assert of("ms_sl+evidence").refusal() == ""
    require_named(of("ms_sl+registers").refusal(), "ms_sl", "registers")
    assert of("gmmformer_v2+registers+ral").refusal() == ""


def test_runs_of_other_sizes_are_refused(world, of):
    replace(world, dim=4).require_own()
    world.require_own()  # nothing was trained with 4
    of(FORM).folder.mkdir()
    world.require_own()
    with refused(ConfigError, "dim", "8", "16", "--out"):
        replace(world, dim=16).require_own()


@pytest.fixture
def other_root(tmp_path):
    """The same sizes and another draw of the world."""
    simulate("tvr", tmp_path / "other", num_videos=24, settings=replace(SMALL, seed=7))
    return tmp_path / "other"


@pytest.mark.parametrize("kept", ["untrained.json", "ms_sl-0.0003-40-0.json"])
def test_other_data_of_equal_size_is_refused(world, of, other_root, kept):
    world.require_own()
    (of(FORM).folder.parent / kept).write_text("{}", encoding="utf-8")
    own, other = world, replace(world, root=other_root)
    for require in (other.require_same, other.require_own):
        with refused(ConfigError, own.identity, other.identity):
            require()
    own.require_own()


def test_data_are_known_in_another_folder(world, data_root, tmp_path):
    shutil.copytree(data_root / "tvr", tmp_path / "moved" / "tvr")
    assert replace(world, root=tmp_path / "moved").identity == world.identity


def test_what_was_kept_of_other_data_is_refused(world, of):
    trial = of(FORM)
    trial.note.parent.mkdir()
    trial.note.write_text('{"val": 100.0, "test": [1, 2]}', encoding="utf-8")
    with refused(ConfigError, "2", "tvr"):
        world.report(trial)


def test_a_finalist_that_two_methods_grew_into_learns_at_the_rate_that_took_it_furthest(world):
    one, other, both = (Candidate.of(text) for text in ("ms_sl", "ms_sl+ral", "ms_sl+ral+evidence"))
    first = Growth(
        (CandidateResult(one, 100, one), CandidateResult(other, 103, one, one), CandidateResult(both, 104, one, other)),
        (one,),
        {},
    )
    second = Growth((CandidateResult(other, 102, other), CandidateResult(both, 109, other, other)), (other,), {})
    for growths in ((first, second), (second, first)):
        plan, rates = StudyPlan(methods=(one, other), attachments=("evidence",), finalists=1), {one: 1e-3, other: 1e-4}
        found = StudyResults(world=world, plan=plan, rates=rates, growths=growths, finalists=(), untrained={})
        assert [each.sum_r for each in found.tried] == [109, 103, 100]
        assert [found.base_of(each) for each in (both, other, one)] == [other, one, one]
        assert _finalists(found) == (both, other, one), "every one beside the method that it grew from"
