"""Whether what `train` is given goes together."""

import inspect
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from untrimmed.config import require_sections
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.emptiness import require_content
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.presets import Preset
from untrimmed.running.encoding import require_float32
from untrimmed.running.split import require_fit as require_features
from untrimmed.running.training_free import require_learner
from untrimmed.training.loop import Callback

logger = logging.getLogger(__name__)

Sets = tuple[RetrievalDataset, RetrievalDataset]


def require_arguments(
    method: str | RetrievalModel,
    data: str | Sets,
    root: Path | str | None,
    video_features: str | None,
    callback: Callback | None,
    overrides: Mapping[str, Any],
) -> str:
    """Return the name of the data set; a ConfigError names the first argument of `train` that does not fit."""
    require_sections(overrides)
    if callback is not None:
        _require_callable(callback)
    if isinstance(method, RetrievalModel):
        _require_trainable(method, overrides)
    else:
        require_learner(method)
    if isinstance(data, str):
        if root is None:
            raise ConfigError(f"root is None, wanted the folder that holds the data set {data!r}")
        return data
    if root is not None or video_features is not None:
        raise ConfigError("data is in memory; root and video_features are for data sets on disk, leave them out")
    name = data[0].name
    if not name or name in (".", "..") or "/" in name or os.sep in name:
        raise ConfigError(f"data set {name!r}: the run is named by it; give it a name that a folder may have")
    return name


def _require_callable(callback: Callback) -> None:
    try:
        inspect.signature(callback).bind(None)
    except TypeError as error:
        what = f"callback cannot be called with the progress alone ({error})"
        raise ConfigError(f"{what}; correct its parameters") from None
    except ValueError:  # of some functions written in C nothing is known
        return


def _require_trainable(model: RetrievalModel, overrides: Mapping[str, Any]) -> None:
    fixed = next((key for key in overrides if key.partition(".")[0] in ("model", "losses")), None)
    if fixed is not None:
        raise ConfigError(f"{fixed}: the model is made already; give it to create_model, or train by the name")
    require_float32(model)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"{model.name}: all parameters are frozen, wanted one to train; set its requires_grad")


def require_fit(sets: Sets, sizes: ModelConfig, preset: Preset) -> None:
    """Refuse features that the model was not made for or that say nothing, and a single training video.

    A single validation video gives a warning. Raises: FeatureError, or ConfigError for arrays of other sizes.
    """
    train_set, val_set = sets
    for dataset in sets:
        require_features(sizes, preset.features, dataset, f"{preset.name}/{preset.dataset}")
        require_content(dataset)
    for dataset, use in ((train_set, "learn to tell it from"), (val_set, "choose the epoch by")):
        if len(dataset.video_ids) == 1:
            what = f"{dataset.name}, split {dataset.split}: there is one video and no other to {use}"
            if dataset is train_set:
                raise FeatureError(f"{what}, wanted two or more; add some")
            logger.warning("%s; the first epoch is kept", what)


def warn_of_idle(sizes: ModelConfig, weights: Mapping[str, float], epochs: int) -> None:
    """Warn of losses that begin after the last epoch, so that they never learn anything."""
    for name, loss in sizes.losses.items():
        if loss is not None and weights.get(name) and 0 < epochs <= loss.first_epoch:
            logger.warning(
                "%s begins in epoch %d, after the last of %d, and is 0 until then; raise train.epochs or lower "
                "losses.%s.warmup_epoch",
                name,
                loss.first_epoch + 1,
                epochs,
                name,
            )
