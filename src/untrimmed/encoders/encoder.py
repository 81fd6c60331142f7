"""The interfaces of encoders.

An encoder maps frames to vectors, and a text to a sentence vector in the same space and to word vectors.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.types import TextFeatures


@runtime_checkable
class Encoder(Protocol):
    """Encodes frames and sentences as vectors whose cosine measures how well they match.

    `identity` is a name and a hash of the weights. Vectors of two encoders may be compared only if their identities are
    equal, so the index stores the identity. The decoder scales frames so that the shorter side has `short_side` pixels,
    and does not crop them.
    """

    name: str
    identity: str
    word_dim: int
    short_side: int

    @property
    def frame_dim(self) -> int:
        """The width of a frame vector."""
        ...

    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Return unit vectors (float32) of RGB frames, one per frame."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return for each text a unit sentence vector, its word vectors (float32), and which words were read."""
        ...


class VideoEncoding(ABC):
    """Encodes one video from its frames in temporal order.

    An encoding may wait for more frames before it returns vectors.
    """

    @abstractmethod
    def add(
        self, times_s: Float[np.ndarray, " T"], frames: UInt8[np.ndarray, "T Y X 3"]
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Add frames. Return the vectors (float32) that have become complete, if any, and their times in seconds."""

    @abstractmethod
    def finish(self) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Return the remaining vectors and their times. Call this after the last frame."""


class ClipEncoder(ABC):
    """An `Encoder` with one vector per clip of several frames, for example for motion.

    Frames and words are in different spaces. So only a trained model can search such vectors, and
    `TextFeatures.sentence` is empty. `fps` is the default number of vectors per second of video.
    """

    name: str
    identity: str
    word_dim: int
    short_side: int
    fps: float

    @property
    @abstractmethod
    def frame_dim(self) -> int:
        """The width of a vector."""

    @abstractmethod
    def rate(self, fps: float) -> float:
        """Return how many frames per second must be decoded for `fps` vectors per second.

        Raises a ConfigError if this rate is too high.
        """

    @abstractmethod
    def start_video(self, fps: float) -> VideoEncoding:
        """Return an encoding for one video. Its frames must be decoded from time 0 at `rate(fps)` frames per second."""

    @abstractmethod
    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Return unit vectors of single pictures, one per picture; see `Encoder`."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return the features of each text: word vectors (float32), and which words were read. No sentence vector."""


class FrameEncoding(VideoEncoding):
    """Encodes each frame as one vector, as soon as the frame is added.

    A frame that is the same as the frame before it (of a slide, for example) is not encoded again.
    """

    def __init__(self, encoder: Encoder):
        self._encoder = encoder
        self._frame: UInt8[np.ndarray, "Y X 3"] | None = None  # the last frame, and its vector
        self._vector = np.empty((0, encoder.frame_dim), np.float32)

    def add(
        self, times_s: Float[np.ndarray, " T"], frames: UInt8[np.ndarray, "T Y X 3"]
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Return the vectors of `frames`, and their times in seconds."""
        before = [self._frame, *frames[:-1]]
        is_new = np.array([not np.array_equal(*pair) for pair in zip(frames, before, strict=True)], dtype=bool)
        encoded = self._encoder.encode_frames(frames[is_new]) if is_new.any() else self._vector[:0]
        vectors = np.concatenate([self._vector, encoded])
        vectors = vectors[np.cumsum(is_new) + len(self._vector) - 1]
        if len(frames):
            self._frame, self._vector = frames[-1].copy(), vectors[-1:]
        return vectors, times_s

    def finish(self) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Return no vectors, because all frames were encoded when they were added."""
        return np.empty((0, self._encoder.frame_dim), np.float32), np.empty(0)


def start_video(encoder: Encoder, fps: float) -> VideoEncoding:
    """Return an encoding for one video, with `fps` vectors per second."""
    return encoder.start_video(fps) if isinstance(encoder, ClipEncoder) else FrameEncoding(encoder)
