"""A run that was killed and continued has the same result as one that was not killed."""

import json
import multiprocessing
import signal

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from tests.training.train_child import train_here

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["lightning.fabric", "untrimmed.training.train"])


def run_child(*arguments) -> int:
    process = PROCESSES.Process(target=train_here, args=arguments)
    process.start()
    process.join(timeout=120)
    return process.exitcode


def without_times(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(data_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    options = settings(data_root, folder)
    assert run_child("gmmformer_v2", options) == 0
    return folder


def settings(data_root, folder):
    small = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
    small |= {"train.batch_size": 4, "train.epochs": 3, "train.hard_negatives_from_epoch": 1}
    return {"data": "tvr", "root": data_root, "out": folder, **small}


@pytest.mark.check
@pytest.mark.parametrize(
    "kill_at",
    ["step 1", "step 6", "validating 2", "model.safetensors", "config.json", "metrics.jsonl", "last.safetensors"],
)
def test_a_killed_run_goes_on_to_the_same_result(kill_at, uninterrupted, data_root, tmp_path):
    folder = tmp_path / "run"
    options = settings(data_root, folder)
    assert run_child("gmmformer_v2", options, kill_at) == -signal.SIGKILL
    assert run_child("gmmformer_v2", options) == 0
    there, here = without_times(uninterrupted), without_times(folder)
    assert len(there) == len(here) == 3
    for theirs, ours in zip(there, here, strict=True):
        assert ours.pop("val") == theirs.pop("val")
        assert ours == pytest.approx(theirs, rel=1e-6)
    for file in ("model.safetensors", "last.safetensors"):
        theirs, ours = load_file(uninterrupted / file), load_file(folder / file)
        assert theirs.keys() == ours.keys()
        assert all((theirs[name] - ours[name]).abs().max() <= 1e-6 for name in theirs)
    assert not list(folder.glob(".*"))


@pytest.mark.check
@pytest.mark.parametrize("kill_at", ["step 8", "validating 2", "last.safetensors"])
def test_a_killed_run_over_captions_that_is_chosen_by_moments_goes_on_too(kill_at, data_root, tmp_path):
    event = {"preset": "charades_event", "model.num_centers": 4, "model.num_widths": 3}
    whole, cut = (settings(data_root, tmp_path / name) | event | {"train.batch_size": 20} for name in ("whole", "cut"))
    assert run_child("jsg", whole) == 0
    assert run_child("jsg", cut, kill_at) == -signal.SIGKILL
    assert run_child("jsg", cut) == 0
    there, here = without_times(tmp_path / "whole"), without_times(tmp_path / "cut")
    assert "event SumR" in here[0]["val"]
    assert here == there
    for file in ("model.safetensors", "last.safetensors"):
        theirs, ours = load_file(tmp_path / "whole" / file), load_file(tmp_path / "cut" / file)
        assert theirs.keys() == ours.keys()
        assert all((theirs[name] == ours[name]).all() for name in theirs)


def test_a_state_inside_an_epoch_is_used(data_root, tmp_path):
    folder = tmp_path / "run"
    options = settings(data_root, folder)
    assert run_child("ms_sl", options, "step 7") == -signal.SIGKILL
    assert updates_in(folder) == 6  # two steps into the second epoch
    assert run_child("ms_sl", options, "step 2") == -signal.SIGKILL
    assert updates_in(folder) == 7


def updates_in(folder):
    with safe_open(folder / "last.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["state"])["updates"]
