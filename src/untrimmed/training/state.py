"""The state with which an interrupted run continues exactly: one file, written atomically.

Tensors (weights, moments of the optimizer) and numbers (as JSON in the header) are in one safetensors file, so that
they are always of the same step. Random generators need no state: all random numbers of a step are seeded by the run's
seed and the number of the step, and the order of videos by seed and epoch.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.optim import Optimizer

from untrimmed.errors import CheckpointError
from untrimmed.models.base import RetrievalModel
from untrimmed.models.storage import write_tensors

MOMENTS = ("mean", "square")


@dataclass
class TrainingState:
    """The state of a run. `epoch` and `step` (within the epoch) are the next to run, counted from 0.

    `sums` contains the sums of loss terms over the current epoch. `history` has one entry for each finished epoch,
    counted from 1, or entry 0 of a run with 0 epochs.
    """

    epoch: int = 0
    step: int = 0
    updates: int = 0
    failures: int = 0  # epochs in a row without a new best
    best_epoch: int | None = None
    best_sum_r: float | None = None  # the metric in `train.select_by`
    seconds: float = 0.0  # spent in the current epoch
    finished: bool = False
    sums: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def save_state(path: Path, state: TrainingState, model: RetrievalModel, optimizer: Optimizer) -> None:
    """Write everything to `path` atomically: after a kill at any moment, it is the old or the new file."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for moment in MOMENTS:
            if moment in optimizer.state.get(parameter, {}):
                tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(path, tensors, metadata={"state": json.dumps(dataclasses.asdict(state))})


def load_state(path: Path, model: RetrievalModel, optimizer: Optimizer) -> TrainingState:
    """Load weights and moments in place and return the progress; raises CheckpointError if the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            state = TrainingState(**json.loads((file.metadata() or {})["state"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); choose another --out to start again") from error
    weights = _strip(tensors, "model")
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in weights.items()}:
        raise CheckpointError(f"{path}: does not match the model in config.yaml; choose another --out to start again")
    model.load_state_dict(weights)
    moments = {moment: _strip(tensors, moment) for moment in MOMENTS}
    for name, parameter in model.named_parameters():
        if name in moments["mean"]:
            optimizer.state[parameter] = {moment: moments[moment][name].to(parameter) for moment in MOMENTS}
    return state


def _strip(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def seed_of(seed: int, update: int, stream: int) -> int:
    """Return the seed of one stream of random numbers in one update."""
    return int(np.random.SeedSequence([seed, update, stream]).generate_state(1, np.uint64)[0] >> 1)
