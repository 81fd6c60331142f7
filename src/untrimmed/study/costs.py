"""Measure the costs of a study's candidates: parameters, time of a training step, and bytes stored per video."""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from untrimmed.batches import Encode, TrainingBatch, encode_here
from untrimmed.config import build, read_json
from untrimmed.files import write_whole
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.registry import create_model
from untrimmed.precision import choose_format
from untrimmed.presets import Preset
from untrimmed.reproduction.efficiency import megabytes_per_video, parameters
from untrimmed.running.encoding import Encoding
from untrimmed.running.memory import keep_freed_memory
from untrimmed.study.setup import first_batch
from untrimmed.training.optim import BertAdam, parameter_groups
from untrimmed.training.trials import Trial

ROUNDS = 7


class Stepper:
    """Measures the time of training steps, with the model and the optimizer of a preset."""

    def __init__(self, preset: Preset, encode: Encode = encode_here):
        torch.manual_seed(0)
        self.preset = preset
        self.encode = encode
        self.model = create_model(preset.name, **preset.settings).train()
        self.weights = preset.weights_in(self.model.config)
        self.optimizer = BertAdam(parameter_groups(self.model), lr=preset.train.learning_rate)

    def step(self, batch: TrainingBatch) -> float:
        """Train one step with all losses active, and return the processor time of the step in seconds."""
        start_s = time.process_time()
        terms = self.model(
            batch, draws=Draws(hard_pool=1), epoch=self.preset.train.epochs, encode=self.encode, is_rehearsal=True
        )
        loss = total_loss(terms, self.weights)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return time.process_time() - start_s


@dataclass(frozen=True)
class CandidateCosts:
    """The number of parameters, the CPU time of a training step in seconds, and the bytes stored per video."""

    parameters: int
    step_s: float
    bytes_per_video: int


def read_costs(path: Path) -> dict[str, CandidateCosts]:
    """Return {candidate: costs} from a file that `stored_costs` wrote, or an empty dictionary if there is no file."""
    stored = read_json(path) if path.is_file() else {}
    return {name: build(CandidateCosts, costs, where=str(path)) for name, costs in stored.items()}


def stored_costs(path: Path, trials: Mapping[str, Trial]) -> dict[str, CandidateCosts]:
    """Return {candidate: costs} from a file beside the runs, and measure missing costs.

    If the costs of one candidate are missing, all candidates are measured again, so that their times can be compared.
    """
    costs = read_costs(path)
    if not trials.keys() <= costs.keys():
        costs |= dict(zip(trials, costs_of(list(trials.values())), strict=True))
        write_whole(path, json.dumps({name: asdict(entry) for name, entry in costs.items()}, indent=1))
    return {name: costs[name] for name in trials}


def costs_of(trials: Sequence[Trial]) -> list[CandidateCosts]:
    """Return the costs of each trial.

    Every round times one step of each trial, so that other programs slow down all trials equally.
    """
    keep_freed_memory()
    cpu = torch.device("cpu")
    steppers = []
    batches = []
    for trial in trials:
        preset = trial.fitted_settings
        steppers.append(Stepper(preset, Encoding(cpu, choose_format(trial.precision, "cpu").name)))
        batches.append(first_batch(trial, preset.train.batch_size))
    rounds = [[stepper.step(batch) for stepper, batch in zip(steppers, batches, strict=True)] for _ in range(ROUNDS)]
    # leave out the first step, which takes longer
    step_s = [statistics.median(times[1:]) for times in zip(*rounds, strict=True)]
    return [
        CandidateCosts(parameters(stepper.model), seconds, round(1e6 * megabytes_per_video(stepper.model.eval())))
        for stepper, seconds in zip(steppers, step_s, strict=True)
    ]
