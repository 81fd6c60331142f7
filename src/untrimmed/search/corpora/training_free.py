"""Models that need no training, by the names under which a library uses them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from untrimmed.moments import tf_prvr
from untrimmed.search.corpora import frames
from untrimmed.search.corpora.corpus import SearchModel


def _tf_prvr() -> SearchModel:
    from untrimmed.search.corpora.tf_prvr import TFPRVRModel

    return TFPRVRModel()


TRAINING_FREE: Mapping[str, Callable[[], SearchModel]] = {frames.NAME: frames.FrameModel, tf_prvr.NAME: _tf_prvr}


def training_free(model: str | os.PathLike[str] | None) -> SearchModel | None:
    """Return the training-free model of that name, `frames` for None or "none"; None if a folder has the name."""
    if model is None:
        return frames.FrameModel()
    if Path(model).exists():
        return None
    name = os.fspath(model)
    make = TRAINING_FREE.get(frames.NAME if name == "none" else name)
    return make() if make else None
