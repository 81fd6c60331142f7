"""Features that say nothing: all zeros, or the same everywhere. `check` names them, `train` refuses a split of them."""

from __future__ import annotations

import logging

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.packed import RaggedRows
from untrimmed.errors import FeatureError

MOST_ZEROS = 0.01
"""Above this share of videos, or captions, that are all zeros a split is refused; real archives hold a few."""

_HEAD = 64  # numbers of a first row that are looked at in every table, so that mapped features are hardly read
_ROUNDING = 1e-6  # by which means of the same numbers differ, of rows of unit length
_TABLES = 64  # tables that are read whole before a split counts as constant

logger = logging.getLogger(__name__)


def is_still(rows: Float[np.ndarray, "T D"]) -> bool:
    """Whether all rows, at least two, are equal.

    >>> is_still(np.ones((3, 2))), is_still(np.eye(2)), is_still(np.ones((1, 2)))
    (True, False, False)
    """
    return len(rows) > 1 and bool((rows == rows[0]).all())


def require_content(dataset: RetrievalDataset) -> None:
    """Refuse a split that nothing can be learned from, and warn of single videos and captions that are all zeros.

    Little is read: the beginnings of first rows, and what follows where these are suspicious.

    Raises: FeatureError where all videos, or all captions, have the same features, or too many of them (`MOST_ZEROS`)
        nothing but zeros.
    """
    place = f"{dataset.name}, split {dataset.split}"
    for what, names, tables in (
        ("video", dataset.video_ids, dataset.features.frames),
        ("caption", dataset.caption_ids, dataset.features.words_packed),
    ):
        if _is_constant(tables):
            raise FeatureError(
                f"{place}: every {what} has the same features, wanted different ones; extract them again, or give the "
                "right files"
            )
        zeros = _zeros(tables, most=int(MOST_ZEROS * len(names)))
        if not zeros:
            continue
        found = f"{place}: the features of {what} {names[zeros[0]]!r} are all zeros, and of {len(zeros) - 1} more"
        advice = "extract them again, or remove their captions"
        if len(zeros) > MOST_ZEROS * len(names):
            raise FeatureError(f"{found} or above, wanted at most {MOST_ZEROS:.0%} of {len(names):,}; {advice}")
        logger.warning("%s; training goes on, %s", found, advice)


def _heads(tables: RaggedRows) -> Float[np.ndarray, "N H"]:
    return np.asarray(tables.rows[tables.offsets[:-1], :_HEAD])


def _zeros(tables: RaggedRows, *, most: int) -> list[int]:
    """The tables that hold nothing but zeros, no more than one above `most` of them."""
    zeros: list[int] = []
    for index in np.flatnonzero(~_heads(tables).any(axis=1)).tolist():
        if len(zeros) > most:
            break
        if not tables.table(index).any():
            zeros.append(index)
    return zeros


def _is_constant(tables: RaggedRows) -> bool:
    """Whether all tables, at least two, hold one and the same row."""
    heads = _heads(tables)
    if len(heads) < 2 or not np.allclose(heads, heads[0], rtol=0, atol=_ROUNDING):
        return False
    looked_at = range(min(len(heads), _TABLES))
    return all(np.allclose(tables.table(index), tables.rows[0], rtol=0, atol=_ROUNDING) for index in looked_at)
