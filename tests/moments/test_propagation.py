import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from untrimmed.moments import propagation as module
from untrimmed.moments.propagation import propagate
from untrimmed.moments.wavelet_segments import Segments


def levels_of(num_frames, counts, *, cone, dim=12, seed=0):
    """Levels with these numbers of segments. The larger `cone` is, the more similar all segments are."""
    rng = np.random.default_rng(seed)
    levels = []
    for count in counts:
        cuts = rng.choice(np.arange(1, num_frames), count - 1, replace=False)
        vectors = rng.standard_normal((count, dim))
        vectors[:, 0] += cone
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        levels.append(Segments(np.unique([0, *cuts, num_frames]), vectors))
    return levels


@pytest.mark.parametrize("cone", [0.0, 3.0, 30.0])
@pytest.mark.parametrize("beta", [0.0, 0.7, 0.95])
def test_long_videos_are_solved_as_short_ones(cone, beta, monkeypatch):
    monkeypatch.setattr(module, "_ROWS_AT_A_TIME", 16)
    levels = levels_of(400, [90, 60, 23, 1, 5], cone=cone)
    has_negative = (levels[0].vectors @ levels[0].vectors.T).min() < 0
    assert has_negative == (cone < 30), "rows are multiplied in both ways"
    np.testing.assert_allclose(propagate(levels, beta, max_dense=0), propagate(levels, beta), atol=1e-7)


def test_what_a_long_video_needs_does_not_grow_with_the_square_of_its_segments(monkeypatch):
    monkeypatch.setattr(module, "_ROWS_AT_A_TIME", 64)
    peaks = []
    for count in (1500, 3000):
        levels = levels_of(4 * count, [count, count // 2], cone=30.0)
        tracemalloc.start()
        propagate(levels, 0.7)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2.5 * peaks[0]
    assert peaks[1] < 4500**2, "a graph written down has eight bytes a pair"


@pytest.mark.parametrize(("beta", "most"), [(0.7, 10), (0.95, 12)])
def test_a_longer_video_needs_no_more_steps_of_the_solver(beta, most, monkeypatch):
    calls = []
    times = module._Graph.times
    monkeypatch.setattr(module._Graph, "times", lambda self, x: calls.append(len(x)) or times(self, x))
    for count in (150, 600):
        propagate(levels_of(4 * count, [count, count // 2], cone=30.0), beta, max_dense=0)
    assert max(calls.count(num_segments) for num_segments in set(calls)) <= most
    assert len(set(calls)) == 2


def test_borrowing_moves_each_segment_towards_the_others():
    levels = levels_of(100, [20], cone=1.0)
    spreads = [np.linalg.norm(own - own.mean(axis=0)) for own in (propagate(levels, beta) for beta in (0, 0.5, 0.9))]
    assert all(wider > narrower for wider, narrower in pairwise(spreads))
