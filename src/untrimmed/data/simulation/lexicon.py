"""Hidden meanings of words and sentences in the simulated world. Synonyms have similar meaning vectors.

`untrimmed.data.simulation.world` computes text features and video features from meanings with two different networks.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from untrimmed.data.resampling import unit_rows

FUNCTION_WORDS = frozenset((
    "a", "an", "the", "this", "that", "these", "those", "his", "her", "its", "their", "he", "she", "it", "you",
    "they", "him", "them", "himself", "herself", "one", "some", "another", "other", "is", "are", "was", "were",
    "be", "been", "being", "has", "have", "had", "do", "does", "did", "in", "on", "at", "of", "off", "to", "from",
    "by", "with", "for", "into", "onto", "over", "under", "up", "down", "out", "as", "and", "or", "but", "then",
    "than", "while", "when", "which", "who", "what", "there", "here", "again", "very", "so", "also", "not", "no",
))  # fmt: skip
MEANING_DIM = 48
CLUSTERS = 60
CENTRE_WEIGHT = 0.6
"""Weight of the vector that synonyms have in common. The cosine of two synonyms is about the square of this weight."""
RARE_SHARE = 0.05
"""A word is rare if it occurs in less than this share of the captions."""
MIXING = 1.5
"""Frequency of the waves that mix meanings. Sentences that differ in one of six words then have a cosine of 0.7."""
ASPECTS = 6
"""Number of parts of a mixed meaning. A frame shows some of these parts, just as it shows some words of a caption."""


class Content(NamedTuple):
    """The parts of a sentence's meaning that frames show separately, and the share of frames that show each part.

    The parts are the content words, weighted by rarity, or the aspects of a mixed meaning.
    """

    meanings: Float[np.ndarray, "W M"]
    visible: Float[np.ndarray, " W"]


class RandomWaves:
    """A fixed random nonlinear map (cosines of projections) that maps similar inputs to similar outputs.

    For inputs x and y, the inner product of the outputs is about exp(-(frequency |x - y|)² / 2) (random Fourier
    features, Rahimi and Recht 2007).
    """

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, frequency: float = MIXING):
        self._directions = frequency * rng.standard_normal((inputs, outputs))
        self._phases = rng.uniform(0, 2 * np.pi, outputs)

    def __call__(self, rows: Float[np.ndarray, "*N I"]) -> Float[np.ndarray, "*N O"]:
        """Return the output vectors, of length about 1."""
        return np.cos(rows @ self._directions + self._phases) * np.sqrt(2 / len(self._phases))


class Lexicon:
    """The meanings of words and sentences, generated from a seed.

    A sentence's meaning is the sum of its words' meanings. Words that are rare in `texts` have more weight. With
    `mixed`, a nonlinear map is applied to the sum.
    """

    def __init__(self, seed: int, texts: Sequence[str] = (), *, mixed: bool = False):
        self.seed = seed
        self._mix = RandomWaves(generator(seed, "mix"), MEANING_DIM, MEANING_DIM) if mixed else None
        self.captions_with: dict[str, list[int]] = defaultdict(list)
        for index, text in enumerate(texts):
            for word in dict.fromkeys(content_words(text)):
                self.captions_with[word].append(index)
        self._num_texts = len(texts)
        self._centres = unit_rows(generator(seed, "clusters").standard_normal((CLUSTERS, MEANING_DIM)))
        self.content = lru_cache(maxsize=4096)(self._content)
        self._word = lru_cache(maxsize=None)(self._new_word)

    def intent(self, text: str) -> Float[np.ndarray, " M"]:
        """Return the meaning of a sentence, a vector of length 1."""
        return unit_rows(self.content(text).meanings.sum(axis=0))

    def rare(self, texts: Sequence[str]) -> list[str]:
        """Return the distinct rare content words of the sentences, in order of appearance."""
        words = dict.fromkeys(word for text in texts for word in content_words(text))
        return [word for word in words if len(self.captions_with.get(word, ())) < RARE_SHARE * self._num_texts]

    def meaning(self, word: str) -> Float[np.ndarray, " M"]:
        """Return the meaning of a word, a vector of length 1."""
        return self._word(word)[0]

    def _content(self, text: str) -> Content:
        words = content_words(text)
        meanings = np.stack([self._weight(word) * self.meaning(word) for word in words])
        if self._mix is None:
            return Content(meanings, np.array([self._word(word)[1] for word in words]))
        mixed = self._mix(unit_rows(meanings.sum(axis=0)))
        aspects = np.eye(ASPECTS).repeat(MEANING_DIM // ASPECTS, axis=1) * mixed
        return Content(aspects, generator(self.seed, "aspects", *words).beta(1.5, 1.5, ASPECTS))

    def _weight(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        return float(np.log(1 + (1 + self._num_texts) / (1 + len(self.captions_with.get(word, ())))))

    def _new_word(self, word: str) -> tuple[Float[np.ndarray, " M"], float]:
        rng = generator(self.seed, "word", word)
        individual = unit_rows(rng.standard_normal(MEANING_DIM))
        centre = self._centres[rng.integers(CLUSTERS)]
        return unit_rows(np.sqrt(1 - CENTRE_WEIGHT**2) * individual + CENTRE_WEIGHT * centre), float(rng.beta(1.5, 1.5))


def tokens(text: str) -> list[str]:
    """Return the words of a sentence in lower case. The list is never empty.

    >>> tokens("A dog's bone, 2 bones.")
    ['a', "dog's", 'bone', '2', 'bones']
    """
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower()) or [text.lower()]


def content_words(text: str) -> list[str]:
    """Return the words of a sentence that a picture can show, or all words if there are no such words.

    >>> content_words("The man sits on a chair.")
    ['man', 'sits', 'chair']
    """
    return [token for token in tokens(text) if token not in FUNCTION_WORDS] or tokens(text)


def generator(seed: int, *names: str) -> np.random.Generator:
    """Return a random generator that depends only on the seed and the names.

    Generators with different names are independent. A generator's numbers are the same on every machine.
    """
    digest = hashlib.blake2b("\0".join((str(seed), *names)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
