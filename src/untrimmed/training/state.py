"""Save and load the state of a run. An interrupted run continues from this state with the same results.

One safetensors file contains all tensors and, as JSON in its header, all numbers. Therefore tensors and numbers always
belong to the same step. The tensors are

    model.NAME      weights
    KEY.NAME        the optimizer's tensors for each parameter; for BertAdam, KEY is `mean` or `square`
    average.NAME    averaged weights, with `train.average`
    others          all other state, if there is any, as bytes that `torch.load` reads with `weights_only`

The state of random generators is not stored. All random numbers of a step are determined by the seed of the run and the
number of the step. The seed and the number of the epoch determine the order of videos.
"""

import dataclasses
import io
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from untrimmed.errors import CheckpointError, ConfigError, one_line
from untrimmed.models.base import RetrievalModel
from untrimmed.models.storage import write_tensors
from untrimmed.training.optim import BertAdam

OTHERS = "others"


@dataclass
class TrainingState:
    """The state of a run. `epoch` and `step` are the next epoch and the next step in this epoch, counted from 0.

    `sums` contains the sums of loss terms over the current epoch. `history` has one entry per finished epoch, numbered
    from 1. A run with 0 epochs has an entry with the number 0.
    """

    epoch: int = 0
    step: int = 0
    updates: int = 0
    failures: int = 0  # epochs since the last best epoch
    best_epoch: int | None = None
    best_sum_r: float | None = None  # value of the metric in `train.select_by`
    seconds: float = 0.0  # time spent in the current epoch
    finished: bool = False
    sums: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


@runtime_checkable
class Stateful(Protocol):
    """An object whose state a run saves: a callback, a sampler, a preparation of batches, or a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: numbers, texts, tensors, and lists and dictionaries of these. The state may be empty."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore a state."""


@dataclass(frozen=True)
class SavedParts:
    """The parts of a run whose state is saved: model, optimizer, average, and other parts by name."""

    model: RetrievalModel
    optimizer: Optimizer
    average: AveragedModel | None = None
    others: Mapping[str, Stateful] = field(default_factory=dict)

    def other_state(self) -> dict[str, Any]:
        """Return {part: state} for all state that is not stored as one tensor per parameter. Often empty."""
        states = {name: part.state_dict() for name, part in self.others.items()}
        states = {name: state for name, state in states.items() if state}
        if states or not isinstance(self.optimizer, BertAdam):  # the groups of BertAdam contain only the learning rate
            groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
            values = {
                name: {
                    key: value for key, value in self._optimizer_state(parameter).items() if not torch.is_tensor(value)
                }
                for name, parameter in self.model.named_parameters()
            }
            states["optimizer"] = {"groups": groups, "values": {k: value for k, value in values.items() if value}}
        return states

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name in the file."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            state = self._optimizer_state(parameter)
            tensors |= {f"{key}.{name}": value for key, value in state.items() if torch.is_tensor(value)}
        if self.average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.state_dict().items()}
        if states := self.other_state():
            tensors[OTHERS] = _to_bytes(states)
        return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def _optimizer_state(self, parameter: Tensor) -> dict[str, Any]:
        return dict(self.optimizer.state.get(parameter, {}))

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore all parts in place; raises ValueError for tensors that do not fit the weights."""
        _require_shapes(self.model, weights := _strip(tensors, "model"))
        self.model.load_state_dict(weights)
        if self.average is not None:
            _require_shapes(self.average, average := _strip(tensors, "average"))
            self.average.load_state_dict(average)
        states = _from_bytes(tensors[OTHERS]) if OTHERS in tensors else {}
        self._load_optimizer(tensors, states.get("optimizer"))
        for name, part in self.others.items():
            if name in states:
                part.load_state_dict(states[name])

    def _load_optimizer(self, tensors: dict[str, Tensor], others: dict[str, Any] | None) -> None:
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        state: dict[str, dict[str, Any]] = {name: {} for name in names.values()}
        for path, tensor in tensors.items():
            key, _, name = path.partition(".")
            if name in state and key != "model":
                state[name][key] = tensor
        for name, values in (others or {}).get("values", {}).items():
            state[name] |= values
        saved = self.optimizer.state_dict()  # torch numbers the parameters of this state in the order of the groups
        ordered = [names[parameter] for group in self.optimizer.param_groups for parameter in group["params"]]
        saved["state"] = {place: state[name] for place, name in enumerate(ordered) if state[name]}
        if others is not None:
            for group, values in zip(saved["param_groups"], others["groups"], strict=True):
                group |= values
        self.optimizer.load_state_dict(saved)


def require_saveable(parts: SavedParts) -> None:
    """Raise a ConfigError if the state of a part cannot be saved. This function is called before the first step."""
    for name, state in parts.other_state().items():
        try:
            _from_bytes(_to_bytes(state))
        except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as error:
            foreign = re.search(r"GLOBAL (\S+)", str(error))
            problem = f"it contains a {foreign[1]}" if foreign else one_line(error)
            raise ConfigError(
                f"the state of {name} cannot be saved ({problem}); return only numbers, texts, tensors, and lists and "
                "dictionaries of these from state_dict"
            ) from error


def _to_bytes(state: dict[str, Any]) -> Tensor:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _from_bytes(tensor: Tensor) -> dict[str, Any]:
    return dict(torch.load(io.BytesIO(tensor.numpy().tobytes()), map_location="cpu", weights_only=True))


def _require_shapes(module: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in tensors.items()}:
        raise ValueError("does not match the model in config.yaml")


def save_state(path: Path, state: TrainingState, parts: SavedParts) -> None:
    """Write the state to `path` atomically. If the process is killed, the old file remains complete."""
    write_tensors(path, parts.tensors(), metadata={"state": json.dumps(dataclasses.asdict(state))})


def load_state(path: Path, parts: SavedParts) -> TrainingState:
    """Restore all parts in place, and return the progress; raises CheckpointError if the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            state = TrainingState(**json.loads((file.metadata() or {})["state"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        parts.load(tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError, pickle.PickleError) as error:
        problem = one_line(error)
        raise CheckpointError(
            f"{path}: cannot be read ({problem}); choose another folder (out) to start again"
        ) from error
    return state


def _strip(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def seed_of(seed: int, update: int, stream: int) -> int:
    """Return the seed of one stream of random numbers in one update."""
    return int(np.random.SeedSequence([seed, update, stream]).generate_state(1, np.uint64)[0] >> 1)
