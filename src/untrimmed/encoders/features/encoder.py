"""An encoder made of the networks behind published benchmark features.

Frames are grouped into clips, and each clip becomes one vector. RoBERTa or CLIP encodes the words.

The vectors of all networks are scaled to unit length and concatenated (as in the released features of TVR). The result
is scaled to unit length again, which does not change the results of models. Frames and sentences are in different
spaces, so only a model that was trained on such features can search them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from untrimmed.devices import choose_device
from untrimmed.encoders.encoder import ClipEncoder, VideoEncoding
from untrimmed.encoders.features.kinds import CLIP, FeatureSpec, NetworkSpec
from untrimmed.encoders.features.networks import SHORT_SIDE, ClipNetwork, ClipPictures, load_network, unit
from untrimmed.encoders.features.weights import WeightFiles, find_weights
from untrimmed.encoders.features.windows import Windows, as_fraction, common_rate
from untrimmed.encoders.hub.encoder import TransformersEncoder
from untrimmed.encoders.hub.text import WordEncoder
from untrimmed.precision import NumberFormat, Precision, choose_format
from untrimmed.types import TextFeatures

_VERSION = 1  # version of the code; increase it when vectors change for the same weights
_STILL_SIZE = 16  # a single picture is repeated to make a clip of this many frames
_VECTORS_AT_ONCE = 8


class FeatureEncoder(ClipEncoder):
    """An encoder made of the networks in a `FeatureSpec`.

    `name` contains absolute paths, so that it is valid in any working folder. `identity` depends on the weights and the
    order of all networks. Networks for frames are loaded when the first frame is encoded.
    """

    short_side = SHORT_SIDE

    def __init__(
        self, spec: FeatureSpec, *, device: str = "auto", precision: Precision = "auto", timeout_s: float = 5.0
    ):
        """Load the network that encodes words.

        Raises:
            ConfigError: The device does not exist.
            EncoderError: Weights are missing, do not fit the network, or do not have the requested SHA-256.
        """
        self._device = choose_device(device, mps=True)
        self.number_format: NumberFormat = choose_format(precision, str(self._device))
        self._dtype: torch.dtype = getattr(torch, self.number_format.name)
        parts = dict.fromkeys([*spec.pictures, spec.words])
        self._weights: dict[NetworkSpec, WeightFiles] = {
            part: find_weights(part, timeout_s=timeout_s) for part in parts
        }
        self._pictures = spec.pictures
        self._words = self._load_words(spec.words)
        absolute_parts = [NetworkSpec(part.kind, weights.name, part.sha256) for part, weights in self._weights.items()]
        self.name = str(FeatureSpec(tuple(absolute_parts)))
        content = "\n".join(f"{part.kind} {weights.sha256}" for part, weights in self._weights.items())
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        self.identity = f"{'+'.join(part.kind for part in absolute_parts)}-{_VERSION}:{digest}"
        self.word_dim = self._words.word_dim
        self.fps = spec.fps

    @property
    def frame_dim(self) -> int:
        """The width of a vector: the sum of the networks' widths."""
        return sum(network.dim for network in self._networks)

    def rate(self, fps: float) -> float:
        """Return how many frames per second must be decoded; see `ClipEncoder`."""
        return float(self._windows(fps).rate)

    def start_video(self, fps: float) -> VideoEncoding:
        """Return an encoding for one video; see `ClipEncoder`."""
        return FeatureEncoding(self._networks, self._windows(fps))

    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Return unit vectors of single pictures. Each picture is repeated to make a clip."""
        vectors = [np.empty((0, self.frame_dim), np.float32)]
        for frame in frames:
            rows = [network.prepare(frame[None]) for network in self._networks]
            clips = [row.expand(_STILL_SIZE, *row.shape[1:]) for row in rows]
            vectors.append(_joined(self._networks, [[clip] for clip in clips]))
        return np.concatenate(vectors)

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return the word vectors of each text. There are no sentence vectors: `TextFeatures.sentence` is empty.

        Raises:
            ConfigError: A text is empty.
        """
        empty = np.empty(0, np.float32)
        encoded = self._words.encode_texts(texts)
        return [TextFeatures(text.text, empty, text.words, text.tokens, text.reading) for text in encoded]

    @cached_property
    def _networks(self) -> tuple[ClipNetwork, ...]:
        networks: list[ClipNetwork] = []
        for part in self._pictures:
            if part.kind == CLIP:
                networks.append(ClipPictures(self._clip))
            else:
                networks.append(load_network(part, self._weights[part], self._device, self._dtype))
        return tuple(networks)

    def _windows(self, fps: float) -> Windows:
        exact = as_fraction(fps)
        return Windows(common_rate([network.rate(exact) for network in self._networks]), exact)

    @cached_property
    def _clip(self) -> TransformersEncoder:
        """CLIP, which encodes frames, words or both. It is loaded only once."""
        weights = next(weights for part, weights in self._weights.items() if part.kind == CLIP)
        precision: Precision = self.number_format.name
        return TransformersEncoder.load(
            weights.name, digest=weights.digest, device=str(self._device), precision=precision
        )

    def _load_words(self, part: NetworkSpec) -> TransformersEncoder | WordEncoder:
        if part.kind == CLIP:
            return self._clip
        weights = self._weights[part]
        return WordEncoder.load(weights.files[0].parent, name=weights.name, device=self._device, dtype=self._dtype)


class FeatureEncoding(VideoEncoding):
    """Encodes a video clip by clip. Several clips are encoded together, once all their frames are decoded."""

    def __init__(self, networks: Sequence[ClipNetwork], windows: Windows):
        self._networks = networks
        self._windows = windows
        self._frames: list[defaultdict[int, list[Tensor]]] = [defaultdict(list) for _ in networks]

    def add(
        self, times_s: Float[np.ndarray, " T"], frames: UInt8[np.ndarray, "T Y X 3"]
    ) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Add frames. Return the vectors that have become complete, and their times in seconds."""
        positions = self._windows.positions(times_s)
        numbers = self._windows.vectors(positions)
        for network, collected in zip(self._networks, self._frames, strict=True):
            is_read = self._windows.is_read(positions, network.rate(self._windows.fps))
            for number in np.unique(numbers[is_read]).tolist():
                collected[number].append(network.prepare(frames[is_read & (numbers == number)]))
        complete = self._complete(before=int(numbers[-1]))
        return self._encode(complete if len(complete) >= _VECTORS_AT_ONCE else [])

    def finish(self) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        """Return the remaining vectors and their times in seconds, without clips for which a network has no frame."""
        return self._encode(self._complete(before=None))

    def _complete(self, *, before: int | None) -> list[int]:
        """Return the sorted indices, below `before`, of the vectors for which all networks have frames."""
        numbers = set.intersection(*map(set, self._frames))
        return sorted(number for number in numbers if before is None or number < before)

    def _encode(self, numbers: list[int]) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
        times_s = self._windows.times_s(np.array(numbers, dtype=np.int64))
        if not numbers:
            return np.empty((0, sum(network.dim for network in self._networks)), np.float32), times_s
        clips = [[torch.cat(collected.pop(number)) for number in numbers] for collected in self._frames]
        return _joined(self._networks, clips), times_s


def _joined(networks: Sequence[ClipNetwork], clips: Sequence[Sequence[Tensor]]) -> Float[np.ndarray, "N D"]:
    """Return the concatenated unit vectors of all networks, scaled to unit length. `clips` has a list per network."""
    parts = [unit(network.encode(listed)) for network, listed in zip(networks, clips, strict=True)]
    return unit(np.concatenate(parts, axis=1))
