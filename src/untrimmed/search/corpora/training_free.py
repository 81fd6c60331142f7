"""Models that need no training, by the names under which a library is told to use them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from untrimmed.moments.tf_prvr import NAME

if TYPE_CHECKING:
    from untrimmed.search.corpora.corpus import SearchModel

WINDOWS = ("windows", "none")  # what a library without a model is searched by


def _tf_prvr() -> SearchModel:
    from untrimmed.search.corpora.tf_prvr import TFPRVRModel

    return TFPRVRModel()


TRAINING_FREE: Mapping[str, Callable[[], SearchModel]] = {NAME: _tf_prvr}


def training_free(model: str | os.PathLike[str]) -> Callable[[], SearchModel] | None:
    """What makes the model of that name; None where it is none, or a folder of that name is there."""
    return None if Path(model).exists() else TRAINING_FREE.get(os.fspath(model))
