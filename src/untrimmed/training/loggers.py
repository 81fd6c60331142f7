"""Callbacks that write to TensorBoard and to Weights & Biases.

After each update, both record the learning rate and the last batch's loss and loss terms. After each epoch, they record
the metrics on the validation split. Only process 0 of torchrun writes.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untrimmed.config import to_plain
from untrimmed.errors import ConfigError, missing_package

if TYPE_CHECKING:
    from untrimmed.training.callbacks import TrainingProgress


def _figures(progress: "TrainingProgress") -> Iterator[tuple[str, float]]:
    if progress.stage == "training":
        yield from ((f"train/{name}", value) for name, value in progress.batch_terms.items())
        yield "train/learning_rate", progress.learning_rate
    if progress.stage == "validated":
        yield from ((f"val/{name}", value) for name, value in progress.results.items())
        yield "epoch", progress.epoch


class TensorBoard:
    """Writes event files for TensorBoard to `folder`, by default RUN/tensorboard.

    Show the files with `tensorboard --logdir`. If an interrupted run continues from a saved state, events after that
    state are replaced.
    """

    def __init__(self, folder: Path | str | None = None):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise ConfigError(missing_package(error) or str(error)) from error
        self._open = SummaryWriter
        self._folder = folder
        self._writer: Any = None

    def __call__(self, progress: "TrainingProgress") -> None:
        """Write the numbers for the stage of `progress`."""
        if progress.process or (self._writer is None and progress.stage == "finished"):
            return
        if self._writer is None:
            folder = self._folder or progress.folder / "tensorboard"
            is_between_updates = progress.stage == "training" and not _has_updated(progress)
            self._writer = self._open(str(folder), purge_step=progress.updates + is_between_updates)
        if progress.stage == "validated" or _has_updated(progress):
            for name, value in _figures(progress):
                self._writer.add_scalar(name, value, progress.updates)
        if progress.stage == "validated":
            self._writer.flush()
        if progress.stage == "finished":
            self._writer.close()
            self._writer = None  # the next training may write to another folder


class WandB:
    """Logs to Weights & Biases, with all settings of the run. `settings` are arguments of `wandb.init`.

    By default, the environment variables of wandb apply: WANDB_PROJECT, WANDB_MODE=offline and others. If an
    interrupted run continues, its numbers are added to the same run of Weights & Biases.
    """

    def __init__(self, **settings: Any):
        try:
            import wandb
        except ModuleNotFoundError as error:
            raise ConfigError(missing_package(error) or str(error)) from error
        self._wandb = wandb
        self._settings = settings
        self._prepare()

    def _prepare(self) -> None:
        """Prepare a new run of Weights & Biases."""
        self._id = str(self._settings.get("id") or secrets.token_hex(4))
        self._run: Any = None

    def __call__(self, progress: "TrainingProgress") -> None:
        """Log the numbers for the stage of `progress`."""
        if progress.process or (self._run is None and progress.stage == "finished"):
            return
        if self._run is None:
            defaults = {"name": progress.folder.name, "dir": progress.folder, "config": to_plain(progress.config)}
            settings = defaults | {"resume": "allow"} | self._settings | {"id": self._id}
            self._run = self._wandb.init(**settings)
        if progress.stage == "finished":
            self._run.finish()
            self._prepare()
            return
        if progress.stage == "validated" or _has_updated(progress):
            self._run.log(dict(_figures(progress)), step=progress.updates)

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run in Weights & Biases."""
        return {"id": self._id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the run with this id."""
        self._id = state["id"]


def _has_updated(progress: "TrainingProgress") -> bool:
    """Whether the last training batch completed an update of the weights."""
    is_update = progress.step % progress.config.train.accumulate == 0 or progress.step == progress.num_steps
    return progress.stage == "training" and is_update
