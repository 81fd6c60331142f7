"""Models and data sets that are objects: trained, evaluated, stopped by a callback, and refused in one line."""

import numpy as np
import pytest
import torch

import untrimmed
from tests.refusals import refused
from untrimmed import Annotation, dataset_of_arrays
from untrimmed.data.packed import PackSettings
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.models.storage import save_model
from untrimmed.presets import has_preset, load_preset
from untrimmed.running.loaded import without_run

QUICK = {"train.epochs": 2, "train.batch_size": 4, "model.dim": 8}
SIZES = {"num_clips": 8, "max_frames": 16, "max_words": 6}


def make(split, num_videos=6, seed=0, *, query_dim=12, video_dim=10, **sizes):
    """A split of two captions a video, its features random."""
    draw = np.random.default_rng([seed, num_videos]).normal
    videos = [f"{split}{number}" for number in range(num_videos)]
    captions = [
        Annotation(video, f"{video}#{n}", f"sentence {n}", ((n, n + 3.0),), 20.0) for video in videos for n in (0, 1)
    ]
    return dataset_of_arrays(
        {video: draw(size=(20 + place, video_dim)) for place, video in enumerate(videos)},
        {caption.caption_id: draw(size=(4, query_dim)) for caption in captions},
        captions,
        PackSettings(**(SIZES | sizes)),
        name="own",
        split=split,
    )


@pytest.fixture(scope="module")
def sets():
    return make("train"), make("val", 5), make("test", 4)


@pytest.fixture(scope="module")
def run(sets, tmp_path_factory):
    return untrimmed.train("ms_sl", data=sets[:2], out=tmp_path_factory.mktemp("runs") / "run", **QUICK)


def test_a_method_trains_on_arrays_with_their_sizes_and_is_evaluated_on_others(run, sets):
    model = run.config.model
    assert {key: model[key] for key in SIZES} == SIZES
    assert (model["query_dim"], model["video_dim"], run.config.data.name, run.config.data.root) == (12, 10, "own", None)
    ways = (run, run.folder, run.load_model(), untrimmed.load(run))
    reports = [str(untrimmed.evaluate(way, sets[2])) for way in ways]
    assert reports == [str(untrimmed.load(run).evaluate(sets[2]))] * 4
    assert reports[0].startswith("ms_sl on own, test: R@1 ")


def test_a_run_on_arrays_goes_on_with_these_and_with_no_others(run, sets):
    again = untrimmed.train("ms_sl", data=sets[:2], out=run.folder, **QUICK)
    assert again.history == run.history
    with refused(ConfigError, "data.digest"):
        untrimmed.train("ms_sl", data=(make("train", seed=1), sets[1]), out=run.folder, **QUICK)


def test_a_run_on_arrays_needs_data_to_be_evaluated(run):
    with pytest.raises(ConfigError):
        untrimmed.evaluate(run)


def test_a_model_is_trained_in_place_from_the_weights_it_has(sets, tmp_path):
    model = untrimmed.create_model("gmmformer+diversity", query_dim=12, video_dim=10, dim=8, **SIZES)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    quick = {"train.epochs": 1, "train.batch_size": 4, "train.learning_rate": 1e-9}
    run = untrimmed.train(model, data=sets[:2], out=tmp_path / "run", **quick)
    after = run.load_model().state_dict()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert all(torch.equal(after[name], model.state_dict()[name]) for name in after)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert run.config.method == "gmmformer+query_diversity"


def test_a_model_is_never_given_the_weights_of_another_one_s_run(sets, tmp_path):
    quick = {"train.epochs": 1, "train.batch_size": 4}
    one, other = (untrimmed.create_model("ms_sl", query_dim=12, video_dim=10, dim=8, **SIZES) for _ in range(2))
    first = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    run = untrimmed.train(one, data=sets[:2], out=tmp_path / "run", **quick)
    with refused(ConfigError, "initial_weights", "(out)"):
        untrimmed.train(other, data=sets[:2], out=run.folder, **quick)
    assert all(torch.equal(before[name], tensor) for name, tensor in other.state_dict().items())
    assert untrimmed.train(one, data=sets[:2], out=run.folder, **quick).history == run.history  # its own goes on
    other.load_state_dict(first)  # as in a new process
    assert untrimmed.train(other, data=sets[:2], out=run.folder, **quick).history == run.history


def test_a_model_that_is_made_takes_no_more_settings(sets, tmp_path):
    model = untrimmed.create_model("ms_sl", query_dim=12, video_dim=10, dim=8, **SIZES)
    with refused(ConfigError, "model.dim"):
        untrimmed.train(model, data=sets[:2], out=tmp_path / "run", **{"model.dim": 16})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_clips": 4}, ("num_clips=4", "8", "num_clips=8")),
        ({"max_frames": 32}, ("max_frames=32", "16")),
        ({"fixed_frames": True}, ("fixed_frames=True", "False")),
    ],
)
def test_arrays_made_for_another_model_are_refused(change, message, sets, tmp_path):
    model = untrimmed.create_model("ms_sl", query_dim=12, video_dim=10, dim=8, **SIZES)
    with refused(ConfigError, *message):
        untrimmed.train(model, data=(make("train", **change), sets[1]), out=tmp_path / "run")
    with refused(ConfigError, *message):
        untrimmed.evaluate(model, make("test", **change))


@pytest.mark.parametrize("method", [name for name in untrimmed.list_models() if has_preset(name, "tvr")])
def test_a_model_is_evaluated_on_what_it_is_trained_on(method, tmp_path):
    """The method determines how frames are read and batched, before and after training and in a saved copy."""
    preset = load_preset(method, "tvr")
    sizes = {"num_clips": 16, "max_frames": 16, "max_words": 6}
    if preset.features.fixed_frames:
        sizes["max_frames"] = sizes["num_clips"] = 32
    train_set, val_set = (make(split, fixed_frames=preset.features.fixed_frames, **sizes) for split in ("train", "val"))
    model = untrimmed.create_model(method, query_dim=12, video_dim=10, dim=8, **sizes)
    untrimmed.evaluate(model, val_set)
    if preset.features.teacher is None:  # arrays have none
        quick = {"train.epochs": 1, "train.batch_size": 4}
        run = untrimmed.train(model.eval(), data=(train_set, val_set), out=tmp_path / "run", **quick)
        model, saved = run.load_model(), tmp_path / "alone"
        wanted = str(untrimmed.evaluate(run, val_set))
        save_model(model, saved)
        assert str(untrimmed.evaluate(model, val_set)) == str(untrimmed.load(saved).evaluate(val_set)) == wanted
    loaded = without_run(model, untrimmed.load, "it")
    assert loaded.train.eval_video_batch == preset.train.eval_video_batch


def test_arrays_of_another_width_are_refused(run):
    with refused(FeatureError, "11", "10"):
        untrimmed.evaluate(run, make("test", video_dim=11))


def test_a_loaded_model_encodes_and_scores_arrays_as_the_evaluation_does(run, sets):
    test, draw = sets[2], np.random.default_rng([0, 4]).normal
    frames = [draw(size=(20 + place, 10)) for place in range(4)]
    words = [draw(size=(4, 12)) for _ in range(8)]
    model = untrimmed.load(run)
    queries, videos = model.encode_queries(words), model.encode_videos(frames)
    wanted = model.on(test).score().fused
    np.testing.assert_allclose(model.score(queries, videos).fused.numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            [np.ones((3, 9))],
            ("frames[0]", "(3, 9)", "float64", "10"),
        ),
        ([np.ones((3, 10)), np.full((2, 10), np.nan)], ("frames[1]",)),
        ([], ("frames",)),
    ],
)
def test_wrong_frames_are_refused_by_their_place(tables, message, run):
    with refused(FeatureError, *message):
        untrimmed.load(run).encode_videos(tables)


def test_a_callback_sees_results_and_ends_the_training(sets, tmp_path):
    seen = []

    def until_second_step(progress):
        seen.append(progress)
        return "stop" if (progress.epoch, progress.step, progress.stage) == (2, 1, "training") else None

    settings = QUICK | {"train.epochs": 9}
    run = untrimmed.train("ms_sl", data=sets[:2], out=tmp_path / "run", callback=until_second_step, **settings)
    stages = [(progress.epoch, progress.step, progress.stage) for progress in seen]
    assert stages[-3:] == [(2, 1, "validating"), (2, 1, "validated"), (2, 1, "finished")]
    assert seen[-1].loss == run.history[-1]["loss"] == pytest.approx(seen[-2].loss)
    assert seen[-1].terms.keys() == seen[-2].terms.keys()
    assert [progress.results for progress in seen if progress.stage == "validated"] == [e["val"] for e in run.history]
    assert seen[1].learning_rate > 0
    assert seen[0].model.name == "ms_sl"
    again = []
    run = untrimmed.train("ms_sl", data=sets[:2], out=run.folder, callback=again.append, **settings)
    assert len(run.history) == 2  # it is finished
    assert [(progress.epoch, progress.stage) for progress in again] == [(2, "finished")]


def test_a_callback_with_a_wrong_answer_is_refused(sets, tmp_path):
    with refused(ConfigError, "'stpo'", "'stop'"):
        untrimmed.train("ms_sl", data=sets[:2], out=tmp_path / "run", callback=lambda progress: "stpo", **QUICK)
