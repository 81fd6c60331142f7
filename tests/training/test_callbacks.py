"""Several callbacks, by function, class or name; what they receive; TensorBoard and Weights & Biases."""

import json

import pytest

from tests.refusals import refused
from tests.training.test_open_loop import Interruption, interrupt_at
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.training import loop as loop_module
from untrimmed.training.loggers import TensorBoard, WandB
from untrimmed.training.train import train

IDEAS = '''
"""Functions and classes that a test names by this file."""

import json


class Notes:
    """Writes one line for each stage into the run's folder."""

    def __init__(self, name="notes.jsonl"):
        self.name = name
        self.count = 0

    def __call__(self, progress):
        self.count += 1
        with open(progress.folder / self.name, "a") as file:
            line = [progress.stage, progress.updates, self.count, progress.config.train.seed, progress.process]
            file.write(json.dumps(line) + "\\n")

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def stop_at_once(progress):
    return "stop"


class Needs:
    def __init__(self, path):
        self.path = path

    def __call__(self, progress):
        pass
'''


@pytest.fixture(scope="module")
def ideas(tmp_path_factory):
    file = tmp_path_factory.mktemp("ideas") / "ideas_of_a_test.py"
    file.write_text(IDEAS)
    return file


@pytest.fixture
def run_with(data_root, small, tmp_path):
    def run(callback, name="run", **settings):
        return train("ms_sl", data="tvr", root=data_root, out=tmp_path / name, callback=callback, **(small | settings))

    return run


def notes(run):
    return [json.loads(line) for line in (run.folder / "notes.jsonl").read_text().splitlines()]


def test_several_callbacks_receive_every_stage(ideas, run_with):
    seen = []
    run = run_with([seen.append, f"{ideas}:Notes"], **{"train.accumulate": 2})
    stages = ["training"] * 4 + ["validating", "validated"]
    assert [step.stage for step in seen] == [*stages, *stages, "finished"]
    assert [step.updates for step in seen] == [0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4]
    assert [line[:3] for line in notes(run)] == [[s.stage, s.updates, n + 1] for n, s in enumerate(seen)]
    assert {tuple(line[3:]) for line in notes(run)} == {(run.config.train.seed, 0)}
    assert (seen[-1].step, seen[-1].loss) == (4, run.history[-1]["loss"])
    losses = [step.batch_terms["loss"] for step in seen[:4]]
    assert sum(losses) / 4 == pytest.approx(run.history[0]["loss"])
    assert set(seen[0].batch_terms) == {*run.config.weights, "loss"}


def test_any_callback_ends_the_training_and_all_are_called(ideas, run_with):
    seen = []
    run = run_with([f"{ideas}:stop_at_once", seen.append])
    assert len(run.history) == 1
    assert [step.stage for step in seen] == ["training", "validating", "validated", "finished"]


def test_a_stop_completes_the_update_that_has_begun(ideas, run_with):
    seen = []
    run = run_with([f"{ideas}:stop_at_once", seen.append], **{"train.accumulate": 3})
    assert [step.stage for step in seen] == ["training"] * 3 + ["validating", "validated", "finished"]
    assert run.history[0]["updates"] == 1


def test_the_state_of_a_callback_survives_an_interruption(ideas, run_with, monkeypatch):
    monkeypatch.setattr(loop_module, "SAVE_EVERY_S", 0.0)
    whole = run_with(f"{ideas}:Notes", "whole")
    with pytest.raises(Interruption):
        run_with([f"{ideas}:Notes", interrupt_at(3)])
    cut = run_with([f"{ideas}:Notes"])
    repeated = notes(cut)[3]
    assert repeated == notes(cut)[2]  # the third step was not saved
    assert [*notes(cut)[:3], *notes(cut)[4:]] == notes(whole)


@pytest.mark.parametrize(
    ("callback", "error", "words"),
    [
        ("tensorbord", UnknownNameError, ("callback", "'tensorbord'", "'tensorboard'")),
        ("{ideas}:Note", ConfigError, ("callback", "'Note'", "'Notes'")),
        ("{ideas}:Needs", ConfigError, ("Needs", "'path'")),
        (["tensorboard", 3], ConfigError, ("callback", "3")),
        ([lambda: None], ConfigError, ("callback",)),
    ],
)
def test_wrong_callbacks_are_refused_before_anything_is_written(callback, error, words, ideas, run_with, tmp_path):
    callback = callback.format(ideas=ideas) if isinstance(callback, str) else callback
    with refused(error, *words):
        run_with(callback)
    assert not (tmp_path / "run").exists()


def scalars(folder):
    """The values of each tag by step, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_each_update_and_each_epoch_once_also_after_an_interruption(run_with, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(loop_module, "SAVE_EVERY_S", 0.0)
    seen = []
    with pytest.raises(Interruption):
        run_with(["tensorboard", seen.append, interrupt_at(6)])
    del seen[-1]  # it is repeated, because it was not saved
    run = run_with(["tensorboard", seen.append])
    shown = scalars(run.folder / "tensorboard")
    steps = [step for step in seen if step.stage == "training"]
    for name in (*run.config.weights, "loss"):
        assert [step for step, _ in shown[f"train/{name}"]] == list(range(1, 9))
        values = [value for _, value in shown[f"train/{name}"]]
        assert values == pytest.approx([step.batch_terms[name] for step in steps])
    assert [value for _, value in shown["train/learning_rate"]] == pytest.approx([s.learning_rate for s in steps])
    sums = [(entry["updates"], entry["val"]["SumR"]) for entry in run.history]
    assert [step for step, _ in shown["val/SumR"]] == [updates for updates, _ in sums]
    assert [value for _, value in shown["val/SumR"]] == pytest.approx([value for _, value in sums])
    assert shown["epoch"] == [(4, 1.0), (8, 2.0)]


def test_tensorboard_records_updates_of_several_batches_once_also_after_an_interruption(run_with, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(loop_module, "SAVE_EVERY_S", 0.0)
    with pytest.raises(Interruption):
        run_with(["tensorboard", interrupt_at(6)], **{"train.accumulate": 2})
    run = run_with("tensorboard", **{"train.accumulate": 2})
    whole = run_with("tensorboard", "whole", **{"train.accumulate": 2})
    shown, expected = (scalars(folder / "tensorboard") for folder in (run.folder, whole.folder))
    assert [step for step, _ in expected["train/loss"]] == [1, 2, 3, 4]
    assert [step for step, _ in expected["val/SumR"]] == [2, 4]
    assert shown == expected


def test_one_callback_writes_several_runs_to_their_folders(run_with):
    pytest.importorskip("tensorboard")
    callback = TensorBoard()
    runs = [run_with(callback, name) for name in ("first", "second")]
    for run in runs:
        assert [step for step, _ in scalars(run.folder / "tensorboard")["train/loss"]] == list(range(1, 9))


@pytest.mark.check
def test_weights_and_biases_logs_settings_updates_and_epochs_of_one_run(run_with, monkeypatch, tmp_path):
    pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONFIG_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(loop_module, "SAVE_EVERY_S", 0.0)
    with pytest.raises(Interruption):
        run_with(["wandb", interrupt_at(6)])
    run = run_with("wandb")
    files = list((run.folder / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len({file.stem for file in files}) == 1  # the same id after the interruption
    content = b"".join(file.read_bytes() for file in files)
    for name in (*run.config.weights, "loss", "learning_rate"):
        assert content.count(f"train/{name}".encode()) >= 8
    assert b"val/SumR" in content
    assert b"eval_video_batch" in content


@pytest.mark.check
def test_one_callback_logs_several_runs_with_ids_of_their_own(run_with, monkeypatch, tmp_path):
    pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONFIG_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    callback = WandB()
    runs = [run_with(callback, name) for name in ("first", "second")]
    files = [list((run.folder / "wandb").glob("offline-run-*/run-*.wandb")) for run in runs]
    assert list(map(len, files)) == [1, 1]
    assert files[0][0].name != files[1][0].name
    for (file,) in files:
        assert file.read_bytes().count(b"train/loss") >= 8
