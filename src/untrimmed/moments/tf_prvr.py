"""TF-PRVR (NeurIPS 2026): training-free, from frozen image-text features; wavelet segments, propagated over a graph.

A video's frames become moment vectors once; a sentence is one vector, and a video scores by its best moment. Moments
are the pieces between the edges of all levels of `wavelet_segments`; the vector of one is the mean, over levels, of the
propagated segments that it lies in. It is not scaled: where the surroundings agree it is longer, and scores more.
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
    """`wavelet` is one of PyWavelets'; `beta` in [0, 1), else ConfigError: how much segments borrow; as released."""

    wavelet: str = "db4"
    beta: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"beta is {self.beta}, wanted at least 0 and less than 1")


@dataclass(frozen=True)
class VideoMoments:
    """Moments in order of time: frames `edges[i]` to `edges[i + 1]` as vector i; `levels`: edges, finest first."""

    vectors: Float[np.ndarray, "M D"]
    edges: Edges
    levels: tuple[Edges, ...]

    @property
    def spans(self) -> Int[np.ndarray, "M 2"]:
        """First frame of each moment, and the one after its last."""
        return spans_between(self.edges)

    @property
    def candidates(self) -> Int[np.ndarray, "S 2"]:
        """The spans of all moments, of the segments of all levels, and of the video, each once, in order of time."""
        whole = self.edges[[0, -1]]
        return np.unique(np.concatenate([spans_between(edges) for edges in (self.edges, whole, *self.levels)]), axis=0)


def video_moments(frames: Float[np.ndarray, "T D"], settings: TFPRVRSettings | None = None) -> VideoMoments:
    """The moments of a video whose frames, of any length, are in temporal order at equal steps.

    >>> shots = np.repeat(np.eye(3), 20, axis=0) + 0.05 * np.random.default_rng(0).standard_normal((60, 3))
    >>> video_moments(shots).edges[[0, -1]].tolist()
    [0, 60]

    Raises:
        FeatureError: There are no frames, or one is not finite or has no direction.
        ConfigError: The wavelet is not known.
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
    """Every query, scaled to unit length, times every moment; a video's score is the largest."""
    rows = queries.astype(np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ moments.astype(np.float64).T
