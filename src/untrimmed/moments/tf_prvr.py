"""TF-PRVR (NeurIPS 2026): moments from image-text features without training.

A video is divided into segments at several levels, and segment vectors are smoothed over a graph. The edges of all
levels together divide the video into moments, so each moment is inside one segment of each level. The vector of a
moment is the mean of the vectors of these segments, and is not normalised. If the segments are similar, the mean is
longer, and the moment gets higher scores. A sentence is one vector. A video's score is the score of its best moment.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from untrimmed.errors import ConfigError
from untrimmed.moments.propagation import owners, propagate
from untrimmed.moments.wavelet_segments import Edges, joint_edges, spans_between, wavelet_segments

NAME = "tf_prvr"


@dataclass(frozen=True, kw_only=True)
class TFPRVRSettings:
    """The wavelet (its name in PyWavelets) and the strength of propagation. The defaults are as released.

    Raises:
        ConfigError: `beta` is outside [0, 1).
    """

    wavelet: str = "db4"
    beta: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"beta is {self.beta}, expected at least 0 and less than 1")


@dataclass(frozen=True)
class VideoMoments:
    """The moments of a video in temporal order. Moment i has frames `edges[i]` to `edges[i + 1]` - 1.

    `levels` contains the edges of the segments of each level, finest level first.
    """

    vectors: Float[np.ndarray, "M D"]
    edges: Edges
    levels: tuple[Edges, ...]

    @property
    def spans(self) -> Int[np.ndarray, "M 2"]:
        """The index of the first frame of each moment, and of the frame after its last."""
        return spans_between(self.edges)

    @property
    def candidates(self) -> Int[np.ndarray, "S 2"]:
        """The sorted spans of moments, of segments of all levels and of the whole video, without duplicates."""
        video = self.edges[[0, -1]]
        return np.unique(np.concatenate([spans_between(edges) for edges in (self.edges, video, *self.levels)]), axis=0)


def video_moments(frames: Float[np.ndarray, "T D"], settings: TFPRVRSettings | None = None) -> VideoMoments:
    """Return the moments of a video. Frames are vectors of any length, at equal time steps.

    >>> shots = np.repeat(np.eye(3), 20, axis=0) + 0.05 * np.random.default_rng(0).standard_normal((60, 3))
    >>> video_moments(shots).edges[[0, -1]].tolist()
    [0, 60]

    Raises:
        FeatureError: There are no frames, a frame is zero or not finite, or the frames of a segment cancel.
        ConfigError: The wavelet is unknown.
    """
    settings = settings or TFPRVRSettings()
    levels = wavelet_segments(frames, settings.wavelet)
    propagated = propagate(levels, settings.beta)
    edges = joint_edges([level.edges for level in levels])
    vectors = np.zeros((len(edges) - 1, frames.shape[1]))
    start = 0
    for level in levels:
        vectors += propagated[start + owners(level.edges, edges)] / len(levels)
        start += len(level.vectors)
    return VideoMoments(vectors, edges, tuple(level.edges for level in levels))


def moment_scores(queries: Float[np.ndarray, "Q D"], moments: Float[np.ndarray, "M D"]) -> Float64[np.ndarray, "Q M"]:
    """Return the dot products of moments with queries scaled to unit length. The largest is the video's score."""
    rows = queries.astype(np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ moments.astype(np.float64).T
