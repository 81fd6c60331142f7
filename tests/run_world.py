"""A simulated data set of a few kilobytes with different widths, and settings that train on it in a second."""

from pathlib import Path

import pytest

from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings

SMALL = SimulationSettings(query_dim=12, video_dim=10, teacher_dim=4, frames_per_second=0.5)


@pytest.fixture(scope="session")
def data_root(tmp_path_factory) -> Path:
    """A root with `tvr`, 24 videos in the standard layout, and `mine`, 24 in the plain one."""
    root = tmp_path_factory.mktemp("data")
    simulate("tvr", root, num_videos=24, settings=SMALL)
    simulate("mine", root, num_videos=24, settings=SMALL, layout="plain")
    return root


@pytest.fixture
def small() -> dict[str, object]:
    """Settings of a model with a few thousand weights, trained for two epochs of four steps."""
    return {
        "model.query_dim": 12,
        "model.video_dim": 10,
        "model.dim": 8,
        "model.max_frames": 20,
        "train.batch_size": 4,
        "train.epochs": 2,
    }
