"""Runs with missing files and wrong settings are refused in one line, and nothing is overwritten."""

import shutil

import pytest

from tests.refusals import refused
from untrimmed import precision
from untrimmed.errors import CheckpointError, ConfigError, UntrimmedError
from untrimmed.running.evaluate import evaluate
from untrimmed.running.run import FORMAT, open_run
from untrimmed.training.train import train


@pytest.fixture(scope="module")
def finished(data_root, tmp_path_factory):
    """The folder of a finished run of two epochs, and the options of `train` that continue it."""
    settings = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
    settings |= {"train.batch_size": 8, "train.epochs": 2}
    folder = tmp_path_factory.mktemp("finished") / "run"
    train("ms_sl", data="tvr", root=data_root, out=folder, **settings)
    return folder, {"data": "tvr", "root": data_root, **settings}


def contents(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("missing", "error", "message"),
    [
        (["last.safetensors"], CheckpointError, ("metrics.jsonl", "2", "last.safetensors")),
        (["model.safetensors"], CheckpointError, ("model.safetensors",)),
        (["config.json"], CheckpointError, ("config.json",)),
        (["config.yaml"], ConfigError, ("(out)",)),
        (["config.yaml", "config.json"], ConfigError, ("last.safetensors", "config.yaml")),
    ],
)
def test_a_run_without_one_of_its_files_is_refused_and_unchanged(finished, tmp_path, missing, error, message):
    run_folder, options = finished
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    for name in missing:
        (folder / name).unlink()
    original = contents(folder)
    with refused(error, *message):
        train("ms_sl", out=folder, **options)
    assert contents(folder) == original


def test_missing_metrics_are_restored_from_the_saved_state(finished, tmp_path):
    run_folder, options = finished
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "metrics.jsonl").unlink()
    assert train("ms_sl", out=folder, **options).history == open_run(run_folder).history
    assert (folder / "metrics.jsonl").read_bytes() == (run_folder / "metrics.jsonl").read_bytes()


def test_evaluation_distinguishes_an_unfinished_first_epoch_from_a_missing_model(finished, tmp_path):
    run_folder, _ = finished
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "config.json").unlink()
    with refused(CheckpointError, "config.json"):
        evaluate(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(CheckpointError):
        evaluate(folder)


def test_the_files_of_a_run_have_the_permissions_of_its_folder(finished):
    run_folder, _ = finished
    assert {path.stat().st_mode & 0o777 for path in run_folder.iterdir()} == {run_folder.stat().st_mode & 0o666}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"device": "cpu:x"}, ("'cpu:x'",)),
        ({"device": "cpu:3"}, ("'cpu:3'", "1")),
        ({"train.seed": 2**64}, ("train.seed", "18446744073709551616")),
        ({"train.learning_rate": float("inf")}, ("train.learning_rate", "inf")),
        ({"train.weight_decay": float("nan")}, ("weight_decay", "nan")),
        ({"weights.clip_nce": float("inf")}, ("inf",)),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(finished, tmp_path, wrong, message):
    _, options = finished
    with refused(ConfigError, *message):
        train("ms_sl", out=tmp_path / "run", **(options | wrong))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("line", ["", "format: 0\n"])
def test_a_run_of_an_earlier_format_is_refused(finished, tmp_path, line):
    run_folder, options = finished
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace(f"format: {FORMAT}\n", line))
    for use in (open_run, evaluate, lambda folder: train("ms_sl", out=folder, **options)):
        with pytest.raises(CheckpointError):
            use(folder)


def test_auto_precision_is_resolved_when_a_run_starts(data_root, finished, tmp_path, monkeypatch):
    _, options = finished
    monkeypatch.setattr(precision, "has_fast_bfloat16", lambda device: True)
    run = train("ms_sl", out=tmp_path / "run", precision="auto", **options)
    assert run.config.precision == "bfloat16"
    assert "\nprecision: bfloat16\n" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_file_at_the_path_of_a_run_is_refused_and_unchanged(finished, tmp_path):
    _, options = finished
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UntrimmedError):
        train("ms_sl", out=tmp_path / "run", **options)
    assert (tmp_path / "run").read_text() == "mine"


def test_another_method_is_reported_before_its_settings(finished):
    run_folder, options = finished
    with refused(ConfigError, "method", "ms_sl", "gmmformer"):
        train("gmmformer", out=run_folder, **options)
