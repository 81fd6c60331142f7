"""Frames at equal steps of time, as windows need them: whatever the rate of a video, even where it varies."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from untrimmed.types import FrameFeatures

_MOST_ROWS = 8  # for each frame of a video


def on_a_grid(video: FrameFeatures) -> tuple[Float[np.ndarray, " G"], float, Float[np.ndarray, "G D"]]:
    """Equally spaced times, their distance in seconds, and frames there; those between others are in proportion."""
    times_s, spacing_s = _regular_grid(video.times_s)
    return times_s, spacing_s, video.vectors if _is_steady(times_s, video.times_s) else _at(times_s, video)


def _regular_grid(times_s: Float[np.ndarray, " T"]) -> tuple[Float[np.ndarray, " G"], float]:
    """Equally spaced times for the frames of a video, and their distance in seconds.

    Frames a constant time apart (within a quarter) keep their times; else the grid is the next power of two below the
    usual distance, so that videos of variable rate or with uneven key frames share few steps. Where that would be
    many more times than frames (bursts of frames, hours apart), it has few in each long gap: bursts keep their frames.
    """
    gaps_s = np.diff(times_s)
    if not (gaps_s > 0).any():  # one frame, or all at one time
        return times_s[:1], 1.0
    usual_s = float(np.median(gaps_s[gaps_s > 0]))
    steady = times_s[0] + usual_s * np.arange(len(times_s))
    if _is_steady(steady, times_s):
        return steady, usual_s
    step_s = 2.0 ** math.floor(math.log2(usual_s))
    passed_s = times_s - times_s[0]
    if passed_s[-1] > _MOST_ROWS * len(times_s) * step_s:
        passed_s = np.concatenate([[0.0], np.minimum(gaps_s, _MOST_ROWS / 2 * usual_s).cumsum()])
    return np.interp(step_s * np.arange(int(passed_s[-1] / step_s) + 1), passed_s, times_s), step_s


def _is_steady(grid: Float[np.ndarray, " G"], times_s: Float[np.ndarray, " T"]) -> bool:
    """Whether each frame lies within a quarter step of its place in the grid."""
    if len(grid) != len(times_s):
        return False
    return len(grid) < 2 or bool(np.abs(times_s - grid).max() <= (grid[1] - grid[0]) / 4)


def _at(grid: Float[np.ndarray, " G"], video: FrameFeatures) -> Float[np.ndarray, "G D"]:
    """The frame vectors at the times of a grid; between two frames in proportion."""
    position = np.interp(grid, video.times_s, np.arange(len(video.times_s)))
    before = np.floor(position).astype(np.int64)
    after = np.minimum(before + 1, len(video.times_s) - 1)
    share = (position - before)[:, None].astype(np.float32)
    return video.vectors[before] * (1 - share) + video.vectors[after] * share
