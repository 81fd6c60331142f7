"""Train a method on a data set into a run's folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from untrimmed.config import checked
from untrimmed.data.layout import read_split
from untrimmed.data.origin import encoder_identity_of
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError, FeatureError, nearest
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, model_class, plain_settings
from untrimmed.models.storage import model_classes, weights_digest
from untrimmed.plugins import sources_of, trust
from untrimmed.precision import Format, Precision, choose_format
from untrimmed.presets import OWN_DATA_PRESET, Preset, has_preset, load_preset, read_preset
from untrimmed.running.memory import keep_freed_memory
from untrimmed.running.run import (
    CONFIG,
    LAST,
    DataSettings,
    Run,
    RunConfig,
    is_model,
    is_run,
    open_run,
    read_config,
    require_same,
)
from untrimmed.running.split import load_split
from untrimmed.training.arguments import (
    Sets,
    digest_of,
    require_arguments,
    require_fit,
    settings_of,
    sized_for,
    warn_of_idle,
)
from untrimmed.training.loop import Callback, TrainingLoop
from untrimmed.training.parallel import launch

logger = logging.getLogger(__name__)

_BEGUN: WeakKeyDictionary[RetrievalModel, dict[Path, str]] = WeakKeyDictionary()  # a run's folder -> its first weights


@checked(
    method="a name such as 'ms_sl', or a model (create_model, run.load_model())",
    data="the name of a data set, or two data sets (train, val)",
    callback="a function of the progress",
)
def train(
    method: str | RetrievalModel,
    *,
    data: str | Sets,
    root: Path | str | None = None,
    out: Path | str | None = None,
    device: str | torch.device = "auto",
    precision: Precision = "float32",
    compile: bool = False,
    seed: int | None = None,
    preset: Path | str | None = None,
    video_features: str | None = None,
    callback: Callback | None = None,
    packing: Callable[[int, int], None] | None = None,
    **overrides: Any,
) -> Run:
    """Train a method, by its name or as a model made already, and give the finished run.

    `data` is the name of a data set at ROOT/DATA, or two in memory, to learn from and to choose the best epoch by. A
    model goes on from the weights that it has and is trained in place: it ends as its last epoch left it, the best one
    is `run.load_model()`; a run in `out` that began with other weights is another's. Settings are those of the
    preset for method and data set, changed by dotted keys:
    `train("gmmformer_v2", data="tvr", root="data", **{"train.epochs": 30})`. `preset` names another data set's preset
    or a YAML file; people's own data sets take TVR's, and the widths of their features. A folder `out` (default:
    runs/METHOD-DATA) with the same settings goes on where it stopped; nothing is ever overwritten. `callback` hears of
    each step and validation and may end the training; `packing` is called with videos done and in all while features
    are prepared. `precision` is the format of products: float32, bfloat16 (losses, weights and updates stay float32),
    or auto, settled when the run begins. `compile` sends encoders of training steps through `torch.compile` (for GPUs).

    Raises:
        UnknownNameError: for an unknown method, preset or frame feature.
        ConfigError: for an unknown or wrong setting, other settings than those of the run in `out`, or a loss that is
            not a number.
        FeatureError: for missing, damaged or unfitting features.
    """
    data_name = require_arguments(method, data, root, video_features, callback, overrides)
    made = method if isinstance(method, RetrievalModel) else None
    name = ModelName.of(method.name if isinstance(method, RetrievalModel) else method)
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{data_name}"
    number_format = _number_format(precision, device, folder)
    own = settings_of(made) if made is not None else {}
    seeded = {"train.seed": seed} if seed is not None else {}
    chosen = _preset(name, data_name, None if preset is None else str(preset), own | seeded | overrides)
    settings, sets = _sets(data, root, chosen, video_features, packing)
    follows = made is None and (settings.root is None or (preset is None and chosen.dataset != data))
    sizes = sized_for(sets[0], chosen.sizes(), settings, overrides) if follows else chosen.sizes()
    require_fit(sets, sizes, chosen)
    warn_of_idle(sizes, chosen.weights, chosen.train.epochs)
    config = _own(folder, _run_config(chosen, sizes, settings, number_format, compile), made)
    fabric, encoding = launch(device, number_format, compile)
    keep_freed_memory()
    torch.manual_seed(config.train.seed)
    model = build_model(model_class(name), sizes) if made is None else made
    trust(sources_of(model_classes(model)))
    loop = TrainingLoop(config, folder, model.to(fabric.device), *sets, fabric, encoding)
    loop.callback = callback or loop.callback
    loop.run()
    fabric.barrier()
    return open_run(folder)


def _own(folder: Path, config: RunConfig, made: RetrievalModel | None) -> RunConfig:
    """The settings, with the first weights of a model that is made already: where it goes on with a run, of that.

    Raises: ConfigError if the folder holds anything but a run with these settings.
    """
    if made is None:
        _require_own(folder, config)
        return config
    place = folder.resolve()
    begun = _BEGUN.get(made, {}).get(place) if is_run(folder) else None
    first = begun or weights_digest(made.state_dict())
    config = replace(config, initial_weights=first)
    _require_own(folder, config)
    _BEGUN.setdefault(made, {})[place] = first
    return config


def _sets(
    data: str | Sets,
    root: Path | str | None,
    preset: Preset,
    video_features: str | None,
    packing: Callable[[int, int], None] | None,
) -> tuple[DataSettings, Sets]:
    """The data set and its two splits, as they are given or read from files."""
    if not isinstance(data, str):
        if preset.features.teacher is not None and data[0].features.teacher is None:
            raise FeatureError(
                f"{data[0].name}: {preset.method} learns from a teacher, and arrays have none; load the data set "
                f"from files, with load_dataset(..., teacher={preset.features.teacher!r})"
            )
        return DataSettings(name=data[0].name, root=None, digest=digest_of(data)), data
    assert root is not None
    settings, sizes = _data(data, Path(root), video_features), preset.sizes()
    train_set, val_set = (
        load_split(settings, sizes, preset.features, split, progress=packing) for split in ("train", "val")
    )
    return settings, (train_set, val_set)


def _number_format(precision: Precision, device: str | torch.device, folder: Path) -> Format:
    """`auto` is settled when a run begins: one that goes on has its own."""
    chosen = choose_format(precision, str(choose_device(device))).name
    return read_config(folder).precision if precision == "auto" and is_run(folder) else chosen


def _data(name: str, root: Path, video_features: str | None) -> DataSettings:
    """The data set, whose captions are there; they take a second, features of the first split may take minutes."""
    place = root.resolve()
    if not (place / name).is_dir():
        there = sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
        raise FeatureError(f"{root / name}: no such folder; --root is the folder that holds it{nearest(name, there)}")
    for split in ("train", "val"):
        read_split(name, place, split)
    identity = encoder_identity_of(place / name)
    return DataSettings(name=name, root=str(place), video_features=video_features, encoder_identity=identity)


def _preset(method: ModelName, data: str, preset: str | None, overrides: Mapping[str, Any]) -> Preset:
    model_class(method)  # a wrong method is reported before a missing preset
    if preset is not None and preset.endswith((".yaml", ".yml")):
        chosen = read_preset(Path(preset), overrides)
        if chosen.name != method:
            raise ConfigError(f"{preset}: is for {chosen.method}, not for {method}; name that method, or another file")
        return chosen
    return load_preset(method, preset or (data if has_preset(method, data) else OWN_DATA_PRESET), overrides)


def _require_own(folder: Path, config: RunConfig) -> None:
    """Raise a ConfigError if the folder holds anything but a run with these settings."""
    if is_run(folder):
        require_same(folder, config)
        logger.info("%s: going on", folder)
    elif is_model(folder):
        raise ConfigError(f"{folder}: holds a model that no run has made; choose another --out")
    elif (folder / LAST).is_file():
        raise ConfigError(f"{folder}: holds {LAST}, but {CONFIG} of its run is not there; choose another --out")
    elif folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file, wanted a folder; choose another --out")


def _run_config(preset: Preset, sizes: ModelConfig, data: DataSettings, precision: Format, compile: bool) -> RunConfig:
    """All settings of the run, the model's defaults spelled out."""
    model = plain_settings(sizes)
    losses = model.pop("losses")
    plain = {field.name: getattr(preset, field.name) for field in fields(preset)}
    changed = {"model": model, "losses": losses, "weights": preset.weights_in(sizes)}
    return RunConfig(**(plain | changed), data=data, precision=precision, compile=compile)
