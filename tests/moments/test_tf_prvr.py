import numpy as np
import pytest

from untrimmed.errors import ConfigError
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


@pytest.mark.parametrize("beta", [-0.1, 1.0, 2.0])
def test_a_beta_without_a_solution_is_refused(beta):
    with pytest.raises(ConfigError, match=f"beta is {beta}"):
        TFPRVRSettings(beta=beta)
