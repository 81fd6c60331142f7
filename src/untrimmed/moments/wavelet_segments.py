"""Divide a video into segments at several scales, at the peaks of a wavelet transform (TF-PRVR).

The transformed signal is how sharply the sequence of frame vectors turns. Each level of the discrete wavelet transform
gives segments that cover the video. All computations are in float64. Frames are processed in blocks, so that the
vectors of a day of video are never copied as a whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from untrimmed.errors import ConfigError, FeatureError

_FRAMES_AT_A_TIME = 4096
_STILL = 1e-8  # the picture is still if two steps between unit frame vectors are at most this long
_MIN_LENGTH = 1e-12  # shorter vectors have no direction

# the start of each segment and the end of the last one
Edges = Int[np.ndarray, " _"]


@dataclass(frozen=True)
class Segments:
    """The segments of one level. Segment i has frames `edges[i]` to `edges[i + 1]` - 1 and one unit vector.

    The vector is the normalised mean of the normalised frame vectors.
    """

    edges: Edges
    vectors: Float64[np.ndarray, "N D"]

    @property
    def spans(self) -> Int[np.ndarray, "N 2"]:
        """The index of the first frame of each segment, and of the frame after its last."""
        return spans_between(self.edges)


def spans_between(edges: Edges) -> Int[np.ndarray, "N 2"]:
    """Return the span from each edge to the next.

    >>> spans_between(np.array([0, 2, 5])).tolist()
    [[0, 2], [2, 5]]
    """
    return np.stack([edges[:-1], edges[1:]], axis=1)


def wavelet_segments(frames: Float[np.ndarray, "T D"], wavelet: str = "db4") -> list[Segments]:
    """Return the segments of every level, the finest level first. A level without cuts is one segment.

    Frame vectors are at equal time steps, and need not have unit length.

    Raises:
        FeatureError: There are no frames, a frame is zero or not finite, or the mean of a segment is zero.
        ConfigError: The wavelet is unknown, or its transform has no finite filters.
    """
    if not len(frames):
        raise FeatureError("a video without frames has no segments; expected at least one frame")
    levels = cut_levels(change_of_direction(frames), len(frames), wavelet)
    pieces = joint_edges(levels)
    sums = np.zeros((len(pieces) - 1, frames.shape[1]))
    for start, rows in _units(frames):
        piece = np.searchsorted(pieces, np.arange(start, start + len(rows)), side="right") - 1
        first = np.flatnonzero(np.diff(piece, prepend=-1))
        sums[piece[first]] += np.add.reduceat(rows, first, axis=0)
    return [
        Segments(
            edges, _unit(np.add.reduceat(sums, np.searchsorted(pieces, edges[:-1]), axis=0), "the mean of segment")
        )
        for edges in levels
    ]


def joint_edges(levels: Sequence[Edges]) -> Edges:
    """Return the sorted edges of all levels. Between two adjacent edges, each level has a single segment."""
    return np.unique(np.concatenate(levels))


def change_of_direction(frames: Float[np.ndarray, "T D"]) -> Float64[np.ndarray, " S"]:
    """Return 1 minus the cosine of consecutive steps from frame to frame, or 0 for a still picture; S = max(0, T - 2).

    >>> change_of_direction(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])).round(6).tolist()
    [2.0, 1.0, 0.0]
    """
    parts = [np.empty(0)]
    for _, rows in _units(frames, beyond=2):
        steps = np.diff(rows, axis=0)
        lengths = np.linalg.norm(steps, axis=1)
        steps /= (lengths + 1e-8)[:, None]
        change = 1 - np.clip(np.einsum("td,td->t", steps[:-1], steps[1:]), -1, 1)
        change[(lengths[:-1] <= _STILL) & (lengths[1:] <= _STILL)] = 0.0
        parts.append(change)
    return np.concatenate(parts)


def cut_levels(signal: Float64[np.ndarray, " S"], num_frames: int, wavelet: str = "db4") -> list[Edges]:
    """Return the edges of each level's segments as frame indices, finest level first.

    `signal` is the result of `change_of_direction`. The response of a level is the absolute inverse transform of its
    detail coefficients. An edge is a local maximum of the response that is more than one standard deviation above its
    mean. A signal that is too short for a transform has one segment.

    Raises:
        ConfigError: See `wavelet_segments`.
    """
    import pywt  # a slow import that searches do not need

    if wavelet not in pywt.wavelist(kind="discrete"):
        raise ConfigError(f"wavelet is {wavelet!r}, expected a discrete one of PyWavelets, such as 'db4' or 'haar'")
    depth = pywt.dwt_max_level(len(signal), wavelet) if len(signal) else 0
    coefficients = pywt.wavedec(signal, wavelet, mode="symmetric", level=depth) if depth else []
    floor = 64 * np.finfo(np.float64).eps * max(1.0, float(np.abs(signal).max(initial=0.0)))
    levels = []
    for level in range(1, depth + 1):
        details = [x if i == depth + 1 - level else np.zeros_like(x) for i, x in enumerate(coefficients)]
        response = np.abs(pywt.waverec(details, wavelet, mode="symmetric")[: len(signal)])
        peaks = _local_maxima(response)
        high = (response[peaks] > response.mean() + response.std()) & (response[peaks] > floor)
        levels.append(np.unique([0, *(peaks[high] + 2).tolist(), num_frames]))
    return levels or [np.array([0, num_frames])]


def _local_maxima(values: Float64[np.ndarray, " S"]) -> Int[np.ndarray, " P"]:
    """Return the positions of values above both neighbours. The first and last value are never maxima.

    A run of equal values counts as one value at its middle (if there are two middles, at the left one).
    """
    first = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)  # first index of each run of equal values
    last = np.append(first[1:], len(values)) - 1
    heights = values[first]
    inner = np.flatnonzero((heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:])) + 1
    return (first[inner] + last[inner]) // 2


def _units(frames: Float[np.ndarray, "T D"], beyond: int = 0) -> Iterator[tuple[int, Float64[np.ndarray, "N D"]]]:
    """Yield blocks of frames as unit vectors, each with the index of its first frame.

    A block also contains the first `beyond` frames of the next block.
    """
    for start in range(0, max(1, len(frames) - beyond), _FRAMES_AT_A_TIME):
        rows = np.asarray(frames[start : start + _FRAMES_AT_A_TIME + beyond])
        if len(rows) > beyond:
            yield start, _unit(rows.astype(np.float64), "frame", start)


def _unit(rows: Float64[np.ndarray, "N D"], what: str, start: int = 0) -> Float64[np.ndarray, "N D"]:
    lengths = np.linalg.norm(rows, axis=1)
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths >= _MIN_LENGTH)))
    if len(wrong):
        raise FeatureError(
            f"{what} {start + wrong[0]} has length {lengths[wrong[0]]:g}, expected a finite vector with a direction; "
            "extract the video's features again"
        )
    rows /= lengths[:, None]
    return rows
