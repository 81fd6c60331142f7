"""A run's folder: what was asked for, what came out, the best model, and the state to go on from.

What lies in it:

    config.yaml         the format version and every setting, defaults included; the same settings give the same run
    metrics.jsonl       one line a finished epoch: mean losses, results on the validation split
    model.safetensors   the best model by `train.select_by` on the validation split,
    config.json         its method and sizes (together: what `load_model` reads)
    last.safetensors    where to go on after an interruption
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from untrimmed.config import build, flat, read_yaml, to_plain
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.files import write_whole
from untrimmed.models.base import RetrievalModel
from untrimmed.models.storage import SETTINGS, WEIGHTS, load_model
from untrimmed.precision import Format
from untrimmed.presets import Preset

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
LAST = "last.safetensors"
FORMAT = 1
"""The format of what a run stores. Raised when a run of the version before can no longer be read."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which data set a run learns on: the one at ROOT/NAME, and which frame features where there are several.

    `encoder_identity` names the encoder of features that `untrimmed features` wrote; of others nothing is known. A data
    set in memory has no root; its `digest` tells it from others.
    """

    name: str
    root: str | None
    video_features: str | None = None
    encoder_identity: str | None = None
    digest: str | None = None

    @property
    def how_to_check(self) -> str:
        """What a message advises where features may be to blame."""
        if self.root is None:
            return f"check the arrays that {self.name} was made of"
        return f"check the features with: untrimmed data check {self.name} --root {self.root}"


@dataclass(frozen=True, kw_only=True)
class RunConfig(Preset):
    """A preset with all its overrides, the data, how steps are computed, and which model was given, if one was.

    `initial_weights` is the digest of its weights; a model that training makes follows from the settings.
    """

    data: DataSettings
    precision: Format = "float32"
    compile: bool = False
    initial_weights: str | None = None


@dataclass(frozen=True)
class Run:
    """A folder that `train` has written; `history` has one entry for each finished epoch.

    Epochs are counted from 1. A model that is not trained has a single epoch 0.
    """

    folder: Path
    config: RunConfig
    history: list[dict[str, Any]]

    @property
    def best(self) -> dict[str, Any]:
        """The entry of the epoch whose model was kept: the first with the highest `train.select_by`."""
        return max(self.history, key=lambda entry: entry["val"][self.config.train.select_by])

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are over, or too many in a row brought no new best."""
        train = self.config.train
        if len(self.history) >= max(1, train.epochs):
            return True
        return bool(self.history) and len(self.history) - 1 - self.history.index(self.best) > train.patience

    def load_model(self) -> RetrievalModel:
        """The best model, on the CPU in evaluation mode."""
        return load_model(self.folder)


def is_run(folder: Path) -> bool:
    """Whether the folder holds a run, finished or not."""
    return (folder / CONFIG).is_file()


def is_model(folder: Path) -> bool:
    """Whether the folder holds a saved model: of a run, or imported."""
    return (folder / SETTINGS).is_file()


def open_run(folder: Path | str) -> Run:
    """Return the run in a folder; raises CheckpointError if there is none or it is damaged."""
    folder = Path(folder)
    if not is_run(folder):
        raise CheckpointError(f"{folder}: no {CONFIG} in it; give the folder of a run (untrimmed train --out)")
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines() if (folder / METRICS).exists() else []
        history = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / METRICS}: cannot be read ({error}); copy the file again") from error
    return Run(folder, read_config(folder), history)


def read_config(folder: Path) -> RunConfig:
    """Return the settings of the run in a folder; raises CheckpointError if another version wrote the run."""
    values = read_yaml(folder / CONFIG)
    if values.pop("format", None) != FORMAT:
        raise CheckpointError(f"{folder}: was made by an earlier development version of untrimmed; train it again")
    return build(RunConfig, values, where=str(folder / CONFIG))


def write_config(folder: Path, config: RunConfig) -> None:
    """Write the settings; the folder is made."""
    values = {"format": FORMAT, **to_plain(config)}
    write_whole(folder / CONFIG, yaml.safe_dump(values, sort_keys=False), is_only_writer=True)


def write_metrics(folder: Path, history: list[dict[str, Any]]) -> None:
    """Write one line for each finished epoch, unless they are there already."""
    lines = "".join(json.dumps(entry) + "\n" for entry in history).encode()
    if not (folder / METRICS).is_file() or (folder / METRICS).read_bytes() != lines:
        write_whole(folder / METRICS, lines, is_only_writer=True)


def require_same(folder: Path, wanted: RunConfig) -> None:
    """Raise a ConfigError naming the first difference if the run in the folder has other settings."""
    there, here = (flat(to_plain(config)) for config in (read_config(folder), wanted))
    for key in here | there:  # in their order: another method is told before what follows from it
        if here.get(key) != there.get(key):
            raise ConfigError(
                f"{folder}: holds a run with {key} = {there.get(key)}, this one has {here.get(key)}; choose another "
                "--out, or use the same settings to go on"
            )


def require_best_model(folder: Path) -> None:
    """Raise a CheckpointError unless the model of the best epoch so far is in the folder of a run, and whole."""
    missing = [name for name in (WEIGHTS, SETTINGS) if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: {' and '.join(missing)} of its best epoch so far: not there; put the file back, or choose "
            "another --out to start again"
        )
    load_model(folder)


def require_beginning(folder: Path) -> None:
    """Raise a CheckpointError if a folder without a saved state holds more than a kill in the first epoch leaves.

    Training from the start would put the model of its first epoch in the place of a better one.
    """
    epochs = len(open_run(folder).history) if is_run(folder) else 0
    if epochs > 1:
        raise CheckpointError(
            f"{folder}: {METRICS} tells of {epochs} epochs, but {LAST} to go on from is not there; put the file back, "
            "or choose another --out to start again"
        )


def forget_beginning(folder: Path) -> None:
    """Free the folder of a run that has saved nothing for one with other settings."""
    if any((folder / name).exists() for name in (LAST, METRICS, SETTINGS)):
        return
    (folder / CONFIG).unlink(missing_ok=True)
    with suppress(OSError):  # something else lies there
        folder.rmdir()
