"""A training in its own folder is trained once, and its figures are stored beside it."""

import json
import pickle
from dataclasses import replace
from threading import Thread

import pytest
from filelock import FileLock

from untrimmed.running.run import Run
from untrimmed.training import trials
from untrimmed.training.trials import Trial

SMALL = {"model.dim": 8, "model.max_frames": 20, "train.batch_size": 4, "train.epochs": 1}


@pytest.fixture
def trial(data_root, tmp_path):
    folder = tmp_path / "trials" / "one"
    return Trial(method="clip4clip", data="tvr", root=data_root, folder=folder, overrides=SMALL, data_widths=True)


def test_what_is_finished_is_not_trained_again_and_its_figures_are_enough(trial, monkeypatch):
    run = trial.train()
    assert (run.folder, trial.is_finished, trial.figures) == (trial.folder, True, {})
    assert run.config.model["query_dim"] == trial.fitted_settings.model["query_dim"] == 12
    monkeypatch.setattr(trials, "train", None)
    assert trial.train().history == run.history
    assert trial.measured("epochs", lambda run: len(run.history)) == 1
    moved = replace(trial, folder=trial.folder.with_name("two"))
    trial.note.rename(moved.note)
    assert (moved.is_finished, moved.measured("epochs", pytest.fail)) == (False, 1)
    assert json.loads(moved.note.read_text()) == {"epochs": 1}


def test_a_training_that_another_process_is_at_is_waited_for(trial, monkeypatch):
    made = []
    monkeypatch.setattr(trials, "train", lambda method, **_: made.append(method) or object.__new__(Run))
    trial.folder.parent.mkdir()
    with FileLock(trial.folder.parent / f"{trial.folder.name}.lock"):
        other = Thread(target=trial.train)
        other.start()
        other.join(0.3)
        assert made == []
    other.join()
    assert made == ["clip4clip"]


def test_a_trial_can_be_sent_to_another_process(trial):
    assert trial.fitted_overrides["model.query_dim"] == 12
    assert pickle.loads(pickle.dumps(trial)) == trial


def test_why_settings_cannot_exist_is_said_without_features(trial, tmp_path):
    gone = replace(trial, root=tmp_path, overrides={"model.dim": 7, "model.num_heads": 4}, method="ms_sl")
    assert "num_heads" in gone.refusal()
    assert replace(gone, overrides=SMALL).refusal() == ""
