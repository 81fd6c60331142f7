"""Resample frames to a fixed number of segment means and normalise them, exactly as the released programs do."""

import numpy as np
from jaxtyping import Float, Int


def segment_bounds(
    num_frames: int, num_segments: int, precision: type[np.floating] = np.float64
) -> Int[np.ndarray, " B"]:
    """Return the bounds of m segments of n frames: min(round(i / m * n), n - 1) for i = 0..m.

    In i / m * n, division comes first, and ties round to even. As in the authors' programs, the last segment does not
    include the last frame, unless the segment would be empty. The releases compute clip bounds in float32 and frame
    bounds in float64. The results can differ if m is not a power of two.

    >>> segment_bounds(5, 4)
    array([0, 1, 2, 4, 4])
    """
    share = np.arange(num_segments + 1, dtype=precision) / precision(num_segments)
    return np.minimum(np.round(share * precision(num_frames)), num_frames - 1).astype(np.int64)


def segment_means(
    frames: Float[np.ndarray, "T D"], num_segments: int, precision: type[np.floating] = np.float64
) -> Float[np.ndarray, "L D"]:
    """Return the mean frame of each segment. For an empty segment (in short videos), return the frame at its start.

    Means have the dtype of `frames`. The released programs first convert frames from BigFile folders to float64.

    >>> segment_means(np.array([[1.0], [3.0], [5.0], [9.0], [100.0]]), 2)
    array([[2.],
           [7.]])
    """
    bounds = segment_bounds(len(frames), num_segments, precision)
    # `reduceat` sums the rows between two bounds, or takes one row if they are equal. Without the slice, the last
    # segment would include the last frame.
    sums = np.add.reduceat(frames[: max(bounds[-1], bounds[-2] + 1)], bounds[:-1], axis=0)
    return (sums / np.maximum(np.diff(bounds), 1)[:, None]).astype(frames.dtype)


def at_most(frames: Float[np.ndarray, "T D"], max_frames: int) -> Float[np.ndarray, "L D"]:
    """Return the frames unchanged if there are at most `max_frames`, otherwise `max_frames` segment means."""
    return frames if len(frames) <= max_frames else segment_means(frames, max_frames)


def normalise(rows: Float[np.ndarray, "T D"]) -> Float[np.ndarray, "T D"]:
    """Divide each row by its norm + 1e-5, as in the authors' programs. A zero row remains zero.

    >>> normalise(np.array([[3.0, 4.0], [0.0, 0.0]])).round(4)
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    return rows / (np.linalg.norm(rows, axis=-1, keepdims=True) + 1e-5)


def unit_rows(rows: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """Divide each row by its norm. A zero row remains zero.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def prepare_video(
    frames: Float[np.ndarray, "T D"], *, num_clips: int, max_frames: int, fixed_frames: bool = False
) -> tuple[Float[np.ndarray, "L D"], Float[np.ndarray, "N D"]]:
    """Return the clip rows and frame rows of one video for a model: resampled, then normalised, float32.

    As in the authors' programs, means are computed in float64 and clip bounds in float32. With `fixed_frames`, there
    are exactly `max_frames` frame rows.
    """
    exact = frames.astype(np.float64)
    clips = normalise(segment_means(exact, num_clips, np.float32))
    sampled = segment_means(exact, max_frames, np.float32) if fixed_frames else at_most(exact, max_frames)
    return clips.astype(np.float32), normalise(sampled).astype(np.float32)


def prepare_words(words: Float[np.ndarray, "W E"], *, max_words: int) -> Float[np.ndarray, "N E"]:
    """Return the word rows for a model: normalised in the precision of `words`, then cut to the first `max_words`."""
    return normalise(words)[:max_words]
