"""Callbacks, which receive the progress of training and can stop the training.

A callback is a function with one argument (`TrainingProgress`), or a class without required arguments whose objects can
be called in the same way. On the command line, a callback is `tensorboard`, `wandb`, MODULE:NAME or FILE.py:NAME.

If a callback has the methods `state_dict` and `load_state_dict`, its state is saved with the run and restored when an
interrupted run continues.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from untrimmed.config import reference_of
from untrimmed.errors import ConfigError, one_line
from untrimmed.models.base import RetrievalModel
from untrimmed.running.run import RunConfig
from untrimmed.training.choices import choose, require_one_parameter
from untrimmed.training.loggers import TensorBoard, WandB
from untrimmed.training.state import Stateful

Stage = Literal["training", "validating", "validated", "finished"]
_NAMED: Mapping[str, Callable[..., Any]] = {"tensorboard": TensorBoard, "wandb": WandB}


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a run. Epochs and steps are counted from 1.

    - `stage` is "training" after a step, "validating" after the last step of an epoch, "validated" after the validation
      of an epoch, and "finished" after the run. If `stage` is "finished", epoch, step and losses describe the last
      epoch.
    - `left_s` is the estimated time to the end of the last epoch, in seconds.
    - `results` contains the metrics of the last validation by name, in percent.
    - `model` is the model that is being trained.
    """

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float
    terms: dict[str, float]  # unweighted loss terms by name: means over the epoch so far
    sum_r: float | None  # value of the metric in `train.select_by` at the last validation
    best_sum_r: float | None
    best_epoch: int | None  # None before the first best epoch, and for a run with 0 epochs
    left_s: float
    model: RetrievalModel = field(repr=False)
    config: RunConfig = field(repr=False)  # all settings of the run
    folder: Path  # folder of the run
    learning_rate: float = math.nan
    results: Mapping[str, float] = field(default_factory=dict)
    stage: Stage = "training"
    selects_by: str = "SumR"
    updates: int = 0  # finished updates of the weights since the start of the run
    # unweighted loss terms of the last batch; the key "loss" contains the weighted sum
    batch_terms: Mapping[str, float] = field(default_factory=dict)
    process: int = 0  # number of this process (torchrun); only process 0 should write files


@runtime_checkable
class Callback(Protocol):
    """Receives the progress of training. If it returns "stop", training ends with the validation of this epoch.

    The run is then finished, and `train` with the same folder returns the run unchanged. To train longer, start a new
    run in another folder from the model of this run (`run.load_model()`).
    """

    def __call__(self, progress: TrainingProgress, /) -> Literal["stop"] | None:
        """Receive the progress at every stage (see `TrainingProgress`), in every process.

        All processes must return the same answer.
        """


Callbacks = Callback | str | Sequence[Callback | str] | None


def open_callbacks(callbacks: Callbacks) -> list[Callback]:
    """Return callable objects for callbacks that are given as functions, classes or names.

    Raises: UnknownNameError for an unknown name. ConfigError for a module that cannot be imported, a class with
        required arguments, or a function that cannot be called with one argument.
    """
    if callbacks is None:
        return []
    listed: Sequence[Callback | str] = [callbacks] if isinstance(callbacks, str) or callable(callbacks) else callbacks
    return [_opened(callback) for callback in listed]


def _opened(callback: Callback | str) -> Callback:
    chosen: Any = choose("callback", callback, _NAMED)
    if isinstance(chosen, type):
        try:
            chosen = chosen()
        except TypeError as error:
            advice = "give its arguments defaults, or pass an object from Python"
            raise ConfigError(f"callback {chosen.__name__}: {one_line(error)}; {advice}") from error
    require_one_parameter("callback", chosen, "the progress")
    return chosen


def wants_stop(callbacks: Sequence[Callback], progress: TrainingProgress) -> bool:
    """Call all callbacks, and return whether at least one of them stops the training.

    Raises: ConfigError for an answer other than "stop" or None.
    """
    answers = [callback(progress) for callback in callbacks]
    for answer in answers:
        if answer not in (None, "stop"):
            raise ConfigError(f"callback returned {answer!r}, expected 'stop' or None; correct the function")
    return "stop" in answers


def stateful_callbacks(callbacks: Sequence[Callback]) -> dict[str, Stateful]:
    """Return the callbacks that have a state, by class name. Callbacks of the same class are numbered."""
    parts: dict[str, Stateful] = {}
    counts: Counter[str] = Counter()
    for callback in callbacks:
        if isinstance(callback, Stateful):
            name = f"callback {reference_of(type(callback))}"
            counts[name] += 1
            parts[f"{name} {counts[name]}" if counts[name] > 1 else name] = callback
    return parts
