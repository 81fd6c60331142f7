"""Train a method on a data set into a run's folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from untrimmed.data.layout import read_split
from untrimmed.data.origin import encoder_identity_of
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.models.base import ModelConfig
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import model_class, plain_settings
from untrimmed.precision import Format, Precision, choose_format
from untrimmed.presets import Preset, has_preset, load_preset, read_preset
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
from untrimmed.running.split import load_split, require_widths
from untrimmed.training.loop import Progress, TrainingLoop
from untrimmed.training.parallel import launch

OWN_DATA_PRESET = "tvr"  # whose settings data without a preset of its own gets; widths come from the data

logger = logging.getLogger(__name__)


def train(
    method: str,
    *,
    data: str,
    root: Path | str,
    out: Path | str | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    seed: int | None = None,
    preset: str | None = None,
    video_features: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    packing: Callable[[int, int], None] | None = None,
    **overrides: Any,
) -> Run:
    """Train `method` on the data set at ROOT/DATA and give the finished run.

    Settings are those of the preset for method and data set, changed by dotted keys:
    `train("gmmformer_v2", data="tvr", root="data", **{"train.epochs": 30})`. `preset` names another data set's preset
    or a YAML file; people's own data sets take TVR's, and the widths of their features. A folder `out` (default:
    runs/METHOD-DATA) with the same settings goes on where it stopped; nothing is ever overwritten. `progress` is called
    after each step, `packing` with videos done and in all while features are prepared. `precision` is the format of the
    products: float32, bfloat16 (losses, weights and their updates stay float32), or auto, which is settled when the run
    begins and then belongs to its settings.

    Raises:
        UnknownNameError: for an unknown method, preset or frame feature.
        ConfigError: for an unknown or wrong setting, other settings than those of the run in `out`, or a loss that is
            not a number.
        FeatureError: for missing, damaged or unfitting features.
    """
    if seed is not None:
        overrides = {"train.seed": seed} | overrides
    folder = Path(out) if out is not None else Path("runs") / f"{method}-{data}"
    number_format = _number_format(precision, device, folder)
    name = ModelName.of(method)
    chosen = _preset(name, data, preset, overrides)
    settings = _data(data, Path(root), video_features)
    sizes = chosen.sizes()
    train_set, val_set = (
        load_split(settings, sizes, chosen.features, split, progress=packing) for split in ("train", "val")
    )
    if preset is None and chosen.dataset != data:
        widths: dict[str, Any] = {"query_dim": train_set.query_dim, "video_dim": train_set.video_dim}
        sizes = replace(sizes, **{name: value for name, value in widths.items() if f"model.{name}" not in overrides})
    for dataset in (train_set, val_set):
        require_widths(sizes, dataset, f"{method}/{chosen.dataset}")
    config = _run_config(chosen, sizes, settings, number_format)
    _require_own(folder, config)
    fabric, encoding = launch(device, number_format)
    keep_freed_memory()
    torch.manual_seed(config.train.seed)
    model = model_class(name)(sizes)
    loop = TrainingLoop(config, folder, model.to(fabric.device), train_set, val_set, fabric, encoding)
    if progress is not None:
        loop.report = progress
    loop.run()
    fabric.barrier()
    return open_run(folder)


def _number_format(precision: Precision, device: str, folder: Path) -> Format:
    """`auto` is settled when a run begins: one that goes on has its own."""
    chosen = choose_format(precision, str(choose_device(device))).name
    return read_config(folder).precision if precision == "auto" and is_run(folder) else chosen


def _data(name: str, root: Path, video_features: str | None) -> DataSettings:
    """The data set, whose captions are there; they take a second, features of the first split may take minutes."""
    place = root.resolve()
    if not (place / name).is_dir():
        raise FeatureError(f"{root / name}: no such folder; --root is the folder that holds it")
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


def _run_config(preset: Preset, sizes: ModelConfig, data: DataSettings, precision: Format) -> RunConfig:
    """All settings of the run, the model's defaults spelled out."""
    model = plain_settings(sizes)
    losses = model.pop("losses")
    plain = {field.name: getattr(preset, field.name) for field in fields(preset)}
    weights = {name: weight for name, weight in preset.weights.items() if name not in sizes.absent_terms}
    changed = {"model": model, "losses": losses, "weights": weights}
    return RunConfig(**(plain | changed), data=data, precision=precision)
