"""The learning rate over the updates of a run.

A schedule is one of two kinds of functions:

- A function of the update number (counted from 0) returns the factor of all learning rates. If the function has the
  parameters `total_steps` (the number of updates of the run) and `warmup_share`, these values are passed. A second
  positional parameter with another name and no default value also receives the number of updates.
- A function or class whose first parameter is `optimizer` returns a torch scheduler. Our loop calls the scheduler's
  `step` after each update. For `ReduceLROnPlateau`, our loop calls `step` after each epoch, with the metric of
  `train.select_by`. If the function or class has a parameter `T_max`, `total_steps`, `total_iters` or
  `num_training_steps`, the number of updates is passed. OneCycleLR also gets `max_lr`.

If a schedule has no parameter for a warm-up (`warmup_share` or `num_warmup_steps`), we add a warm-up: the learning
rates are multiplied by a factor that rises linearly from 0 to 1 during the first `train.warmup_share` of the updates.
"""

import inspect
from collections.abc import Callable
from itertools import islice
from typing import Any

from torch.optim import Optimizer, lr_scheduler

from untrimmed.errors import ConfigError
from untrimmed.presets.settings import TrainSettings
from untrimmed.training.choices import accepted, call_choice, choose, classes_of, is_required
from untrimmed.training.optim import warmup_linear

_OF_SCHEDULERS = ("ChainedScheduler", "SequentialLR")  # need schedulers as arguments


def constant(update: int) -> float:
    """Return 1, so that the learning rate does not change after the warm-up."""
    return 1.0


def choose_schedule(train: TrainSettings) -> Callable[..., Any]:
    """Return the function or class that `train.schedule` selects; raises the errors of `choose`."""
    schedulers = classes_of(lr_scheduler, lr_scheduler.LRScheduler, without=_OF_SCHEDULERS)
    named: dict[str, Callable[..., Any]] = {"warmup_linear": warmup_linear, "constant": constant, **schedulers}
    return choose("train.schedule", train.schedule, named)


class Schedule:
    """Sets the learning rates before each update. `rate` is the last learning rate of the first parameter group."""

    def __init__(self, optimizer: Optimizer, train: TrainSettings, num_updates: int):
        self.optimizer = optimizer
        self.rate: float = optimizer.param_groups[0]["lr"]
        self._base = [group["lr"] for group in optimizer.param_groups]
        self._num_updates = max(1, num_updates)
        self._train = train
        self._chosen = choose_schedule(train)
        parameters = inspect.signature(self._chosen).parameters
        self._warms_up = bool({"warmup_share", "num_warmup_steps"} & parameters.keys())
        self.scheduler = self._scheduler() if next(iter(parameters), "") == "optimizer" else None
        values = {"total_steps": self._num_updates, "warmup_share": train.warmup_share}
        self._arguments = accepted(self._chosen, values) | train.schedule_settings
        second = next(islice(parameters.values(), 1, None), None)
        is_total = second is not None and second.name not in self._arguments and is_required(second)
        self._total = (self._num_updates,) if is_total else ()
        if self.scheduler is None:
            factor = call_choice("train.schedule", self._chosen, 0, *self._total, settings=self._arguments)
            if not isinstance(factor, int | float):
                raise ConfigError(f"train.schedule returned {factor!r}, expected the factor of the learning rate")

    def _scheduler(self) -> lr_scheduler.LRScheduler:
        settings = self._train.schedule_settings
        total = self._num_updates
        values: dict[str, Any] = dict.fromkeys(("T_max", "total_steps", "total_iters", "num_training_steps"), total)
        values |= {"num_warmup_steps": round(total * self._train.warmup_share), "max_lr": self._base}
        if self._chosen is lr_scheduler.ReduceLROnPlateau:
            values["mode"] = "max"
        values = accepted(self._chosen, {name: value for name, value in values.items() if name not in settings})
        scheduler = call_choice("train.schedule", self._chosen, self.optimizer, settings=settings, **values)
        if not isinstance(scheduler, lr_scheduler.LRScheduler):
            raise ConfigError(f"train.schedule returned a {type(scheduler).__name__}, expected a torch LRScheduler")
        return scheduler

    def _warmup(self, update: int) -> float:
        share = 0.0 if self._warms_up else self._train.warmup_share
        progress = update / self._num_updates
        return progress / share if progress < share else 1.0

    def update(self, number: int) -> None:
        """Update the parameters with the learning rates of update `number`, counted from 0."""
        groups = self.optimizer.param_groups
        rates = self._base
        factor = self._warmup(number)
        if self.scheduler is None:
            factor *= self._chosen(number, *self._total, **self._arguments)
        else:
            rates = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate * factor
        self.rate = groups[0]["lr"]
        self.optimizer.step()
        if self.scheduler is not None:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate  # some schedulers compute the next rate from this rate
            if not isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step()

    def end_epoch(self, selection: float) -> None:
        """Pass the epoch's selection metric (higher is better) to the schedule if it is `ReduceLROnPlateau`."""
        if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(selection)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the torch scheduler, or an empty dictionary if there is no torch scheduler."""
        return {} if self.scheduler is None else self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the torch scheduler."""
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state)
