"""The thousand ImageNet classes as unit vectors in the space of the sentences: the bridge from pictures to words."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from platformdirs import user_cache_path

from untrimmed.features.builtin_text import DIM, MiniLM
from untrimmed.features.builtin_weights import CLASS_GLOSSES, CLASS_NAMES, CLASS_SYNONYMS

NUM_CLASSES = 1000


def class_texts(prompts: Sequence[str]) -> list[list[str]]:
    """For each class every way we know to say it, each put into every prompt ('a photo of a {}').

    Raises:
        EncoderError: the package of class names is missing or of other content.
    """
    synonyms, names, glosses = (
        json.loads(file.locate().read_text(encoding="utf-8")) for file in (CLASS_SYNONYMS, CLASS_NAMES, CLASS_GLOSSES)
    )
    texts = []
    for index in range(NUM_CLASSES):
        ways = [synonyms[str(index)], names[index], ", ".join(glosses.get(str(index), {}).get("name", ()))]
        # dict, not set: the order, and with it the sum's last bits, must not vary from run to run
        ways = list(dict.fromkeys(way for way in ways if way))
        texts.append([prompt.format(way) for way in ways for prompt in prompts])
    return texts


def embed_classes(text_encoder: MiniLM, prompts: Sequence[str]) -> Float[np.ndarray, "1000 D"]:
    """The unit mean of each class's text vectors; takes some seconds."""
    texts = class_texts(prompts)
    vectors = iter(text_encoder.encode([text for ways in texts for text in ways]))
    means = np.stack([np.mean([next(vectors).vector for _ in ways], axis=0) for ways in texts])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def cached_classes(text_encoder: MiniLM, prompts: Sequence[str], identity: str) -> Float[np.ndarray, "1000 D"]:
    """`embed_classes`, kept in the user's cache folder under the encoder's identity; a damaged file is made anew."""
    file = user_cache_path("untrimmed") / f"{identity.replace(':', '-')}.npy"
    try:
        vectors = np.load(file, allow_pickle=False)
        if vectors.shape == (NUM_CLASSES, DIM) and vectors.dtype == np.float32:
            return vectors
    except (OSError, ValueError):
        pass  # not there yet, or cut short: both end the same way, by computing it
    vectors = embed_classes(text_encoder, prompts).astype(np.float32)
    _write(file, vectors)
    return vectors


def _write(file: Path, vectors: Float[np.ndarray, "1000 D"]) -> None:
    """Put the table in place in one step, so that a reader never sees half of it; a read-only cache is no error."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".tmp", delete=False) as draft:
            np.save(draft, vectors)
        os.replace(draft.name, file)
    except OSError:
        return
