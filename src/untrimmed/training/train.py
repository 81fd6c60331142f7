"""Train a method on a data set into a run's folder."""

import hashlib
import logging
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from untrimmed.config import checked, with_dotted_keys
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import read_split
from untrimmed.data.origin import encoder_identity_of
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError, FeatureError, nearest
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, model_class, plain_sections
from untrimmed.models.storage import model_classes, weights_digest
from untrimmed.plugins import plugins_of, trust
from untrimmed.precision import Format, Precision, choose_format
from untrimmed.presets import Preset, choose_preset, naming_own_data_preset, stated_widths
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
from untrimmed.training.arguments import Sets, require_arguments, require_choices, require_fit, warn_of_idle
from untrimmed.training.callbacks import Callbacks, open_callbacks
from untrimmed.training.loop import TrainingLoop
from untrimmed.training.parallel import launch

logger = logging.getLogger(__name__)

# {model in memory: {folder of the run: digest of the model's initial weights}}
_INITIAL_DIGESTS: WeakKeyDictionary[RetrievalModel, dict[Path, str]] = WeakKeyDictionary()


@checked(
    method="a name such as 'ms_sl', or a model (create_model, run.load_model())",
    data="the name of a data set, or two data sets (train, val)",
    callback="a function of the progress, the name of one, or a list of them",
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
    callback: Callbacks = None,
    packing: Callable[[int, int], None] | None = None,
    **overrides: Any,
) -> Run:
    """Train a method, given by name or as a model, and return the finished run.

    `data` is the name of a data set at ROOT/DATA, or two data sets in memory: one for training and one for selecting
    the best epoch. If `method` is a model, it is trained in place from its current weights. After training, it has the
    weights of the last epoch. `run.load_model()` returns the best model.

    Settings come from a preset. Keyword arguments change whole sections or dotted keys: `train("gmmformer_v2",
    data="tvr", root="data", weights={"clip_nce": 0.1}, **{"train.epochs": 30})`. `preset` is a YAML file, or the name
    of another data set whose preset is used. If the data set has no preset, TVR's preset is used with the data set's
    feature widths. If the method has no preset, the defaults of its class are used.

    If the folder `out` (default: runs/METHOD-DATA) has a run with the same settings and initial weights, that run is
    continued. Nothing is ever overwritten.

    - `callback` is called after each step and after each validation, and can stop the training. The value is a
      function, "tensorboard", "wandb", MODULE:NAME, or a list of these.
    - `packing` is called with the number of prepared videos and the total while features are prepared.
    - `precision` is the number format of matrix products: float32, bfloat16 (losses, weights and updates stay in
      float32), or auto, which chooses one of these when the run starts.
    - `compile` applies `torch.compile` to the encoders in training steps. It is useful on GPUs.

    Raises: UnknownNameError for an unknown method, preset or frame feature. ConfigError for an unknown or wrong
        setting, for settings that differ from the settings of the run in `out`, or for a loss that is not finite.
        FeatureError for features that are missing, damaged or do not fit the model's sizes.
    """
    overrides = with_dotted_keys(overrides)
    data_name = require_arguments(method, data, root, video_features, overrides)
    callbacks = open_callbacks(callback)
    initial = method if isinstance(method, RetrievalModel) else None
    name = ModelName.of(method.name if isinstance(method, RetrievalModel) else method)
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{data_name}"
    model_settings = {} if initial is None else plain_sections(initial.config)
    seeded = {"train.seed": seed} if seed is not None else {}
    preset = None if preset is None else str(preset)
    model_class(name)  # report a wrong method before a missing preset
    with naming_own_data_preset(name, data_name, preset):
        chosen = choose_preset(name, data_name, preset, model_settings | seeded | overrides)
        sizes = chosen.sizes()
    require_choices(chosen.train)  # before features are read, which can take minutes
    settings, sets = _sets(data, root, chosen, video_features, packing)
    if initial is None:
        fixed = {key.removeprefix("model.") for key in overrides if key.startswith("model.")}
        if settings.root is not None:
            fixed |= stated_widths(name, data_name, preset)
        sizes = _sized_for(sets[0], sizes, settings, fixed)
    require_fit(sets, sizes, chosen)
    warn_of_idle(sizes, chosen.weights, chosen.train.epochs)
    number_format = choose_format(precision, str(choose_device(device))).name
    if precision == "auto" and is_run(folder):  # a run keeps the precision with which it started
        number_format = read_config(folder).precision
    config = _with_initial_digest(folder, _run_config(chosen, sizes, settings, number_format, compile), initial)
    fabric, encoding = launch(device, number_format, compile)
    keep_freed_memory()
    torch.manual_seed(config.train.seed)
    model = build_model(model_class(name), sizes) if initial is None else initial
    trust(plugins_of(model_classes(model)))
    TrainingLoop(config, folder, model.to(fabric.device), *sets, fabric, encoding, callbacks).run()
    fabric.barrier()
    return open_run(folder)


def _sets(
    data: str | Sets,
    root: Path | str | None,
    preset: Preset,
    video_features: str | None,
    packing: Callable[[int, int], None] | None,
) -> tuple[DataSettings, Sets]:
    """Return the settings of the data set, and its splits for training and validation, from arguments or files."""
    if not isinstance(data, str):
        if preset.features.teacher is not None and data[0].features.teacher is None:
            raise FeatureError(
                f"{data[0].name}: {preset.method} learns from a teacher, which arrays do not have; load the data "
                f"set from files, with load_dataset(..., teacher={preset.features.teacher!r})"
            )
        return DataSettings(name=data[0].name, root=None, digest=_digest_of(data)), data
    assert root is not None
    place = Path(root).resolve()
    if not (place / data).is_dir():
        folders = sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
        layout = Layout.at(Path(root), data)
        raise FeatureError(f"{layout.folder}: no such data set; {layout.next_step}{nearest(data, folders)}")
    for split in ("train", "val"):
        read_split(data, place, split)  # find errors in annotations before reading features, which can take minutes
    identity = encoder_identity_of(place / data)
    settings = DataSettings(name=data, root=str(place), video_features=video_features, encoder_identity=identity)
    train_set, val_set = (
        load_split(settings, preset.sizes(), preset.features, split, progress=packing) for split in ("train", "val")
    )
    return settings, (train_set, val_set)


def _digest_of(sets: Sets) -> str:
    """Return a digest of captions, words and clips.

    A run with data in memory can be continued only if this digest is unchanged.
    """
    digest = hashlib.blake2b(digest_size=8)
    for dataset in sets:
        for annotation in dataset.annotations:
            digest.update(repr(annotation).encode())
        digest.update(np.ascontiguousarray(dataset.features.clips[:, 0]).tobytes())
        digest.update(np.ascontiguousarray(dataset.features.words_packed.rows[:1000]).tobytes())
    return digest.hexdigest()


def _sized_for(
    dataset: RetrievalDataset, sizes: ModelConfig, data: DataSettings, fixed: Collection[str]
) -> ModelConfig:
    """Return the model's sizes with the feature widths of the data set. Sizes in `fixed` do not change.

    For data in memory, the numbers of clips, frames and words are also taken from the data set.
    """
    changes: dict[str, Any] = {"query_dim": dataset.query_dim, "video_dim": dataset.video_dim}
    if data.root is None:
        features = dataset.features.settings
        changes |= {name: getattr(features, name) for name in ("num_clips", "max_frames", "max_words")}
    return replace(sizes, **{key: value for key, value in changes.items() if key not in fixed})


def _run_config(preset: Preset, sizes: ModelConfig, data: DataSettings, precision: Format, compile: bool) -> RunConfig:
    """Return all settings of the run, including the model's defaults."""
    plain = {field.name: getattr(preset, field.name) for field in fields(preset)}
    changed = plain_sections(sizes) | {"weights": preset.weights_in(sizes)}
    return RunConfig(**(plain | changed), data=data, precision=precision, compile=compile)


def _with_initial_digest(folder: Path, config: RunConfig, initial: RetrievalModel | None) -> RunConfig:
    """Return the settings with the digest of the initial model's weights.

    Raises: ConfigError if the folder contains a run with other settings, or something other than a run.
    """
    is_begun = is_run(folder)
    if initial is not None:
        digests = _INITIAL_DIGESTS.setdefault(initial, {})
        first = (is_begun and digests.get(folder.resolve())) or weights_digest(initial.state_dict())
        config = replace(config, initial_weights=first)
    if is_begun:
        require_same(folder, config)
        logger.info("%s: continuing", folder)
    elif is_model(folder):
        raise ConfigError(f"{folder}: contains a model without a run; choose another folder (out)")
    elif (folder / LAST).is_file():
        raise ConfigError(f"{folder}: contains {LAST} but not {CONFIG} of its run; choose another folder (out)")
    elif folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file, expected a folder; choose another folder (out)")
    if initial is not None:
        digests[folder.resolve()] = first
    return config
