"""Check the arguments of `train`."""

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
from untrimmed.presets import Preset, keys_by_section
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.encoding import require_float32
from untrimmed.running.split import require_fit as require_features
from untrimmed.running.training_free import require_learner
from untrimmed.training.averaging import choose_average
from untrimmed.training.optim import choose_optimizer
from untrimmed.training.sampling import choose_preparation, choose_sampler
from untrimmed.training.schedule import choose_schedule
from untrimmed.training.selection import choose_metric

logger = logging.getLogger(__name__)

Sets = tuple[RetrievalDataset, RetrievalDataset]


def require_arguments(
    method: str | RetrievalModel,
    data: str | Sets,
    root: Path | str | None,
    video_features: str | None,
    overrides: Mapping[str, Any],
) -> str:
    """Check the arguments of `train`, and return the name of the data set; raises ConfigError for a wrong argument."""
    name = method.name if isinstance(method, RetrievalModel) else method
    require_sections(overrides, lambda: keys_by_section(name), '{}={{"{}": …}}')
    if isinstance(method, RetrievalModel):
        _require_trainable(method, overrides)
    else:
        require_learner(method)
    if isinstance(data, str):
        if root is None:
            raise ConfigError(f"root is None, expected the folder that contains the data set {data!r}")
        return data
    if root is not None or video_features is not None:
        raise ConfigError("data is in memory; root and video_features are for data sets on disk, leave them out")
    name = data[0].name
    if not name or name in (".", "..") or "/" in name or os.sep in name:
        raise ConfigError(f"data set {name!r}: the run's folder has this name; use a name that a folder may have")
    return name


def require_choices(train: TrainSettings) -> None:
    """Check that the functions and classes that settings name exist, such as the optimizer and the schedule.

    Raises: the errors of `choose`.
    """
    for choose in (
        choose_optimizer,
        choose_schedule,
        choose_average,
        choose_sampler,
        choose_preparation,
        choose_metric,
    ):
        choose(train)


def _require_trainable(model: RetrievalModel, overrides: Mapping[str, Any]) -> None:
    fixed = next((key for key in overrides if key.partition(".")[0] in ("model", "losses")), None)
    if fixed is not None:
        raise ConfigError(f"{fixed}: the model already exists; pass this to create_model, or train by method name")
    require_float32(model)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"{model.name}: all parameters are frozen; set requires_grad for the parameters to train")


def require_fit(sets: Sets, sizes: ModelConfig, preset: Preset) -> None:
    """Check that features have content and fit the model's sizes, and that there are at least two training videos.

    If there is only one validation video, a warning is logged.

    Raises: FeatureError, or ConfigError for data in memory with the wrong sizes.
    """
    train_set, val_set = sets
    for dataset in sets:
        require_features(sizes, preset.features, dataset, f"{preset.name}/{preset.dataset}")
        require_content(dataset)
    for dataset, use in ((train_set, "training needs negatives"), (val_set, "validation cannot rank it")):
        if len(dataset.video_ids) == 1:
            message = f"{dataset.name}, split {dataset.split}: there is only one video, but {use}"
            if dataset is train_set:
                raise FeatureError(f"{message}; add videos, at least two are needed")
            logger.warning("%s; the first epoch counts as the best", message)


def warn_of_idle(sizes: ModelConfig, weights: Mapping[str, float], epochs: int) -> None:
    """Log a warning for each loss that has no effect because it starts after the last epoch."""
    for name, loss in sizes.losses.items():
        if loss is not None and weights.get(name) and 0 < epochs <= loss.first_epoch:
            logger.warning(
                "%s starts in epoch %d, but there are only %d epochs, so it has no effect; raise train.epochs or lower "
                "losses.%s.warmup_epoch",
                name,
                loss.first_epoch + 1,
                epochs,
                name,
            )
