"""Features that say nothing: all zeros, or the same everywhere. `check` names them, `train` refuses a split of them."""

import logging

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.packed import RaggedRows
from untrimmed.errors import FeatureError

MOST_ZEROS = 0.01
"""Above this share of videos, or captions, that are all zeros a split is refused; real archives hold a few."""

_HEAD = 64  # numbers of a first row that are looked at in every table, so that mapped features are hardly read
_ROUNDING = 1e-5  # by which rows of one direction differ once they have unit length, of the largest number
_TABLES = 64  # tables that are read whole before a split counts as constant

logger = logging.getLogger(__name__)


def is_still(rows: Float[np.ndarray, "*_ D"]) -> bool:
    """Whether all rows, at least two, are equal.

    >>> is_still(np.ones((3, 2))), is_still(np.eye(2)), is_still(np.ones((1, 2)))
    (True, False, False)
    """
    return len(rows) > 1 and bool((rows == rows[0]).all())


def is_alike(rows: Float[np.ndarray, "_ D"], wanted: Float[np.ndarray, "*_ D"]) -> bool:
    """Whether rows are the wanted ones, or all the one wanted row, but for rounding.

    >>> is_alike(np.ones((3, 2)), np.ones(2)), is_alike(1e-30 * np.eye(2), np.zeros((2, 2)))
    (True, False)
    """
    fits = len(wanted) == len(rows) or wanted.ndim == 1 or len(wanted) == 1
    largest = max(np.abs(wanted).max(initial=0), np.abs(rows).max(initial=0))
    return fits and bool((np.abs(rows - wanted) <= _ROUNDING * largest).all())


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
        zeros = _zeros(tables)
        if not zeros:
            continue
        found = f"{place}: the features of {what} {names[zeros[0]]!r} and {len(zeros) - 1:,} more are all zeros"
        advice = "extract them again, or remove their captions"
        if len(zeros) > MOST_ZEROS * len(names):
            raise FeatureError(f"{found}, wanted at most {int(MOST_ZEROS * len(names))} of {len(names):,}; {advice}")
        logger.warning("%s; training goes on, %s", found, advice)


def _heads(tables: RaggedRows) -> Float[np.ndarray, "N H"]:
    return np.asarray(tables.rows[tables.offsets[:-1], :_HEAD])


def _zeros(tables: RaggedRows) -> list[int]:
    """The tables that hold nothing but zeros."""
    suspicious = np.flatnonzero(~_heads(tables).any(axis=1)).tolist()
    return [index for index in suspicious if not tables.table(index).any()]


def _is_constant(tables: RaggedRows) -> bool:
    """Whether all tables, at least two, hold one and the same row, or are one and the same table."""
    heads = _heads(tables)
    if len(heads) < 2 or not is_alike(heads, heads[0]):
        return False
    first = tables.table(0)
    others = [tables.table(index) for index in range(min(len(heads), _TABLES))]
    return all(is_alike(table, first[:1]) for table in others) or all(is_alike(table, first) for table in others)
