"""A unit vector for each of the thousand ImageNet classes, in the space of sentence vectors.

Encoding the class names takes half a minute or more, so the vectors are stored beside this file. `python -m
untrimmed.encoders.builtin.classes` computes them from the pinned packages, and a test recomputes some rows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.encoders.builtin.text import DIM, MiniLM
from untrimmed.encoders.builtin.weights import CLASS_GLOSSES, CLASS_NAMES, CLASS_SYNONYMS, CLASS_TABLE

_PROMPTS = ("{}", "a photo of a {}")
_GLOSS_WEIGHT = 0.5


@dataclass(frozen=True)
class ClassText:
    """Three names of a class, and a gloss: a name, followed by a sentence about the appearance of the class."""

    names: tuple[str, str, str]
    gloss: str


def read_class_texts() -> list[ClassText]:
    """Return the texts of all classes, in the order of the network's outputs.

    Raises:
        EncoderError: The package of class names is missing, or a file in it is not the expected version.
    """
    synonyms, names, glosses = (
        json.loads(file.locate().read_text(encoding="utf-8")) for file in (CLASS_SYNONYMS, CLASS_NAMES, CLASS_GLOSSES)
    )
    texts = []
    for index, name in enumerate(names):
        entry = glosses.get(str(index), {})
        other_name = ", ".join(entry.get("name", ())) or name
        first_sentence = entry.get("description", "").split(". ")[0]
        texts.append(ClassText((synonyms[str(index)], name, other_name), f"{name}. {first_sentence}"))
    return texts


def embed_class_texts(text_encoder: MiniLM, texts: Sequence[ClassText]) -> Float[np.ndarray, "K D"]:
    """Return a unit vector per class: the mean vector of its names in all prompts, plus half of its gloss's vector."""
    prompts = [prompt.format(name) for text in texts for name in text.names for prompt in _PROMPTS]
    distinct = list(dict.fromkeys([*prompts, *(text.gloss for text in texts)]))
    vectors = dict(zip(distinct, (sentence.vector for sentence in text_encoder.encode(distinct)), strict=True))
    names = _unit(np.stack([vectors[text] for text in prompts]).reshape(len(texts), -1, DIM).mean(axis=1))
    return _unit(names + _GLOSS_WEIGHT * np.stack([vectors[text.gloss] for text in texts]))


def load_class_vectors() -> Float[np.ndarray, "1000 D"]:
    """Return the class vectors that are stored in this package."""
    return np.load(CLASS_TABLE, allow_pickle=False).astype(np.float32)


def _unit(vectors: Float[np.ndarray, "*rows D"]) -> Float[np.ndarray, "*rows D"]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


if __name__ == "__main__":
    np.save(CLASS_TABLE, embed_class_texts(MiniLM(), read_class_texts()).astype(np.float16))
