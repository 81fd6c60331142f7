"""Tiny runs on one simulated data set, trained once for all tests and opened like `plot` does."""

from pathlib import Path

import pytest

from tests.run_world import SMALL
from untrimmed.data.simulation.simulate import simulate
from untrimmed.plots.trained_run import TrainedRun, open_trained
from untrimmed.training.train import train

SMALL_MODEL = {"model.query_dim": 12, "model.video_dim": 10, "model.dim": 8, "model.max_frames": 20}
SHORT = {"train.batch_size": 8, "train.epochs": 1, "train.seed": 1}
RUNS = {
    "v2": ("gmmformer_v2", {}),
    "v2_weight": ("gmmformer_v2", {"weights.clip_nce": 0.5}),
    "ral": ("gmmformer_v2+ral", {}),
    "csa": ("gmmformer_v2+ral", {"model.ral.msra": False}),
    "proto": ("proto", {"model.num_prototypes": 6, "model.iterations": 2}),
}


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory) -> Path:
    """A folder with `data/tvr` and a run for each entry of `RUNS`."""
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    folder = tmp_path_factory.mktemp("plots")
    simulate("tvr", folder / "data", num_videos=24, settings=SMALL)
    for name, (method, settings) in RUNS.items():
        train(method, data="tvr", root=folder / "data", out=folder / name, **SMALL_MODEL, **SHORT, **settings)
    return folder


@pytest.fixture(scope="session")
def trained(runs_folder) -> dict[str, TrainedRun]:
    """The runs, opened."""
    return {name: open_trained(runs_folder / name, label=name, device="cpu") for name in RUNS}


@pytest.fixture(scope="session")
def untrained(runs_folder) -> TrainedRun:
    """A model with its initial weights."""
    settings = SMALL_MODEL | {"train.epochs": 0}
    train("gmmformer_v2", data="tvr", root=runs_folder / "data", out=runs_folder / "untrained", **settings)
    return open_trained(runs_folder / "untrained", label="untrained", device="cpu")
