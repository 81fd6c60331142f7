"""A run records the versions, commit, device and threads of every process that trains it."""

import json
import platform
import subprocess

import pytest
import torch

from untrimmed.running import environment
from untrimmed.running.environment import ENVIRONMENT, describe_environment, record_environment
from untrimmed.training.train import train
from untrimmed.version import __version__


def records(folder):
    return [json.loads(line) for line in (folder / ENVIRONMENT).read_text(encoding="utf-8").splitlines()]


def test_each_training_and_continuation_adds_one_record(data_root, tmp_path, small):
    def stop_in_the_second_epoch(progress):
        if progress.stage == "training" and progress.epoch == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    settings = {"data": "tvr", "root": data_root, "out": folder, **small}
    with pytest.raises(KeyboardInterrupt):
        train("ms_sl", callback=stop_in_the_second_epoch, **settings)
    assert [record["update"] for record in records(folder)] == [0]
    train("ms_sl", **settings)
    first, second = records(folder)
    assert first["update"] == 0
    assert second["update"] == 4
    assert first["untrimmed"] == __version__
    assert first["torch"] == torch.__version__
    assert first["python"] == platform.python_version()
    assert first["threads"] == torch.get_num_threads()
    assert first["device"].startswith("cpu: ")
    train("ms_sl", **settings)  # is finished, so that nothing runs
    assert len(records(folder)) == 2


def test_a_package_without_a_checkout_has_no_commit(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.setattr(environment, "_PACKAGE", tmp_path)  # a checkout, but of another project
    monkeypatch.setattr(environment, "_commit", environment._commit.__wrapped__)
    assert describe_environment(torch.device("cpu"))["commit"] is None
    record_environment(tmp_path, torch.device("cpu"), update=3)
    assert records(tmp_path)[0]["update"] == 3
