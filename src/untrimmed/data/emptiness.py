"""Detect features without information: all zeros or all equal. `train` refuses a split with such features."""

import logging

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.packed import RaggedRows
from untrimmed.errors import FeatureError

MAX_ZERO_SHARE = 0.01
"""Largest accepted share of videos or captions whose features are all zeros.

Published archives contain a few such videos and captions.
"""

_HEAD = 64  # first compare only this many numbers of each table, so that little of the mapped file is read
_ROUNDING = 1e-5  # rounding tolerance of normalised rows, relative to the largest number
_TABLES = 64  # compare this many tables completely; if they are equal, all tables are assumed to be equal

logger = logging.getLogger(__name__)


def has_equal_rows(rows: Float[np.ndarray, "*_ D"]) -> bool:
    """Whether there are at least two rows, and all rows are equal.

    >>> has_equal_rows(np.ones((3, 2))), has_equal_rows(np.eye(2)), has_equal_rows(np.ones((1, 2)))
    (True, False, False)
    """
    return len(rows) > 1 and bool((rows == rows[0]).all())


def is_close(rows: Float[np.ndarray, "_ D"], expected: Float[np.ndarray, "*_ D"]) -> bool:
    """Whether the rows equal the expected rows up to rounding. A single expected row is compared with every row.

    >>> is_close(np.ones((3, 2)), np.ones(2)), is_close(1e-30 * np.eye(2), np.zeros((2, 2)))
    (True, False)
    """
    fits = len(expected) == len(rows) or expected.ndim == 1 or len(expected) == 1
    largest = max(np.abs(expected).max(initial=0), np.abs(rows).max(initial=0))
    return fits and bool((np.abs(rows - expected) <= _ROUNDING * largest).all())


def require_content(dataset: RetrievalDataset) -> None:
    """Check that a split has usable features, and log a warning if a few videos or captions are all zeros.

    Only the beginning of each table is read. If the beginning is all zeros, or equal to the beginnings of the other
    tables, the table is read completely.

    Raises: FeatureError if all videos or all captions have the same features, or if the share of all-zero videos or
        captions exceeds `MAX_ZERO_SHARE`.
    """
    place = f"{dataset.name}, split {dataset.split}"
    for what, names, tables in (
        ("video", dataset.video_ids, dataset.features.frames),
        ("caption", dataset.caption_ids, dataset.features.words_packed),
    ):
        if _is_constant(tables):
            raise FeatureError(
                f"{place}: every {what} has the same features, expected different ones; extract them again or use the "
                "correct files"
            )
        zeros = _zeros(tables)
        if not zeros:
            continue
        problem = f"{place}: the features of {what} {names[zeros[0]]!r} and {len(zeros) - 1:,} more are all zeros"
        advice = "extract them again or remove their captions"
        limit = int(MAX_ZERO_SHARE * len(names))
        if len(zeros) > limit:
            raise FeatureError(f"{problem}, expected at most {limit} of {len(names):,}; {advice}")
        logger.warning("%s; training continues, but %s", problem, advice)


def _heads(tables: RaggedRows) -> Float[np.ndarray, "N H"]:
    return np.asarray(tables.rows[tables.offsets[:-1], :_HEAD])


def _zeros(tables: RaggedRows) -> list[int]:
    """Return the indices of tables that contain only zeros."""
    suspicious = np.flatnonzero(~_heads(tables).any(axis=1)).tolist()
    return [index for index in suspicious if not tables.table(index).any()]


def _is_constant(tables: RaggedRows) -> bool:
    """Whether there are several tables, and either all are equal or all consist of repetitions of the same row."""
    heads = _heads(tables)
    if len(heads) < 2 or not is_close(heads, heads[0]):
        return False
    first = tables.table(0)
    sample = [tables.table(index) for index in range(min(len(heads), _TABLES))]
    return all(is_close(table, first[:1]) for table in sample) or all(is_close(table, first) for table in sample)
