"""The metric that selects the best epoch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from untrimmed.errors import ConfigError, UnknownNameError, shown_value
from untrimmed.evaluation import events, recall
from untrimmed.models.hooks import reporting
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.opened import OpenedModel
from untrimmed.training.choices import choose, require_one_parameter

EVENT_METRICS = ("event SumR", *(f"R@{k} IoU={iou}" for iou in events.MIN_IOU for k in events.RECALL_AT))
_VIDEO_METRICS = (*(f"R@{k}" for k in recall.RECALL_AT), "SumR", "mAP", "median_rank", "mean_rank")


@dataclass(frozen=True)
class Validation:
    """The argument of a metric function, which is called after each epoch.

    - `metrics` contains the metrics of the epoch by name.
    - `scores` contains the scores [Q, V] of all captions and videos of the split.
    - `opened` is the model with the split. It gives access to `opened.dataset` and `opened.event_recall()`, for
      example.
    """

    metrics: Mapping[str, float]
    scores: Float[np.ndarray, "Q V"]
    opened: OpenedModel


def choose_metric(train: TrainSettings) -> Callable[[Validation], Any] | None:
    """Return the function that `train.select_by` selects, or None if it names a built-in metric.

    Raises: ConfigError for a function that cannot be called with one argument, and the errors of `choose`.
    """
    if train.select_by in (*_VIDEO_METRICS, *EVENT_METRICS):
        return None
    metric = choose("train.select_by", train.select_by, dict.fromkeys((*_VIDEO_METRICS, *EVENT_METRICS), float))
    require_one_parameter("train.select_by", metric, "the validation")
    return metric


def selection_by(metric: Callable[[Validation], Any], validation: Validation) -> float:
    """Return the value of a metric function.

    Raises: ConfigError if the function fails or the value is not a finite number, UnknownNameError if the function
        uses a metric that does not exist.
    """
    with reporting("train.select_by"):
        try:
            value = metric(validation)
        except KeyError as error:
            if not isinstance(name := error.args[0], str) or name in validation.metrics:
                raise
            raise UnknownNameError.among("metric for train.select_by", name, validation.metrics) from error
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        message = f"train.select_by returned {shown_value(value)}, expected a finite number"
        raise ConfigError(f"{message}; correct the function")
    return float(value)
