import itertools

import numpy as np
import pytest

from untrimmed.data.resampling import (
    at_most,
    normalise,
    prepare_video,
    prepare_words,
    segment_bounds,
    segment_means,
)


@pytest.mark.parametrize("num_segments", [1, 3, 20, 32])
@pytest.mark.parametrize("num_frames", [1, 2, 19, 33, 100])
def test_segment_means_follow_the_published_rule(num_frames, num_segments):
    frames = np.random.default_rng(num_frames).normal(size=(num_frames, 3))
    bounds = [min(round(i / num_segments * num_frames), num_frames - 1) for i in range(num_segments + 1)]
    expected = [frames[a:b].mean(axis=0) if a < b else frames[a] for a, b in itertools.pairwise(bounds)]
    assert segment_bounds(num_frames, num_segments).tolist() == bounds
    assert np.allclose(segment_means(frames, num_segments), expected, atol=1e-12)


def test_the_last_frame_of_a_long_video_is_ignored_as_released():
    frames = np.zeros((100, 1))
    frames[-1] = 1e6
    assert segment_means(frames, 32).max() == 0
    assert segment_means(frames[-40:], 32).max() == 1e6


def test_bounds_depend_on_precision_unless_the_length_is_a_power_of_two():
    assert (segment_bounds(45, 60, np.float32) != segment_bounds(45, 60, np.float64)).any()


def test_only_long_videos_are_resampled():
    frames = np.random.default_rng(0).normal(size=(5, 2))
    assert at_most(frames, 5) is frames
    assert at_most(frames, 4).shape == (4, 2)


def test_a_zero_row_stays_zero_and_the_constant_is_added_to_the_norm():
    rows = normalise(np.array([[0.0, 0.0], [1e-5, 0.0]]))
    assert rows.tolist() == [[0.0, 0.0], [0.5, 0.0]]


def test_a_single_frame_is_repeated_as_every_clip():
    clips, frames = prepare_video(np.array([[3.0, 4.0]], dtype=np.float32), num_clips=4, max_frames=8)
    assert clips.dtype == frames.dtype == np.float32
    assert clips.shape == (4, 2)
    assert frames.shape == (1, 2)
    assert np.allclose(clips, [[0.6, 0.8]], atol=1e-5)


def test_words_are_normalised_before_they_are_cut_and_keep_their_precision():
    words = prepare_words(np.ones((5, 4), dtype=np.float32), max_words=3)
    assert words.shape == (3, 4)
    assert words.dtype == np.float32
    assert np.allclose(words, 0.5, atol=1e-4)
