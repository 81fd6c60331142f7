"""Which data set a study's runs are of: a short digest that is the same on every machine and in every folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.data.annotations import videos_of
from untrimmed.data.layout import Layout, read_split
from untrimmed.data.sources import open_frames, open_words

CAPTIONS = 3  # whose words count
NUMBERS = 8  # of a table of features


def identity_of(name: str, root: Path) -> str:
    """The digest of ROOT/NAME: its test captions' ids, some words of the first, some of the first video's frames.

    Of each table the first numbers count, as hundredths of its largest: simulated on two machines, features may differ
    in their last digits.

    Raises: FeatureError for missing or damaged captions and features, ConfigError for several frame features.
    """
    layout = Layout.at(root, name)
    captions = read_split(name, root, "test")
    ids = [caption.caption_id for caption in captions]
    words, frames = open_words(layout), open_frames(layout)
    tables = [words.read(caption_id) for caption_id in ids[:CAPTIONS]] + [frames.read(videos_of(captions)[0])]
    content = "\n".join([*ids, *map(_beginning, tables)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _beginning(table: Float[np.ndarray, "N D"]) -> str:
    hundredths = 100 * table.flat[:NUMBERS] / max(float(np.abs(table).max()), 1e-12)
    return " ".join(str(round(number)) for number in hundredths.tolist())
