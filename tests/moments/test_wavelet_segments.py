import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.moments import wavelet_segments as module
from untrimmed.moments.wavelet_segments import change_of_direction, wavelet_segments


def shots(lengths, *, dim=16, noise=0.05, seed=0):
    """Frames of shots that have nothing in common."""
    rng = np.random.default_rng(seed)
    contents = rng.standard_normal((len(lengths), dim))
    return np.repeat(contents, lengths, axis=0) + noise * rng.standard_normal((sum(lengths), dim))


@pytest.mark.parametrize(("num_frames", "num_levels"), [(1, 1), (3, 1), (15, 1), (16, 1), (30, 2), (57, 2), (58, 3)])
def test_levels_are_as_many_as_the_signal_is_long_enough_for(num_frames, num_levels):
    levels = wavelet_segments(shots([num_frames]))
    assert len(levels) == num_levels
    assert num_frames >= 16 or levels[0].edges.tolist() == [0, num_frames]


def test_frames_read_in_blocks_give_the_segments_of_the_whole(monkeypatch):
    frames = shots([20, 35, 9, 60])
    whole, signal = wavelet_segments(frames), change_of_direction(frames)
    for size in (1, 7, 62, 124):
        monkeypatch.setattr(module, "_FRAMES_AT_A_TIME", size)
        np.testing.assert_allclose(change_of_direction(frames), signal, atol=1e-12)
        for one, other in zip(whole, wavelet_segments(frames), strict=True):
            assert one.edges.tolist() == other.edges.tolist()
            np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-12)


def test_a_still_picture_is_one_segment_on_every_level():
    still = np.ones((60, 4))
    assert [level.edges.tolist() for level in wavelet_segments(still)] == [[0, 60]] * 3


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (np.empty((0, 4)), ()),
        (np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), ("frame 1", "0")),
        (np.array([[1.0, 0.0], [1.0, np.nan]]), ("frame 1", "nan")),
        (np.array([[1.0, 0.0], [-1.0, 0.0]]), ("segment 0",)),
    ],
)
def test_frames_without_a_direction_are_refused(frames, message):
    with refused(FeatureError, *message):
        wavelet_segments(frames)


def test_a_wavelet_that_pywavelets_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="'db99'"):
        wavelet_segments(np.ones((3, 2)), "db99")
