"""A run: a folder with the settings, results and best model of a training, and the state for continuing it.

Files in the folder:

    config.yaml         the format version and every setting, including defaults; equal settings give equal runs
    metrics.jsonl       one line per finished epoch: mean losses, results on the validation split
    model.safetensors   the best model by `train.select_by` on the validation split
    config.json         the method and sizes of the best model; `load_model` reads this file and model.safetensors
    last.safetensors    the state from which an interrupted run continues
    environment.jsonl   versions, commit, device and threads, one line per start or continuation
"""

import json
from collections.abc import Mapping
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
from untrimmed.running.environment import ENVIRONMENT

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
LAST = "last.safetensors"
FORMAT = 1
"""The format of a run's files. Increase this number when runs of the previous format can no longer be read."""
# settings that may differ between runs of one model with different seeds
_OF_SEEDS = ("train.seed", "data.root", "initial_weights")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The data set of a run: the folder ROOT/NAME, and the name of the frame features if there are several.

    `encoder_identity` names the encoder if `untrimmed features` wrote the features, otherwise it is None. A data set in
    memory has no root, and is identified by its `digest`.
    """

    name: str
    root: str | None
    video_features: str | None = None
    encoder_identity: str | None = None
    digest: str | None = None

    @property
    def how_to_check(self) -> str:
        """Advice for messages about problems that the features may cause."""
        if self.root is None:
            return f"check the arrays of {self.name}"
        return f"check the features with: untrimmed data check {self.name} --root {self.root}"


@dataclass(frozen=True, kw_only=True)
class RunConfig(Preset):
    """The settings of a run: a preset with all overrides, the data set, and how training steps are computed.

    If training started from another model, `initial_weights` is the digest of that model's weights, otherwise None.
    """

    data: DataSettings
    precision: Format = "float32"
    compile: bool = False
    initial_weights: str | None = None


@dataclass(frozen=True)
class Run:
    """A folder written by `train`. `history` has one entry for each finished epoch.

    Epochs are counted from 1. The history of an untrained model has only epoch 0.
    """

    folder: Path
    config: RunConfig
    history: list[dict[str, Any]]

    @property
    def best(self) -> dict[str, Any]:
        """The entry of the best epoch: the first epoch with the best value of `train.select_by`."""
        return max(self.history, key=lambda entry: self.config.train.selection(entry["val"]))

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are finished, or training stopped early.

        Training stops early after more than `train.patience` epochs in a row without a new best result.
        """
        train = self.config.train
        if len(self.history) >= max(1, train.epochs):
            return True
        return bool(self.history) and len(self.history) - 1 - self.history.index(self.best) > train.patience

    def load_model(self) -> RetrievalModel:
        """Return the best model on the CPU, in evaluation mode."""
        return load_model(self.folder)


def is_run(folder: Path) -> bool:
    """Whether the folder contains a run, either finished or unfinished."""
    return (folder / CONFIG).is_file()


def is_model(folder: Path) -> bool:
    """Whether the folder contains a saved model, either from a run or imported."""
    return (folder / SETTINGS).is_file()


def open_run(folder: Path | str) -> Run:
    """Return the run in a folder.

    Raises: CheckpointError if the folder contains no run, or a damaged run.
    """
    folder = Path(folder)
    if not is_run(folder):
        raise CheckpointError(f"{folder}: no {CONFIG} in it; give the folder of a run")
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines() if (folder / METRICS).exists() else []
        history = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / METRICS}: cannot be read ({error}); copy the file again") from error
    return Run(folder, read_config(folder), history)


def read_config(folder: Path) -> RunConfig:
    """Return the settings of the run in a folder.

    Raises: CheckpointError if an incompatible version wrote the run.
    """
    values = read_yaml(folder / CONFIG)
    if values.pop("format", None) != FORMAT:
        raise CheckpointError(f"{folder}: was made by an earlier development version of untrimmed; train it again")
    return build(RunConfig, values, where=str(folder / CONFIG))


def write_config(folder: Path, config: RunConfig) -> None:
    """Write a run's settings to its folder, which is created if it is missing."""
    values = {"format": FORMAT, **to_plain(config)}
    write_whole(folder / CONFIG, yaml.safe_dump(values, sort_keys=False), is_only_writer=True)


def write_metrics(folder: Path, history: list[dict[str, Any]]) -> None:
    """Write one line for each finished epoch to `metrics.jsonl`, unless the file already has these lines."""
    lines = "".join(json.dumps(entry) + "\n" for entry in history).encode()
    if not (folder / METRICS).is_file() or (folder / METRICS).read_bytes() != lines:
        write_whole(folder / METRICS, lines, is_only_writer=True)


def require_same(folder: Path, config: RunConfig) -> None:
    """Check that the run in the folder has the settings `config`.

    Raises: ConfigError that names the first different setting.
    """
    stored, new = (flat(to_plain(settings)) for settings in (read_config(folder), config))
    advice = "use the same settings to continue that run"
    if not _has_saved(folder):
        advice = "delete it if no training is running: nothing is saved in it"
    # compare keys of `new` first, so that a different method is reported before its settings
    for key in new | stored:
        if new.get(key) != stored.get(key):
            raise ConfigError(
                f"{folder}: contains a run with {key} = {stored.get(key)}, expected {new.get(key)}; choose another "
                f"folder (out), or {advice}"
            )


def settings_without_seed(config: RunConfig) -> dict[str, Any]:
    """Return a run's settings by dotted keys, except those that may differ between seeds of one model."""
    return {key: value for key, value in flat(to_plain(config)).items() if key not in _OF_SEEDS}


def seed_groups(configs: Mapping[str, RunConfig]) -> list[list[str]]:
    """Group runs that differ only in the seed, and return the names of the runs in each group.

    Raises: ConfigError for two runs with the same settings and the same seed.
    """
    groups: list[tuple[dict[str, Any], dict[int, str]]] = []
    for name, config in configs.items():
        settings = settings_without_seed(config)
        seeds = next((seeds for other, seeds in groups if other == settings), None)
        if seeds is None:
            seeds = {}
            groups.append((settings, seeds))
        if config.train.seed in seeds:
            raise ConfigError(
                f"{name} and {seeds[config.train.seed]} have the same settings and seed; name one of them"
            )
        seeds[config.train.seed] = name
    return [list(seeds.values()) for _, seeds in groups]


def require_best_model(folder: Path) -> None:
    """Raise a CheckpointError if the model of the best epoch is missing or damaged."""
    missing = [name for name in (WEIGHTS, SETTINGS) if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: the best epoch is incomplete, because {' and '.join(missing)} is missing; restore it, "
            "or choose another folder (out) to start again"
        )
    load_model(folder)


def require_beginning(folder: Path) -> None:
    """Check that training can start in this folder, in which the state `last.safetensors` is missing.

    Raises: CheckpointError if the folder has results of several epochs. Training would start again and replace the best
        model by the model of the first epoch.
    """
    epochs = len(open_run(folder).history) if is_run(folder) else 0
    if epochs > 1:
        raise CheckpointError(
            f"{folder}: {METRICS} has {epochs} epochs, but {LAST}, from which to continue, is missing; restore the "
            "file, or choose another folder (out) to start again"
        )


def forget_beginning(folder: Path) -> None:
    """Delete the settings of a run that has no results, so that a run with other settings can use the folder."""
    if _has_saved(folder):
        return
    (folder / CONFIG).unlink(missing_ok=True)
    (folder / ENVIRONMENT).unlink(missing_ok=True)
    with suppress(OSError):  # the folder contains other files
        folder.rmdir()


def _has_saved(folder: Path) -> bool:
    return any((folder / name).exists() for name in (LAST, METRICS, SETTINGS))
