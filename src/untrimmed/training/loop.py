"""The training loop of the released programs: epochs, hard negatives, validation, the best model, early stopping."""

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from untrimmed.batches import Encode, TrainingBatch
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import ConfigError, FeatureError, UntrimmedError
from untrimmed.evaluation.events import event_sum
from untrimmed.evaluation.recall import retrieval_metrics
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.base import RetrievalModel
from untrimmed.models.hooks import EPOCH_KEYS, outside_function
from untrimmed.models.storage import not_finite, save_model
from untrimmed.running.batches import prefetched
from untrimmed.running.environment import record_environment
from untrimmed.running.memory import explaining_memory
from untrimmed.running.opened import OpenedModel
from untrimmed.running.results import why_no_events
from untrimmed.running.run import (
    LAST,
    RunConfig,
    forget_beginning,
    require_beginning,
    require_best_model,
    write_config,
    write_metrics,
)
from untrimmed.training.averaging import create_average
from untrimmed.training.callbacks import Callback, Stage, TrainingProgress, stateful_callbacks, wants_stop
from untrimmed.training.optim import create_optimizer
from untrimmed.training.rehearsal import rehearse_step, rehearse_validation
from untrimmed.training.sampling import BatchSource
from untrimmed.training.schedule import Schedule
from untrimmed.training.selection import EVENT_METRICS, Validation, choose_metric, selection_by
from untrimmed.training.state import (
    SavedParts,
    Stateful,
    TrainingState,
    load_state,
    require_saveable,
    save_state,
    seed_of,
)

if TYPE_CHECKING:
    from lightning.fabric import Fabric

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 300.0  # an interruption loses at most this much training time plus one step
DRAWS = 0  # id of the stream of random numbers for losses
DROPOUT = 1  # id of the stream for dropout in process 0; process p uses 1 + p


@dataclass
class TrainingLoop:
    """Trains one run. If there are several processes, all compute the same results, and process 0 writes the files."""

    config: RunConfig
    folder: Path
    model: RetrievalModel
    train_set: RetrievalDataset
    val_set: RetrievalDataset
    fabric: "Fabric"
    encode: Encode
    callbacks: Sequence[Callback] = ()
    state: TrainingState = field(default_factory=TrainingState)

    def __post_init__(self) -> None:
        train = self.config.train
        device = self.fabric.device
        self.batches = BatchSource(self.train_set, train, self.model, device, self.config.features.sort_by)
        self.num_steps = self.batches.num_batches
        self.average = create_average(self.model, train)
        self.module = self.fabric.setup_module(self.model)
        self.optimizer = create_optimizer(self.model, train)
        num_updates = train.epochs * math.ceil(self.num_steps / train.accumulate)
        self.schedule = Schedule(self.optimizer, train, num_updates)
        self.metric = choose_metric(train)
        self._step_s: deque[float] = deque(maxlen=100)
        self._validation_s = 0.0
        self._saved_at = time.monotonic()
        self._stopped = False
        self._reported_stage: Stage | None = None  # the stage while callbacks run, otherwise None
        self._batch_terms: dict[str, float] = {}

    def run(self) -> TrainingState:
        """Train to the end, and return the final state. If there is a saved state, start from it."""
        if (self.folder / LAST).is_file():
            self.state = load_state(self.folder / LAST, self._parts())
            if self.state.finished:
                logger.warning(
                    "%s: this run is already finished, nothing was trained; to continue from it, train its model into "
                    "another folder",
                    self.folder,
                )
            if self.state.best_epoch is not None:
                require_best_model(self.folder)
            if self.state.history and self.fabric.is_global_zero:
                write_metrics(self.folder, self.state.history)
        else:
            require_beginning(self.folder)
            self._rehearse()
            if self.fabric.is_global_zero:
                write_config(self.folder, self.config)
        if not self.state.finished and self.fabric.is_global_zero:
            record_environment(self.folder, self.fabric.device, update=self.state.updates)
        try:
            while not self.state.finished:
                if self.config.train.epochs:
                    with self._explaining_memory("batch_size"):
                        self._train_epoch()
                self._validate()
            self._report("finished")
        except BaseException as error:
            if self.fabric.is_global_zero:
                forget_beginning(self.folder)
            if isinstance(error, Exception) and not isinstance(error, UntrimmedError):
                self._add_advice(error)
            raise
        return self.state

    def _add_advice(self, error: Exception) -> None:
        """Add a last line to the traceback of an error in outside code: what failed, and how to continue."""
        function = outside_function(error)
        if function is None:
            return
        at_stage = f" at stage {self._reported_stage!r}" if self._reported_stage else ""
        epoch = min(self.state.epoch + 1, self.config.train.epochs)
        end = " to continue" if (self.folder / LAST).is_file() else ""
        error.add_note(
            f"{'callback ' if at_stage else ''}{function} failed{at_stage} in epoch {epoch}; fix it, then run the same "
            f"command again{end}"
        )

    def _explaining_memory(self, *settings: str) -> AbstractContextManager[None]:
        """Return a context in which the message of an out-of-memory error names the settings to reduce."""
        values = " or ".join(f"train.{name} (now {getattr(self.config.train, name)})" for name in settings)
        new_folder = " and choose another folder (out)" if (self.folder / LAST).is_file() else ""
        return explaining_memory(self.fabric.device, f"lower {values}{new_folder}")

    def _rehearse(self) -> None:
        """Compute the losses of two items and score a validation batch, to find mistakes before any file is written.

        A metric function gets the whole validation split, because it might fail or return nan on a part of it.
        """
        selects_by = self.config.train.selects_by
        needs_moments = selects_by in EVENT_METRICS
        if needs_moments and (reason := why_no_events(self.val_set)):
            raise FeatureError(f"{reason}; train.select_by={selects_by!r} needs it, set train.select_by=SumR")
        require_saveable(self._parts())
        rows = np.arange(min(2, self.batches.num_rows))
        batch = self.batches.read(rows)
        batch = self.batches.prepared(batch, rows, epoch=0, update=0, number=0, is_rehearsal=True)
        advice = self.config.data.how_to_check
        rehearse_step(self.model, batch, self.config.weights, self.encode, how_to_check=advice)
        with self._explaining_memory("eval_video_batch", "eval_query_batch"):
            rehearse_validation(self._opened(), self.fabric.device, needs_moments=needs_moments)
            if self.metric is not None:
                self._figures()

    def _opened(self) -> OpenedModel:
        model = self._validated_model()
        return OpenedModel(model=model, dataset=self.val_set, train=self.config.train, encode=self.encode)

    def _train_epoch(self) -> None:
        state = self.state
        self.model.train()
        rows_left = self.batches.rows(state.epoch)[state.step :]
        started = time.monotonic()
        for rows, batch in zip(rows_left, prefetched(self.batches.read, rows_left), strict=True):
            is_update = (state.step + 1) % self.config.train.accumulate == 0 or state.step + 1 == self.num_steps
            self._add_gradient(batch, rows, is_update)
            if is_update:
                self._update()
            state.step += 1
            ended = time.monotonic()
            self._step_s.append(ended - started)
            state.seconds += ended - started
            started = ended
            self._report("training")
            if not is_update:  # the state contains no gradients, so it is only saved after an update
                continue
            if self._stopped:
                break
            if ended - self._saved_at > SAVE_EVERY_S and state.step < self.num_steps:
                self._require_finite_weights()
                self._save()

    def _add_gradient(self, batch: TrainingBatch, rows: np.ndarray, is_update: bool) -> None:
        """Add the gradient of a batch, divided by the number of batches per update."""
        state = self.state
        train = self.config.train
        place = state.step % train.accumulate
        number = state.updates * train.accumulate + place
        batch = self.batches.prepared(batch, rows, epoch=state.epoch, update=state.updates, number=number)
        torch.manual_seed(seed_of(train.seed, number, DROPOUT + self.fabric.global_rank))
        generator = torch.Generator().manual_seed(seed_of(train.seed, number, DRAWS))
        hard = state.epoch >= train.hard_negatives_from_epoch
        draws = Draws(hard_pool=train.hard_pool if hard else None, generator=generator)
        if place == 0:
            self.optimizer.zero_grad(set_to_none=True)
        with self._local_gradients(not is_update):
            terms = self.module(batch, draws=draws, epoch=state.epoch, update=state.updates, encode=self.encode)
            loss = total_loss(terms, self.config.weights)
            self._add_terms(terms | {"loss": loss})
            num_batches = min(train.accumulate, self.num_steps - (state.step - place))
            self.fabric.backward(loss / num_batches)

    def _local_gradients(self, are_local: bool) -> AbstractContextManager[Any]:
        """Return a context in which processes do not exchange gradients, except for the last batch of an update."""
        if self.fabric.world_size == 1:
            return nullcontext()
        return self.fabric.no_backward_sync(self.module, enabled=are_local)

    def _update(self) -> None:
        train = self.config.train
        if train.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip_norm)
        self.schedule.update(self.state.updates)
        if self.average is not None and self.state.epoch >= train.average_from_epoch:
            self.average.update_parameters(self.model)
        self.state.updates += 1

    def _add_terms(self, values: dict[str, torch.Tensor]) -> None:
        """Add the loss terms to the epoch's sums. Raise a ConfigError if a term is not one finite number."""
        state = self.state
        for name, tensor in values.items():
            if tensor.ndim:
                raise ConfigError(
                    f"the loss term {name!r} has shape {list(tensor.shape)}, expected one number; return, for example, "
                    "its mean()"
                )
        self._batch_terms = dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))
        for name, value in self._batch_terms.items():
            if not math.isfinite(value):
                self._give_up(f"{name} is {value}", state.step + 1)
            state.sums[name] = state.sums.get(name, 0.0) + value

    def _require_finite_weights(self) -> None:
        """Raise a ConfigError if a weight of the model is not finite, so that such weights are not saved."""
        if name := not_finite(self.model.state_dict()):
            self._give_up(f"{name} is not finite", self.state.step)

    def _give_up(self, problem: str, step: int) -> NoReturn:
        """Raise a ConfigError with advice about values that are not finite."""
        new_folder = ", in another folder (out)" if (self.folder / LAST).is_file() else ""
        raise ConfigError(
            f"{self.folder}: {problem} in epoch {self.state.epoch + 1}, step {step}; lower train.learning_rate (now "
            f"{self.config.train.learning_rate:g}){new_folder}, or {self.config.data.how_to_check}"
        )

    def _validate(self) -> None:
        """End the epoch: validate, save the best model, and decide about early stopping."""
        state = self.state
        train = self.config.train
        self._require_finite_weights()
        self._report("validating")
        started = time.monotonic()
        with self._explaining_memory("eval_video_batch", "eval_query_batch"):
            figures = self._figures()
        self._validation_s = time.monotonic() - started
        entry: dict[str, Any] = {
            "epoch": state.epoch + 1 if train.epochs else 0,
            "updates": state.updates,
            "learning_rate": self.schedule.rate,
        }
        entry |= {name: value / state.step for name, value in state.sums.items()}
        entry |= {"val": figures, "seconds": round(state.seconds + self._validation_s, 3)}
        state.history.append(entry)
        sum_r = figures[train.selects_by]
        selection = train.selection(figures)
        is_best = state.best_sum_r is None or selection > train.selection({train.selects_by: state.best_sum_r})
        self.schedule.end_epoch(selection)
        if is_best:
            state.best_epoch = state.epoch
            state.best_sum_r = sum_r
        state.failures = 0 if is_best else state.failures + 1
        self._report("validated")
        state.epoch = state.epoch + 1
        state.step = 0
        state.seconds = 0.0
        state.sums = {}
        state.finished = state.epoch >= train.epochs or state.failures > train.patience or self._stopped
        if self.fabric.is_global_zero:
            if is_best:
                save_model(self._validated_model(), self.folder)
            write_metrics(self.folder, state.history)
        self._save()

    def _validated_model(self) -> RetrievalModel:
        """Return the model to validate and save: the averaged model if there is one, otherwise the trained model."""
        is_averaged = self.average is not None and self.average.n_averaged > 0
        return self.average.module if is_averaged else self.model  # type: ignore[return-value, union-attr]

    def _figures(self) -> dict[str, float]:
        """Return metrics on the validation split.

        Metrics of moments are slow. Therefore these metrics are computed only if one of them selects the best epoch.
        """
        train = self.config.train
        opened = self._opened()
        fused = opened.score().fused
        if np.isnan(fused).any():
            self._give_up("a validation score is nan", self.state.step)
        figures = retrieval_metrics(fused, self.val_set.video_index)
        if train.selects_by in EVENT_METRICS:
            recalls = opened.event_recall()
            figures |= recalls | {"event SumR": event_sum(recalls)}
        figures |= opened.watched()
        if self.metric is not None:
            figures[train.selects_by] = selection_by(self.metric, Validation(figures, fused, opened))
        return figures

    def _parts(self) -> SavedParts:
        candidates: dict[str, object] = {
            "train.schedule": self.schedule,
            "train.prepare_batch": self.batches.preparation,
        }
        others = {name: part for name, part in candidates.items() if isinstance(part, Stateful)}
        others |= stateful_callbacks(self.callbacks)
        return SavedParts(self.model, self.optimizer, self.average, others)

    def _save(self) -> None:
        """Save the state. Call this after all other files are written.

        If the process is killed before, the run continues from the older state and writes the other files again.
        """
        if self.fabric.is_global_zero:
            save_state(self.folder / LAST, self.state, self._parts())
        self._saved_at = time.monotonic()

    def _report(self, stage: Stage) -> None:
        state = self.state
        last = state.history[-1] if state.history else None
        epoch = min(state.epoch + 1, self.config.train.epochs)
        step = state.step
        means = {name: value / max(1, step) for name, value in state.sums.items()}
        if stage == "finished" and last is not None:
            epoch = min(last["epoch"], epoch)
            updates = last["updates"] - sum(entry["updates"] for entry in state.history[-2:-1])
            step = min(updates * self.config.train.accumulate, self.num_steps)
            means = {name: value for name, value in last.items() if name not in EPOCH_KEYS}
        progress = TrainingProgress(
            epoch=epoch,
            num_epochs=self.config.train.epochs,
            step=step,
            num_steps=self.num_steps,
            loss=means.pop("loss", math.nan),
            terms=means,
            sum_r=last["val"][self.config.train.selects_by] if last else None,
            best_sum_r=state.best_sum_r,
            best_epoch=state.best_epoch + 1 if self.config.train.epochs and state.best_epoch is not None else None,
            left_s=self._left_s(),
            model=self.model,
            config=self.config,
            folder=self.folder,
            learning_rate=self.schedule.rate,
            results=last["val"] if last else {},
            stage=stage,
            selects_by=self.config.train.selects_by,
            updates=state.updates,
            batch_terms=self._batch_terms,
            process=self.fabric.global_rank,
        )
        self._reported_stage = stage
        self._stopped = wants_stop(self.callbacks, progress) or self._stopped
        self._reported_stage = None

    def _left_s(self) -> float:
        if not self._step_s or self.state.finished:
            return 0.0
        epochs_left = self.config.train.epochs - self.state.epoch
        steps_left = epochs_left * self.num_steps - self.state.step
        return steps_left * sum(self._step_s) / len(self._step_s) + epochs_left * self._validation_s
