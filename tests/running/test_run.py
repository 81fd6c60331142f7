"""A run's folder of which files are missing: said in one line, and nothing of what is left is overwritten."""

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
    """A finished run of two epochs, and how to call it again."""
    settings = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
    settings |= {"train.batch_size": 8, "train.epochs": 2}
    folder = tmp_path_factory.mktemp("finished") / "run"
    train("ms_sl", data="tvr", root=data_root, out=folder, **settings)
    return folder, {"data": "tvr", "root": data_root, **settings}


def contents(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("gone", "error", "message"),
    [
        (["last.safetensors"], CheckpointError, ("metrics.jsonl", "2", "last.safetensors")),
        (["model.safetensors"], CheckpointError, ("model.safetensors",)),
        (["config.json"], CheckpointError, ("config.json",)),
        (["config.yaml"], ConfigError, ("--out",)),
        (["config.yaml", "config.json"], ConfigError, ("last.safetensors", "config.yaml")),
    ],
)
def test_a_run_without_one_of_its_files_is_left_as_it_is(finished, tmp_path, gone, error, message):
    whole, options = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    for name in gone:
        (folder / name).unlink()
    before = contents(folder)
    with refused(error, *message):
        train("ms_sl", out=folder, **options)
    assert contents(folder) == before


def test_lost_metrics_are_written_again_from_the_saved_state(finished, tmp_path):
    whole, options = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "metrics.jsonl").unlink()
    assert train("ms_sl", out=folder, **options).history == open_run(whole).history
    assert (folder / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_evaluation_says_whether_a_run_is_young_or_has_lost_its_model(finished, tmp_path):
    whole, _ = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "config.json").unlink()
    with refused(CheckpointError, "config.json"):
        evaluate(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(CheckpointError):
        evaluate(folder)


def test_the_files_of_a_run_are_as_open_as_its_folder(finished):
    whole, _ = finished
    assert {path.stat().st_mode & 0o777 for path in whole.iterdir()} == {whole.stat().st_mode & 0o666}


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
def test_a_run_of_an_earlier_format_is_not_read(finished, tmp_path, line):
    whole, options = finished
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace(f"format: {FORMAT}\n", line))
    for use in (open_run, evaluate, lambda folder: train("ms_sl", out=folder, **options)):
        with pytest.raises(CheckpointError):
            use(folder)


def test_auto_is_settled_when_a_run_begins(data_root, finished, tmp_path, monkeypatch):
    _, options = finished
    monkeypatch.setattr(precision, "has_fast_bfloat16", lambda device: True)
    run = train("ms_sl", out=tmp_path / "run", precision="auto", **options)
    assert run.config.precision == "bfloat16"
    assert "\nprecision: bfloat16\n" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_file_in_place_of_the_runs_folder_is_left_alone(finished, tmp_path):
    _, options = finished
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UntrimmedError):
        train("ms_sl", out=tmp_path / "run", **options)
    assert (tmp_path / "run").read_text() == "mine"


def test_another_method_is_told_before_what_follows_from_it(finished):
    whole, options = finished
    with refused(ConfigError, "method", "ms_sl", "gmmformer"):
        train("gmmformer", out=whole, **options)
