"""Choose the rows of each training batch (`train.sampler`), read them, and change the batch (`train.prepare_batch`).

A sampler is called with the training set. If the sampler has parameters named `batch_size`, `batch_of`, `seed` or
`epoch`, these values are passed too. A sampler returns the row numbers of each batch. Rows are videos, or captions with
`batch_of="captions"`. For equal arguments, a sampler must return equal rows, because an interrupted epoch continues
after the last batch that was trained. All epochs must have the same number of batches.

A function for `train.prepare_batch` is called with each batch and its `BatchContext`, and returns the batch to train
on. The function is called without gradients, after the previous update of the weights. It may use the model, which is
in training mode.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int

from untrimmed.batches import TrainingBatch
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import ConfigError, one_line
from untrimmed.models.base import RetrievalModel
from untrimmed.models.hooks import reporting
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.batches import caption_training_batch, epoch_batches, training_batch
from untrimmed.training.choices import accepted, choose, ready_to_call
from untrimmed.training.state import seed_of

PREPARATION = 2**31  # id of the stream of random numbers for `prepare_batch`, the same in all processes

Rows = Int[np.ndarray, " _"]


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """The second argument of `train.prepare_batch`. Epochs and updates are counted from 0.

    - `rows` are the row numbers of the batch: videos, or captions with `batch_of="captions"`.
    - `read(rows)` returns a batch of other rows.
    - `random` generates the same numbers if the step is repeated after an interruption.
    - `is_rehearsal` is True for the check before training.
    """

    rows: Rows
    dataset: RetrievalDataset
    model: RetrievalModel
    epoch: int
    update: int
    random: np.random.Generator
    read: Callable[[Rows], TrainingBatch]
    is_rehearsal: bool = False


def shuffle(
    dataset: RetrievalDataset, *, batch_size: int, batch_of: Literal["videos", "captions"], seed: int, epoch: int
) -> list[Rows]:
    """Return batches of all rows in an order that depends on seed and epoch. The last batch may be smaller."""
    return epoch_batches(_num_rows(dataset, batch_of), batch_size, seed=seed, epoch=epoch)


def _num_rows(dataset: RetrievalDataset, batch_of: Literal["videos", "captions"]) -> int:
    return len(dataset.video_ids) if batch_of == "videos" else len(dataset.annotations)


def choose_sampler(train: TrainSettings) -> Callable[..., Any]:
    """Return the sampler that `train.sampler` selects.

    Raises: ConfigError for a sampler with other parameters, and the errors of `choose`.
    """
    chosen = choose("train.sampler", train.sampler, {"shuffle": shuffle})
    sampler = ready_to_call("train.sampler", chosen, train.sampler_settings)
    try:
        inspect.signature(sampler).bind(None, **_arguments_of(sampler, train, epoch=0))
    except TypeError as error:
        raise ConfigError(
            f"train.sampler: {one_line(error)}; expected a first parameter for the data set, then any of "
            "batch_size, batch_of, seed and epoch; other parameters need a default or a value in train.sampler_settings"
        ) from None
    return sampler


def _arguments_of(sampler: Callable[..., Any], train: TrainSettings, epoch: int) -> dict[str, Any]:
    values = {"batch_size": train.batch_size, "batch_of": train.batch_of, "seed": train.seed, "epoch": epoch}
    return accepted(sampler, values)


def choose_preparation(train: TrainSettings) -> Callable[..., Any] | None:
    """Return the function that `train.prepare_batch` selects, or None; raises the errors of `choose`."""
    if train.prepare_batch is None:
        return None
    chosen = choose("train.prepare_batch", train.prepare_batch, {})
    return ready_to_call("train.prepare_batch", chosen, train.prepare_batch_settings)


class BatchSource:
    """Reads the batches of a training set."""

    def __init__(
        self,
        dataset: RetrievalDataset,
        train: TrainSettings,
        model: RetrievalModel,
        device: torch.device,
        sort_by: Literal["frames", "captions"],
    ):
        self._dataset = dataset
        self._train = train
        self._model = model
        self._device = device
        self._sort_by = sort_by
        self.sampler = choose_sampler(train)
        self.preparation = choose_preparation(train)
        self.num_rows = _num_rows(dataset, train.batch_of)
        self.num_batches = len(self._sampled(0))

    def rows(self, epoch: int) -> list[Rows]:
        """Return the row numbers of each batch of an epoch. Epochs are counted from 0.

        Raises: ConfigError if the sampler returns rows that do not exist, or another number of batches than in the
            first epoch.
        """
        batches = self._sampled(epoch)
        if len(batches) != self.num_batches:
            raise ConfigError(
                f"train.sampler returned {len(batches)} batches for epoch {epoch + 1}, expected {self.num_batches} as "
                "in epoch 1, because schedules count updates; return the same number"
            )
        return batches

    def _sampled(self, epoch: int) -> list[Rows]:
        train = self._train
        arguments = _arguments_of(self.sampler, train, epoch)
        with reporting("train.sampler"):
            batches = [np.asarray(rows) for rows in self.sampler(self._dataset, **arguments)]
        if not batches:
            raise ConfigError("train.sampler returned no batch, expected at least one")
        for place, rows in enumerate(batches):
            fits = rows.ndim == 1 and len(rows) and rows.dtype.kind in "iu"
            if not fits or rows.min() < 0 or rows.max() >= self.num_rows:
                raise ConfigError(
                    f"train.sampler returned {_shown(rows)} as batch {place + 1}, expected whole numbers from 0 to "
                    f"{self.num_rows - 1}, the rows of {train.batch_of}"
                )
        return batches

    def read(self, rows: Rows) -> TrainingBatch:
        """Return the batch of these rows on the device, without calling `train.prepare_batch`."""
        if self._train.batch_of == "captions":
            batch = caption_training_batch(self._dataset, rows)
        else:
            batch = training_batch(self._dataset, rows, sort_by=self._sort_by)
        return batch.to(self._device)

    def prepared(
        self, batch: TrainingBatch, rows: Rows, *, epoch: int, update: int, number: int, is_rehearsal: bool = False
    ) -> TrainingBatch:
        """Return the result of `train.prepare_batch` for a batch. `number` counts the batches of the run.

        Raises: ConfigError if the function returns something other than a batch.
        """
        if self.preparation is None:
            return batch
        seed = seed_of(self._train.seed, number, PREPARATION)
        torch.manual_seed(seed)
        context = BatchContext(
            rows=rows,
            dataset=self._dataset,
            model=self._model,
            epoch=epoch,
            update=update,
            random=np.random.default_rng(seed),
            read=self.read,
            is_rehearsal=is_rehearsal,
        )
        with torch.no_grad(), reporting("train.prepare_batch"):
            prepared = self.preparation(batch, context)
        if not isinstance(prepared, TrainingBatch):
            raise ConfigError(
                f"train.prepare_batch returned a {type(prepared).__name__}, expected a TrainingBatch; return the batch "
                "or context.read(rows)"
            )
        return prepared


def _shown(rows: np.ndarray) -> str:
    return f"an array of {rows.dtype}, shape {rows.shape}" if rows.size > 8 else repr(rows.tolist())
