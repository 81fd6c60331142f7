"""The trainings of a study: settings of each candidate, and the folder of its run."""

import shutil
from dataclasses import replace

import pytest

from tests.refusals import refused, require_named
from tests.run_world import SMALL
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError
from untrimmed.study.greedy import CandidateResult, Growth
from untrimmed.study.setup import OPTIONS, Candidate, Point, StudySetup, points_of, require_terms
from untrimmed.study.study import StudyPlan, StudyResults, _finalists

FORM = "proto,model.iterations=1,model.builder=perceiver,train.weight_decay=1e-05"


@pytest.fixture
def setup(data_root, tmp_path):
    return StudySetup(data="tvr", root=data_root, out=tmp_path, dim=8, frames=20, batch=4)


@pytest.fixture
def of(setup):
    return lambda text: setup.trial(Candidate.of(text), point=Point(3e-4), steps=40, seed=2)


def test_settings_of_a_candidate_only_change_its_own_run(of):
    trial, plain, changed = of(FORM), of("proto"), {"model.iterations": 1, "model.builder": "perceiver"}
    assert trial.overrides == plain.overrides | changed | {"train.weight_decay": 1e-5}
    assert trial.settings.model["iterations"] == 1
    assert trial.fitted_settings.model["query_dim"] == 12


def test_late_losses_begin_after_the_published_share_of_epochs(of):
    settled = of("ms_sl+transport").settings  # published: 100 epochs, transport from 20, hard negatives from 20
    assert settled.train.epochs == 10  # 16 videos to learn from, 4 a step
    assert settled.losses["transport"]["warmup_epoch"] == settled.train.hard_negatives_from_epoch == 2


def test_every_candidate_has_its_own_folder(of, tmp_path):
    assert of(FORM).folder == tmp_path / "tvr" / f"{FORM}-0.0003-40-2"
    assert of("gmmformer_v2+ral").folder == tmp_path / "tvr" / "gmmformer_v2+ral-0.0003-40-2"


def test_a_grid_has_every_combination_with_every_rate():
    points = points_of((1e-3, 3e-4), ("model.dropout=0.1,0.2", "weights.nce=1"))
    assert list(map(str, points)) == [
        f"rate {rate}, model.dropout={dropout}, weights.nce=1" for rate in (0.001, 0.0003) for dropout in (0.1, 0.2)
    ]


@pytest.mark.parametrize(
    ("grid", "named"),
    [
        (["model.dropout"], "model.dropout=0.1,0.2"),
        (["dropout=0.1"], "dropout"),
        (["model.dropout=[1"], "model.dropout"),
        (["model.dropout=0.1", "model.dropout=0.2"], "model.dropout"),
    ],
)
def test_a_wrong_grid_is_refused(grid, named):
    with refused(ConfigError, named):
        points_of((1e-3,), grid)


def test_a_point_of_the_grid_trains_with_its_settings_in_a_run_of_its_own(setup, of, tmp_path):
    point = Point(3e-4, ("model.dropout=0.2",))
    trial = setup.trial(Candidate.of("ms_sl"), point=point, steps=40, seed=2)
    assert trial.folder == tmp_path / "tvr" / "ms_sl@model.dropout=0.2-0.0003-40-2"
    assert trial.overrides == of("ms_sl,model.dropout=0.2").overrides
    with refused(ConfigError, "model.dropout", "--grid"):
        setup.trial(Candidate.of("ms_sl,model.dropout=0.3"), point=point, steps=40, seed=2)


@pytest.mark.parametrize(("key", "option"), OPTIONS.items())
def test_a_setting_of_the_study_is_refused_with_its_option(setup, key, option):
    for candidate, settings in ((f"ms_sl,{key}=5", ()), ("ms_sl", (f"{key}=5",))):
        with refused(ConfigError, key, option):
            setup.trial(Candidate.of(candidate), point=Point(3e-4, settings), steps=40, seed=2)


def test_a_candidate_starts_from_the_file_with_most_of_its_attachments(setup, tmp_path):
    files = []
    for number, method in enumerate(("ms_sl", "ms_sl+ral")):
        text = (
            f"method: {method}\ndataset: mine\nmodel: {{}}\nweights: {{clip_nce: {number + 1}}}\ntrain: {{epochs: 9}}\n"
        )
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_text(text)
    setup = replace(setup, presets=tuple(files))
    for text, weight in (("ms_sl", 1), ("ms_sl+transport", 1), ("ms_sl+ral", 2), ("ms_sl+transport+ral", 2)):
        settings = setup.trial(Candidate.of(text), point=Point(1e-3), steps=40, seed=0).settings
        assert (settings.weights["clip_nce"], settings.train.epochs) == (weight, 10), text
    assert setup.preset_for(Candidate.of("gmmformer").name) == "tvr"


def test_a_finished_run_with_other_settings_is_refused(setup, small):
    trial = setup.trial(Candidate.of("ms_sl"), point=Point(3e-4), steps=4, seed=0)
    trial.train()
    trial.require_same()
    changed = replace(trial, overrides={**trial.overrides, "weights.clip_nce": 7.0})
    with refused(ConfigError, "weights.clip_nce", "7.0", "--out"):
        changed.require_same()


def test_a_weight_may_belong_to_a_loss_that_a_setting_adds(of):
    require_terms(of("ms_sl,losses.query_similarity.temperature=0.1,weights.query_similarity=1.0,weights.clip_nce=0.5"))


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_damaged_file_of_figures_is_named(of, text):
    trial = of("ms_sl")
    trial.note.parent.mkdir()
    trial.note.write_text(text)
    with refused(ConfigError, trial.note.name):
        trial.measured("val", lambda run: 1.0)


@pytest.mark.parametrize("text", ['{"dim": 8}', "{"])
def test_a_damaged_file_of_sizes_is_named(setup, text):
    setup.folder.mkdir()
    (setup.folder / "sizes.json").write_text(text)
    with refused(ConfigError, "sizes.json"):
        setup.require_own()


@pytest.mark.parametrize("text", ["proto,", "proto,iterations", "proto,model.x=../y", "proto,model.x=[1", "a/b"])
def test_settings_that_do_not_fit_a_folder_name_are_refused(text):
    with refused(ConfigError, "METHOD", "METHOD,KEY=VALUE"):
        Candidate.of(text)


def test_a_setting_without_a_section_is_refused():
    with refused(ConfigError, "dropout", "model"):
        Candidate.of("proto,dropout=0.1")


def test_an_impossible_combination_is_refused_without_training(of):
    assert of("ms_sl+evidence").refusal() == ""
    require_named(of("ms_sl+registers").refusal(), "ms_sl", "registers")
    assert of("gmmformer_v2+registers+ral").refusal() == ""


def test_runs_of_other_sizes_are_refused(setup, of):
    replace(setup, dim=4).require_own()
    setup.require_own()  # nothing was trained with 4
    of(FORM).folder.mkdir()
    setup.require_own()
    with refused(ConfigError, "dim", "8", "16", "--out"):
        replace(setup, dim=16).require_own()


@pytest.fixture
def other_root(tmp_path):
    """The setup with the same sizes and other random data."""
    simulate("tvr", tmp_path / "other", num_videos=24, settings=replace(SMALL, seed=7))
    return tmp_path / "other"


@pytest.mark.parametrize("kept", ["untrained.json", "ms_sl-0.0003-40-0.json"])
def test_other_data_of_equal_size_is_refused(setup, of, other_root, kept):
    setup.require_own()
    (of(FORM).folder.parent / kept).write_text("{}", encoding="utf-8")
    own, other = setup, replace(setup, root=other_root)
    for require in (other.require_same, other.require_own):
        with refused(ConfigError, own.identity, other.identity):
            require()
    own.require_own()


def test_moved_data_has_the_same_identity(setup, data_root, tmp_path):
    shutil.copytree(data_root / "tvr", tmp_path / "moved" / "tvr")
    assert replace(setup, root=tmp_path / "moved").identity == setup.identity


def test_facts_of_the_data_are_known_without_it(setup, data_root, tmp_path):
    setup.require_own()
    stored = replace(setup, root=tmp_path / "missing").facts
    assert stored == setup.facts
    assert (stored.videos, stored.captions["test"]) == ({"train": 16, "val": 4, "test": 4}, len(setup.sets[2].texts))
    assert stored.simulation == {"query_dim": 12, "video_dim": 10, "teacher_dim": 4, "frames_per_second": 0.5}
    assert stored.benchmark == "tvr"
    assert replace(setup, data="mine").facts.benchmark == "tvr"


def test_facts_of_other_data_are_replaced_before_training(setup, other_root):
    setup.require_own()
    other = replace(setup, root=other_root)
    assert other.facts.simulation == setup.facts.simulation  # read from the folder
    other.require_own()
    assert other.facts.simulation["seed"] == 7
    assert replace(setup).facts.simulation["seed"] == 7


@pytest.mark.shared
def test_a_variant_of_a_benchmark_uses_its_presets(shared, tmp_path):
    simulate(
        "charades",
        tmp_path,
        num_videos=10,
        annotations_dir=shared / "data" / "annotations",
        data_set="mixed",
        settings=replace(SMALL, words="mixed"),
    )
    setup = StudySetup(data="mixed", root=tmp_path, out=tmp_path / "runs", dim=8, frames=20, batch=4)
    assert setup.facts.simulation["words"] == "mixed"
    trial = setup.trial(Candidate.of("dl_dkd"), point=Point(3e-4), steps=4, seed=0)
    assert trial.settings.dataset == "charades"


def test_cached_results_of_other_data_are_refused(setup, of):
    trial = of(FORM)
    trial.note.parent.mkdir()
    trial.note.write_text('{"val": 100.0, "test": [1, 2]}', encoding="utf-8")
    with refused(ConfigError, "2", "tvr"):
        setup.report(trial)


def test_a_finalist_of_two_methods_uses_the_rate_with_the_best_result(setup):
    one, other, both = (Candidate.of(text) for text in ("ms_sl", "ms_sl+ral", "ms_sl+ral+evidence"))
    first = Growth(
        (CandidateResult(one, 100, one), CandidateResult(other, 103, one, one), CandidateResult(both, 104, one, other)),
        (one,),
        {},
    )
    second = Growth((CandidateResult(other, 102, other), CandidateResult(both, 109, other, other)), (other,), {})
    for growths in ((first, second), (second, first)):
        plan, rates = StudyPlan(methods=(one, other), attachments=("evidence",), finalists=1), {one: 1e-3, other: 1e-4}
        points = {method: Point(rate) for method, rate in rates.items()}
        found = StudyResults(setup=setup, plan=plan, points=points, growths=growths, finalists=(), untrained={})
        assert [each.sum_r for each in found.ranking] == [109, 103, 100]
        assert [found.base_of(each) for each in (both, other, one)] == [other, one, one]
        assert _finalists(found) == (both, other, one), "each with the method that it grew from"
