"""What `train` is given in Python: checked, and turned into settings where it is a model or a data set in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import ConfigError, require_type
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import plain_settings
from untrimmed.running.run import DataSettings


def require_arguments(
    method: object, data: object, root: object, video_features: object, callback: object, overrides: Mapping[str, Any]
) -> str:
    """The name of the data set, if all that `train` was given is of the right kind and goes together.

    Raises: ConfigError naming the first that is not or does not.
    """
    require_type(method, str | RetrievalModel, "method", "a name such as 'ms_sl', or a model that create_model made")
    if callback is not None and not callable(callback):
        require_type(callback, (), "callback", "a function of the progress")
    if isinstance(method, RetrievalModel):
        fixed = next((key for key in overrides if key.partition(".")[0] in ("model", "losses")), None)
        if fixed is not None:
            raise ConfigError(f"{fixed}: the model is made already; give it to create_model, or train by the name")
    if isinstance(data, str):
        require_type(root, str | os.PathLike, "root", f"the folder that holds the data set {data!r}")
        return data
    wanted = "the name of a data set, or two data sets (train, val)"
    require_type(data, tuple, "data", wanted)
    assert isinstance(data, tuple)
    for dataset in data:
        require_type(dataset, RetrievalDataset, "data", wanted)
    if len(data) != 2:
        raise ConfigError(f"data has {len(data)} data sets, wanted two: one to learn from, one to choose the epoch by")
    if root is not None or video_features is not None:
        raise ConfigError("data is in memory; root and video_features are for data sets on disk, leave them out")
    name = data[0].name
    if not name or name in (".", "..") or "/" in name or os.sep in name:
        raise ConfigError(f"data set {name!r}: the run is named by it; give it a name that a folder may have")
    return str(name)


def settings_of(model: RetrievalModel) -> dict[str, Any]:
    """The sections of a preset that a model which is made already has the say in."""
    settings = plain_settings(model.config)
    return {"losses": settings.pop("losses"), "model": settings}


def sized_for(
    dataset: RetrievalDataset, sizes: ModelConfig, data: DataSettings, overrides: Mapping[str, Any]
) -> ModelConfig:
    """The settings of a model with the widths of a data set, and with what it was resampled to if it is in memory.

    What the user has set stays.
    """
    own: dict[str, Any] = {"query_dim": dataset.query_dim, "video_dim": dataset.video_dim}
    if data.root is None:
        made = dataset.features.settings
        own |= {"num_clips": made.num_clips, "max_frames": made.max_frames, "max_words": made.max_words}
    return replace(sizes, **{key: value for key, value in own.items() if f"model.{key}" not in overrides})


def digest_of(sets: tuple[RetrievalDataset, ...]) -> str:
    """What tells data sets in memory from others, so that a run goes on with its own: captions and first clips."""
    digest = hashlib.blake2b(digest_size=8)
    for dataset in sets:
        for annotation in dataset.annotations:
            digest.update(repr(annotation).encode())
        digest.update(np.ascontiguousarray(dataset.features.clips[:, 0]).tobytes())
        digest.update(np.ascontiguousarray(dataset.features.words_packed.rows[:1000]).tobytes())
    return digest.hexdigest()
