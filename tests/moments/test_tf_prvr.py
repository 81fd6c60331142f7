import tracemalloc
from functools import partial

import numpy as np
import pytest

from untrimmed.errors import ConfigError
from untrimmed.moments import tf_prvr
from untrimmed.moments.propagation import MOST_DENSE, propagate
from untrimmed.moments.tf_prvr import TFPRVRSettings, moment_scores, video_moments
from untrimmed.moments.wavelet_segments import wavelet_segments


def film(seed=0):
    """Shots of 10 to 40 frames, the third about the first axis."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(10, 40, 8)
    contents = rng.standard_normal((8, 16)) * 0.3
    contents[:, 0] = 0
    contents[2] = 4 * np.eye(16)[0]
    frames = np.repeat(contents, lengths, axis=0) + 0.05 * rng.standard_normal((lengths.sum(), 16))
    start = lengths[:2].sum()
    return frames, (start, start + lengths[2])


def test_a_moment_lies_in_one_segment_of_every_level_and_is_the_mean_of_these():
    frames, _ = film()
    levels, moments = wavelet_segments(frames), video_moments(frames)
    propagated = propagate(levels, 0.7)
    assert sorted(moments.edges) == sorted({edge for level in levels for edge in level.edges.tolist()})
    for (first, stop), vector in zip(moments.spans, moments.vectors, strict=True):
        wanted, start = np.zeros(16), 0
        for level in levels:
            (row,) = np.flatnonzero((level.spans[:, 0] <= first) & (stop <= level.spans[:, 1]))
            wanted += propagated[start + row] / len(levels)
            start += len(level.vectors)
        np.testing.assert_allclose(vector, wanted, atol=1e-12)


def test_the_shot_that_fits_has_the_best_moment():
    frames, (first, stop) = film()
    moments = video_moments(frames)
    best = moments.spans[moment_scores(np.eye(16)[:1], moments.vectors)[0].argmax()]
    assert first - 2 <= best[0] < best[1] <= stop + 2


def test_the_length_of_frames_and_sentences_does_not_count():
    frames, _ = film()
    longer = frames * np.random.default_rng(0).uniform(0.5, 20, (len(frames), 1))
    query = np.random.default_rng(1).standard_normal((3, 16))
    one, other = (moment_scores(query * k, video_moments(rows).vectors) for k, rows in ((1, frames), (7, longer)))
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_candidates_are_moments_segments_and_the_whole_once_each():
    frames, _ = film()
    moments = video_moments(frames)
    wanted = {tuple(span) for span in moments.spans.tolist()}
    wanted |= {(0, len(frames))} | {tuple(span) for level in wavelet_segments(frames) for span in level.spans.tolist()}
    assert [tuple(span) for span in moments.candidates.tolist()] == sorted(wanted)


def test_a_long_film_takes_less_memory_than_its_graph_written_down():
    contents = np.random.default_rng(0).standard_normal((1000, 8)) + 8 * np.eye(8)[0]
    frames = np.repeat(contents, 7, axis=0) + 0.05 * np.random.default_rng(1).standard_normal((7000, 8))
    tracemalloc.start()
    moments = video_moments(frames)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    num_segments = sum(len(edges) - 1 for edges in moments.levels)
    assert num_segments > MOST_DENSE
    assert peak < 8 * num_segments**2 / 2, "a graph has eight bytes a pair"


def test_moments_of_a_film_are_the_same_where_its_graph_is_not_written_down(monkeypatch):
    frames, _ = film()
    written = video_moments(frames)
    monkeypatch.setattr(tf_prvr, "propagate", partial(propagate, most_dense=0))
    np.testing.assert_allclose(video_moments(frames).vectors, written.vectors, atol=1e-7)


@pytest.mark.parametrize("beta", [-0.1, 1.0, 2.0])
def test_a_beta_without_a_solution_is_refused(beta):
    with pytest.raises(ConfigError, match=f"beta is {beta}"):
        TFPRVRSettings(beta=beta)


def test_its_paper_is_the_first_line():
    assert tf_prvr.__doc__.startswith("TF-PRVR (NeurIPS 2026): training-free")
