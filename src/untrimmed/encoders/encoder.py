"""The interfaces of encoders: frames -> vectors, text -> a sentence vector in the same space, and word vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.types import TextFeatures


@runtime_checkable
class Encoder(Protocol):
    """Encodes frames and sentences as vectors whose cosine measures how well they match.

    `identity` names the weights exactly (name and content hash): vectors of two encoders may be compared only if their
    identities are equal, so the index stores it. `short_side` is the size in pixels to which the decoder scales the
    shorter side of a frame before the encoder gets it. If frames must be cropped, the encoder does it.
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
        """Unit vectors (float32) of RGB frames, one per frame; an empty stack gives an empty [0, D]."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """A unit sentence vector and the word vectors of each text (float32), and its unknown and unread words."""
        ...


class VideoEncoding(ABC):
    """Encodes one video from its frames in temporal order. It may keep frames back until `finish`."""

    @abstractmethod
    def add(
        self, times_s: Float[np.ndarray, " T"], frames: UInt8[np.ndarray, "T Y X 3"]
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Add frames, and return the next vectors (float32) with their times in seconds; there may be none."""

    @abstractmethod
    def finish(self) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Return the last vectors and their times."""


class ClipEncoder(ABC):
    """An `Encoder` with vectors of clips, such as features of motion, instead of frames, and without sentence vectors.

    Its frames and sentences share no space: `TextFeatures.sentence` is empty, and only a trained model can search.
    `fps` is the usual number of vectors per second of video.
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
        """The frames per second to decode for this many vectors per second; ConfigError if there would be too many."""

    @abstractmethod
    def start_video(self, fps: float) -> VideoEncoding:
        """Return an encoding for a video whose frames are decoded at `rate(fps)`, from time 0 on."""

    @abstractmethod
    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """See `Encoder`: unit vectors of single pictures."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """The word vectors of each text (float32), and its unknown and unread words, without a sentence vector."""


class FrameEncoding(VideoEncoding):
    """Encodes each frame as one vector, immediately.

    Frames that equal those of the previous call, such as those of a slide, are not encoded again. Single frames are not
    compared, because the vector of a frame depends in its last bits on the number of frames that are encoded together.
    """

    def __init__(self, encoder: Encoder):
        self._encoder = encoder
        self._frames = np.empty((0, 0, 0, 3), np.uint8)
        self._vectors = np.empty((0, encoder.frame_dim), np.float32)

    def add(
        self, times_s: Float[np.ndarray, " T"], frames: UInt8[np.ndarray, "T Y X 3"]
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """See `VideoEncoding`."""
        if not np.array_equal(frames, self._frames):
            self._vectors = self._encoder.encode_frames(frames)
            self._frames = frames
        return self._vectors, times_s

    def finish(self) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """See `VideoEncoding`. There are no last vectors."""
        return np.empty((0, self._encoder.frame_dim), np.float32), np.empty(0)


def start_video(encoder: Encoder, fps: float) -> VideoEncoding:
    """Return an encoding for a video, by an encoder of frames or of clips.

    `fps` is the number of vectors per second.
    """
    return encoder.start_video(fps) if isinstance(encoder, ClipEncoder) else FrameEncoding(encoder)
