"""The encoder `builtin`. It uses weights from installed packages and was not trained on pairs of images and texts.

The vector of a frame x is the probability-weighted mean of the text vectors of its ImageNet classes (ConSE: Norouzi et
al. 2014, arXiv 1312.5650, Eq. 2-3), followed by its colours:

    s(x) = normalise(sum_k softmax(z(x) / temperature)_k  normalise(c_k - m))
    f(x) = [a s(x), b colour(x), rest(x)]

Here z are the logits of EfficientNet-Lite2, whose features are averaged over the whole frame instead of a centre crop.
The text vector of class k is c_k (see the module `classes`), and m is the mean of all c_k. The number rest(x) >= 0
makes f(x) a unit vector. The vector of a sentence q is

    f(q) = normalise([a normalise(MiniLM(q) - m), (colour_weight a^2 / b) mentioned(q), 0])

so f(q) . f(x) is s(q) . s(x) + colour_weight mentioned(q) . colour(x), times a factor that depends only on q.

The vectors of all texts have a large common part, which does not help to choose a frame. Subtracting m removes most of
it, and needs no corpus or queries.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.encoders.builtin import colour, weights
from untrimmed.encoders.builtin.released import read_torch_state
from untrimmed.errors import EncoderError
from untrimmed.files import file_sha256
from untrimmed.types import TextFeatures

if TYPE_CHECKING:
    from untrimmed.encoders.builtin.image import ImageNetwork

_VERSION = 2
_BATCH = 8
_TEXT_DIM = 384
_TEXT_PART = 0.9  # a in the formulas above
# b in the formulas above: the largest value that leaves rest(x) >= 0
_COLOUR_PART = float(np.sqrt(1 - _TEXT_PART**2)) / colour.MAX_NORM
_MODULES = ("onnxruntime", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of the encoder, which determine its identity."""

    network: str = "lite2"
    short_side: int = 224
    # largest ratio of the longer to the shorter side; a wider panorama is cropped, because it could fill the memory
    max_aspect: float = 2.4
    temperature: float = 1.5
    colour_weight: float = 0.1

    @property
    def identity(self) -> str:
        """The identity of the encoder: its version and a hash of these settings and all weight files."""
        w = weights
        packaged = [file.sha256 for file in (w.IMAGE_WEIGHTS[self.network], w.TEXT_WEIGHTS)]
        stored = [file_sha256(file) for file in (w.VOCABULARY, w.CLASS_TABLE)]
        content = repr((astuple(self), packaged, stored))
        return f"builtin-{_VERSION}:{hashlib.sha256(content.encode()).hexdigest()[:12]}"


class BuiltinEncoder:
    """An `Encoder` of frames and texts. The image network is loaded when the first frames are encoded.

    Raises:
        EncoderError: A package is missing, or a file in it is not the pinned version.
    """

    name = "builtin"
    frame_dim = _TEXT_DIM + colour.DIM + 1
    word_dim = _TEXT_DIM

    def __init__(self, recipe: Recipe | None = None):
        require_packages()
        from untrimmed.encoders.builtin.classes import load_class_vectors
        from untrimmed.encoders.builtin.text import MiniLM

        self.recipe = r = recipe or Recipe()
        self.identity = r.identity
        self.short_side = r.short_side
        # find the weights now, so that a missing file is reported before the first video is decoded
        self._image_weights = weights.IMAGE_WEIGHTS[r.network].find()
        self._text = MiniLM()
        classes = load_class_vectors()
        self._mean = classes.mean(axis=0)
        self._classes = _unit(classes - self._mean)
        self._colours = colour.ColourNames()
        self._network: ImageNetwork | None = None

    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Return unit vectors of RGB frames of any size: an array [0, D] if there are no frames."""
        vectors = [np.empty((0, self.frame_dim), np.float32)]
        for start in range(0, len(frames), _BATCH):
            vectors.append(self._encode_batch(self._prepare(frames[start : start + _BATCH])))
        return np.concatenate(vectors)

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return a unit sentence vector and the word-piece vectors of each text."""
        features = []
        for text, sentence in zip(texts, self._text.encode(texts), strict=True):
            meaning = _TEXT_PART * _unit(sentence.vector - self._mean)
            colour = self.recipe.colour_weight * _TEXT_PART**2 / _COLOUR_PART * self._colours.mentioned(text)
            vector = _unit(np.concatenate([meaning, colour, np.zeros(1)])).astype(np.float32)
            features.append(TextFeatures(text, vector, sentence.words, sentence.tokens, sentence.reading))
        return features

    def _encode_batch(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        logits = self._load_network().classify(frames) / self.recipe.temperature
        probability = np.exp(logits - logits.max(axis=1, keepdims=True))
        meaning = _TEXT_PART * _unit(probability @ self._classes)
        colour = _COLOUR_PART * self._colours.describe(frames)
        rest = np.sqrt(np.maximum(1 - (meaning**2).sum(axis=1) - (colour**2).sum(axis=1), 0))
        return np.concatenate([meaning, colour, rest[:, None]], axis=1).astype(np.float32)

    def _load_network(self) -> ImageNetwork:
        if self._network is None:
            from untrimmed.encoders.builtin.image import ImageNetwork

            state = read_torch_state(weights.IMAGE_WEIGHTS[self.recipe.network].locate())
            self._network = ImageNetwork(self.recipe.network, state)
        return self._network

    def _prepare(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> UInt8[np.ndarray, "T Y2 X2 3"]:
        """Crop frames to the maximum aspect ratio, and scale them to the short side unless the decoder has done so."""
        height, width = frames.shape[1:3]
        limit = round(min(height, width) * self.recipe.max_aspect)
        top = max(height - limit, 0) // 2
        left = max(width - limit, 0) // 2
        frames = frames[:, top : top + limit, left : left + limit]
        return frames if min(height, width) == self.short_side else scaled(frames, self.short_side)


def scaled(frames: UInt8[np.ndarray, "T Y X 3"], short_side: int) -> UInt8[np.ndarray, "T Y2 X2 3"]:
    """Scale frames so that the shorter side has `short_side` pixels, by linear interpolation that uses every pixel."""
    old = frames.shape[1:3]
    new = [max(short_side, round(length * short_side / min(old))) for length in old]
    rows, columns = (_resampling(*lengths) for lengths in zip(old, new, strict=True))
    resized = np.empty((len(frames), *new, 3), np.uint8)
    for frame, target in zip(frames, resized, strict=True):
        narrow = columns @ frame.astype(np.float32)
        tall = np.tensordot(rows, narrow, 1)
        target[:] = np.rint(tall).clip(0, 255)
    return resized


def _resampling(length: int, new_length: int) -> Float[np.ndarray, "N M"]:
    """Return the weight of each old pixel in each new pixel.

    The weights are triangles. When a picture is reduced, they are wide enough that no old pixel is skipped.
    """
    scale = length / new_length
    reach = max(scale, 1.0)
    centres = (np.arange(new_length)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(length) + 0.5 - centres) / reach)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _unit(vectors: Float[np.ndarray, "*rows D"]) -> Float[np.ndarray, "*rows D"]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def require_packages() -> None:
    """Check that all packages of the encoder are installed, without loading them.

    Raises:
        EncoderError: A package is missing.
    """
    missing = [module for module in _MODULES if importlib.util.find_spec(module) is None]
    if missing:
        raise EncoderError(f"encoder 'builtin' needs {', '.join(missing)} (not installed); {weights.INSTALL}")
    weights.TEXT_WEIGHTS.find()
