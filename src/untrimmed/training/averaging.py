"""Average the weights of a model over the updates of a training, with torch.optim.swa_utils."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from untrimmed.presets.settings import TrainSettings
from untrimmed.training.choices import call_choice, choose

_NAMED = {"ema": get_ema_multi_avg_fn, "swa": get_swa_multi_avg_fn}


def choose_average(train: TrainSettings) -> Callable[..., Any] | None:
    """Return the averaging function that `train.average` selects, or None; raises the errors of `choose`."""
    return None if train.average is None else choose("train.average", train.average, _NAMED)


def create_average(model: nn.Module, train: TrainSettings) -> AveragedModel | None:
    """Return a copy of the model that stores the average weights (`train.average`), or None without averaging.

    Raises: the errors of `choose`, and ConfigError for settings that the average does not accept.
    """
    chosen = choose_average(train)
    if chosen is None:
        return None
    settings: dict[str, Any] = train.average_settings
    if chosen in _NAMED.values():
        return AveragedModel(model, multi_avg_fn=call_choice("train.average", chosen, settings=settings))
    return AveragedModel(model, avg_fn=partial(chosen, **settings))
