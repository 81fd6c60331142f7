import time
from itertools import pairwise

import numpy as np
import pytest

from untrimmed.moments.scenes import scene_tree


def shots(rng, lengths, dim=16, noise=0.1):
    vectors = np.repeat(rng.standard_normal((len(lengths), dim)), lengths, axis=0)
    vectors += noise * rng.standard_normal(vectors.shape)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def is_tree(scenes, num_frames):
    """Whether scenes are disjoint or contain each other, the last is everything and the first ones cover all frames."""
    inside = set()
    for start, stop in scenes.tolist():
        frames = set(range(start, stop))
        inside.add(frozenset(frames))
    laminar = all(not a & b or a <= b or b <= a for a in inside for b in inside)
    return laminar and len(inside) == len(scenes) and scenes[-1].tolist() == [0, num_frames]


def test_worked_out_merges():
    # Ward's costs: 2 and 2: 0 (both ends first); then [2, 2] with [8]: 2 * 1 / 3 * 36 = 24; [8] with [9, 9]: 2 / 3 < 1;
    # then [2, 2] with [8, 9, 9]: 2 * 3 / 5 * (26 / 3 - 2)^2 = 53 1/3 > 1, a change
    assert scene_tree(np.array([[2.0], [2.0], [8.0], [9.0], [9.0]]), penalty=1.0).tolist() == [[0, 2], [2, 5], [0, 5]]
    assert scene_tree(np.array([[2.0], [2.0], [8.0], [9.0], [9.0]]), penalty=54.0).tolist() == [[0, 5]]


def test_shots_are_the_shortest_scenes():
    lengths = [3, 20, 7, 1, 12]
    scenes = scene_tree(shots(np.random.default_rng(0), lengths), penalty=0.5)
    edges = np.cumsum([0, *lengths]).tolist()
    assert scenes[:5].tolist() == [list(pair) for pair in pairwise(edges)]
    assert len(scenes) == 9
    assert is_tree(scenes, 43)


@pytest.mark.parametrize("num_frames", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("kind", ["noise", "still", "drift"])
def test_any_video_gives_a_tree(num_frames, kind):
    rng = np.random.default_rng(num_frames)
    one, other = rng.standard_normal((2, 8))
    vectors = {
        "noise": rng.standard_normal((num_frames, 8)),
        "still": np.tile(one, (num_frames, 1)),
        "drift": one + np.linspace(0, 3, num_frames)[:, None] ** 3 * other,  # each merge costs more than the one before
    }[kind].astype(np.float16)
    scenes = scene_tree(vectors, penalty=1.0)
    assert is_tree(scenes, num_frames)
    assert len(scenes) <= 2 * num_frames - 1
    assert kind != "still" or len(scenes) == 1
    assert np.array_equal(scenes, scene_tree(vectors, penalty=1.0))


def test_the_vectors_are_not_written_to():
    vectors = shots(np.random.default_rng(0), [4, 4]).astype(np.float32)
    before = vectors.copy()
    scene_tree(vectors, penalty=0.5)
    assert np.array_equal(vectors, before)


def test_two_hours_take_no_round_a_frame():
    drift = np.linspace(0, 1, 14_400, dtype=np.float32)[:, None] ** 3 * np.ones((1, 8), dtype=np.float32) * 50
    started = time.perf_counter()
    assert scene_tree(drift, penalty=1.0)[-1].tolist() == [0, 14_400]
    assert time.perf_counter() - started < 5  # with a round per frame, it would take minutes


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(wrong):
    with pytest.raises(ValueError, match="finite"):
        scene_tree(np.array([[0.0], [wrong], [1.0], [2.0]]), penalty=1.0)
