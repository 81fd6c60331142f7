"""How similar the captions of a split are to each other: statistics of all pairs' cosines (ProtoPRVR, Table 7)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_words, read_split
from untrimmed.data.resampling import unit_rows

Pooling = Literal["mean", "last"]

MAX_CAPTIONS = 20_000  # from a larger split, this many captions are sampled (2e8 pairs)
BLOCK_ROWS = 512
BINS = 20_000  # bins from -1 to 1, so that the error of the median is at most 0.0001


@dataclass(frozen=True)
class TextSimilarity:
    """Statistics of the cosines between the captions of a split. `captions` is the number of captions."""

    split: str
    captions: int
    max: float
    mean: float
    median: float
    min: float


def text_similarity(name: str, root: Path, split: str, pooling: Pooling = "mean") -> TextSimilarity | None:
    """Return the similarity of the captions of one split, or None for a single caption.

    A caption's vector is the `mean` of its extracted word features, or the `last` word feature (as in CLIP). If there
    are more than 20,000 captions, a fixed random sample is used.

    Raises: UnknownNameError for an unknown split, FeatureError for missing or damaged captions or features.
    """
    captions = [annotation.caption_id for annotation in read_split(name, root, split)]
    words = open_words(Layout.at(root, name))
    if len(captions) > MAX_CAPTIONS:
        drawn = np.random.default_rng(0).permutation(len(captions))[:MAX_CAPTIONS]
        captions = [captions[row] for row in np.sort(drawn)]
    if len(captions) < 2:
        return None
    tables = (words.read(caption) for caption in captions)
    vectors = np.array([table[-1] if pooling == "last" else table.mean(axis=0) for table in tables], dtype=np.float32)
    return TextSimilarity(split, len(captions), *pair_statistics(vectors))


def pair_statistics(vectors: Float[np.ndarray, "Q D"]) -> tuple[float, float, float, float]:
    """Return the maximum, mean, median and minimum cosine over all pairs of vectors.

    >>> pair_statistics(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    (1.0, 0.0, 0.0, -1.0)
    """
    unit = unit_rows(vectors)
    counts = np.zeros(BINS, dtype=np.int64)
    total = 0.0
    smallest = np.inf
    largest = -np.inf
    for start in range(0, len(unit) - 1, BLOCK_ROWS):
        block = unit[start : start + BLOCK_ROWS] @ unit[start:].T
        pairs = np.arange(block.shape[1]) > np.arange(len(block))[:, None]  # count each pair once
        cosines = np.clip(block[pairs], -1, 1)
        counts += np.histogram(cosines, BINS, (-1, 1))[0]
        total += cosines.sum(dtype=np.float64)
        smallest = min(smallest, float(cosines.min()))
        largest = max(largest, float(cosines.max()))
    num_pairs = int(counts.sum())
    middle = int(np.searchsorted(np.cumsum(counts), (num_pairs + 1) // 2))
    median = -1 + 2 * middle / BINS
    return largest, float(total / num_pairs), median, smallest
