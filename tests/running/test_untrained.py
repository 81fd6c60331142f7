"""The rows that need no training: their order in a small world, and their parts computed by hand."""

import numpy as np
import pytest

from untrimmed.data.dataset import load_dataset
from untrimmed.data.simulation.simulate import open_world, simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.running.untrained import best_run_score, chance, untrained_rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("untrained")
    simulate(
        "toy", root, num_videos=300, settings=SimulationSettings(query_dim=128, video_dim=160, noise=0.2, scene=0.3)
    )
    splits = [load_dataset("toy", root, split) for split in ("train", "val", "test")]
    return untrained_rows(*splits, open_world("toy", root))


def test_zero_shot_is_near_chance_and_the_oracle_is_best(rows):
    sums = {name: row["SumR"] for name, row in rows.items()}
    assert sums["chance"] == chance(60)["SumR"]
    assert abs(sums["zero-shot"] - sums["chance"]) < 0.15 * sums["chance"]
    assert sums["zero-shot"] + 5 < sums["ridge"] < sums["oracle"] - 50
    assert sums["ridge, best run of frames"] < sums["oracle"] - 50
    assert sums["oracle"] > 300


def test_the_best_run_may_start_anywhere_and_has_a_power_of_two_length():
    frames = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.2], [-1.0, 0.0]])
    # Runs of 1: 1 / 1 at frame 1; of 2: (2, .2) at frames 1-2, 2 / sqrt(4.04) < 1. For -x: frame 3 alone.
    np.testing.assert_allclose(best_run_score(np.array([[1.0, 0.0], [-1.0, 0.0]]), frames), [1.0, 1.0])
    # For the diagonal: frames 0-1 together, (1, 1), are exactly along it.
    np.testing.assert_allclose(best_run_score(np.full((1, 2), 0.5**0.5), frames), [1.0])


def test_a_video_of_zeros_scores_zero():
    np.testing.assert_array_equal(best_run_score(np.eye(2), np.zeros((3, 2))), [0.0, 0.0])


def test_chance_is_the_share_of_ranks():
    assert chance(50) == pytest.approx(
        {"R@1": 2.0, "R@5": 10.0, "R@10": 20.0, "R@100": 100.0, "SumR": 132.0, "mAP": np.mean(1 / np.arange(1, 51))}
    )
