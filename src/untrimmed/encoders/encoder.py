"""The interface of an encoder: frames -> vectors, text -> a sentence vector and word vectors in the same space."""

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
    shorter side of a frame before handing it over; any crop is the encoder's own.
    """

    name: str
    identity: str
    frame_dim: int
    word_dim: int
    short_side: int

    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Unit vectors (float32) of RGB frames, one per frame; an empty stack gives an empty [0, D]."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """A unit sentence vector and the word vectors of each text (float32), and its unknown and unread words."""
        ...
