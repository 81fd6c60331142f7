"""The `builtin` encoder: pictures and sentences in one space, from packages alone, without any paired training.

A frame x is classified by EfficientNet-Lite, and becomes the probability-weighted mean of what its classes are called
(ConSE: Norouzi et al. 2014, arXiv 1312.5650, Eq. 2-3):

    f(x) = sum_k softmax(z(x) / temperature)_k  s(c_k),        s(c) = normalise(mean over prompts of MiniLM(c) - m)

with z the logits of the whole frame, c_k the names of class k, and m the mean of all class vectors. A sentence q
becomes normalise(MiniLM(q) - m): texts share a large common part, which says nothing about which frame fits, and m
removes it without looking at any corpus or query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from untrimmed.features.builtin_classes import cached_classes
from untrimmed.features.builtin_image import VARIANTS, EfficientNetLite, from_released
from untrimmed.features.builtin_text import DIM, MiniLM
from untrimmed.features.builtin_weights import (
    CLASS_GLOSSES,
    CLASS_NAMES,
    CLASS_SYNONYMS,
    IMAGE_WEIGHTS,
    TEXT_TOKENIZER,
    TEXT_WEIGHTS,
)
from untrimmed.types import TextFeatures

_VERSION = 1
_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every knob of the encoder; all of them enter its identity."""

    network: str = "lite0"
    short_side: int = 224
    max_aspect: float = 2.4  # longer frames lose their ends, so one panorama cannot fill the memory
    temperature: float = 1.5
    prompts: tuple[str, ...] = ("{}", "a photo of a {}")

    @property
    def identity(self) -> str:
        """The name of the vectors: version, and a hash over these knobs and every file that is read."""
        files = (IMAGE_WEIGHTS[self.network], TEXT_WEIGHTS, TEXT_TOKENIZER, CLASS_SYNONYMS, CLASS_NAMES, CLASS_GLOSSES)
        content = repr((astuple(self), [file.sha256 for file in files]))
        return f"builtin-{_VERSION}:{hashlib.sha256(content.encode()).hexdigest()[:12]}"


class BuiltinEncoder:
    """An `Encoder` of frames and texts; the picture network is read when the first frames come.

    Raises:
        EncoderError: a package is missing or its content is not the pinned one.
    """

    name = "builtin"
    frame_dim = DIM
    word_dim = DIM

    def __init__(self, recipe: Recipe | None = None):
        self.recipe = recipe or Recipe()
        self.identity = self.recipe.identity
        self.short_side = self.recipe.short_side
        self._text = MiniLM()
        classes = cached_classes(self._text, self.recipe.prompts, self.identity)
        self._mean = classes.mean(axis=0)
        self._classes = torch.from_numpy(_unit(classes - self._mean))
        self._network: EfficientNetLite | None = None

    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Unit vectors of RGB frames of any size; an empty stack gives an empty [0, D]."""
        network = self._load_network()
        vectors = [np.empty((0, self.frame_dim), np.float32)]
        with torch.inference_mode():
            for start in range(0, len(frames), _BATCH):
                pixels = self._prepare(torch.from_numpy(frames[start : start + _BATCH]))
                logits = network.classify(network(pixels).mean(dim=(2, 3)))
                probability = torch.softmax(logits / self.recipe.temperature, dim=1)
                vectors.append(functional.normalize(probability @ self._classes, dim=1).numpy())
        return np.concatenate(vectors)

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """A unit sentence vector and the word-piece vectors of each text."""
        return [
            TextFeatures(text, _unit(sentence.vector - self._mean), sentence.words, sentence.tokens)
            for text, sentence in zip(texts, self._text.encode(texts), strict=True)
        ]

    def _load_network(self) -> EfficientNetLite:
        if self._network is None:
            weights = torch.load(IMAGE_WEIGHTS[self.recipe.network].locate(), weights_only=True)
            self._network = from_released(VARIANTS[self.recipe.network], weights)
        return self._network

    def _prepare(self, frames: UInt8[Tensor, "T Y X 3"]) -> Float[Tensor, "T 3 Y2 X2"]:
        """Frames scaled to the short side, cut to the widest aspect, in [-1, 1]."""
        pixels = frames.permute(0, 3, 1, 2).float()
        height, width = pixels.shape[2:]
        limit = round(min(height, width) * self.recipe.max_aspect)
        top, left = max(height - limit, 0) // 2, max(width - limit, 0) // 2
        pixels = pixels[:, :, top : top + limit, left : left + limit]
        scale = self.short_side / min(height, width)
        if scale != 1:
            size = [max(self.short_side, round(n * scale)) for n in pixels.shape[2:]]
            pixels = functional.interpolate(pixels, size, mode="bilinear", antialias=True, align_corners=False)
        return ((pixels - 127) / 128).contiguous(memory_format=torch.channels_last)


def _unit(vectors: Float[np.ndarray, "*rows D"]) -> Float[np.ndarray, "*rows D"]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def load() -> BuiltinEncoder:
    """The built-in encoder with its released recipe.

    Raises:
        EncoderError: a package is missing or its content is not the pinned one.
    """
    return BuiltinEncoder()
