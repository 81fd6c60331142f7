"""Import the checkpoints that authors released."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from untrimmed.config import flat, override, to_plain
from untrimmed.errors import CheckpointError, ConfigError, one_line, shown_value
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.checkpoint_file import Checkpoint, read_checkpoint
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, configure, model_class, plain_sections, plain_settings
from untrimmed.models.released import UNUSED, import_released, require_released, without_prefix
from untrimmed.models.released_settings import TranslatedSettings, translate_settings
from untrimmed.presets import Preset, list_presets, load_preset
from untrimmed.running.training_free import require_learner

METRICS = ("R@1", "R@5", "R@10", "R@100", "SumR")
FROM_TENSORS = "tensors"
"""The `key` of a setting that is derived from the shapes of tensors."""
# For each size of the model, the number that `_released_sizes` adds to it, to find the axes of tensors that depend on
# the size. The number for max_frames is larger than the number for num_clips, so that max_frames remains larger.
_PRIMES = {
    "query_dim": 101,
    "video_dim": 211,
    "dim": 307,
    "num_clips": 401,
    "max_frames": 503,
    "max_words": 601,
    "lorentz_dim": 701,
    "registers.num_registers": 809,
    "registers.num_steps": 907,
}
_OF_HEADS = ("dim", "lorentz_dim")  # sizes that must be multiples of the number of heads
# allowed rounding error per number, in percent: the recalls and SumR in a checkpoint may be rounded
_ROUNDING = 0.06


@dataclass(frozen=True)
class SettingDifference:
    """A setting whose preset value differs from the checkpoint's or the imported model's.

    `key` is the released program's name of the setting, or `FROM_TENSORS`. A setting that only the user has changed has
    no `key`, and its `checkpoint` is None. `used` is the value in the imported model, or None for a training setting,
    because models do not contain training settings.
    """

    setting: str
    preset: Any
    checkpoint: Any
    key: str
    used: Any


@dataclass(frozen=True)
class ImportedModel:
    """A model with the weights of a released checkpoint, and the other information in the checkpoint.

    - `dataset`: the data set whose preset the model uses.
    - `differences`: the settings that differ from this preset.
    - `unknown`: settings of the checkpoint that our models do not have, as text.
    - `has_settings`: whether the checkpoint contains settings.
    - `validation`: the results that the released program stored, in percent by metric.
    - `epoch`: the epoch of these results, counted from 0.
    """

    model: RetrievalModel
    dataset: str
    differences: tuple[SettingDifference, ...]
    unknown: Mapping[str, str]
    has_settings: bool
    validation: Mapping[str, float]
    epoch: int | None


def import_released_file(
    method: str, file: Path | str, *, data: str | None = None, overrides: Mapping[str, Any] | None = None
) -> ImportedModel:
    """Return the model in a released checkpoint, and the settings that differ from the preset.

    Settings come from four sources: the preset, the checkpoint's `config`, the shapes of the checkpoint's tensors, and
    `overrides` (by dotted keys). Later sources replace earlier sources.

    The default of `data` is the checkpoint's `collection`. Without a `collection`, the default is the only data set
    whose preset has the same widths as the checkpoint's tensors.

    Raises: CheckpointError for a damaged or incompatible file. ConfigError if `data` is missing and several presets
        fit, or if the method needs no training. UnknownNameError for an unknown method or data set.
    """
    require_learner(method)
    name = ModelName.of(method)
    model_class(name)  # report a wrong method name before a damaged file
    path = Path(file)
    checkpoint = read_checkpoint(path)
    tensors = without_prefix(checkpoint.tensors)
    if data is None:
        data = _dataset_of(name, path, checkpoint)
    preset = load_preset(name, data)
    translated = translate_settings(name, checkpoint.config)
    has_setting = _values(preset)
    known = {key: value for key, value in translated.values.items() if key in has_setting}
    foreign = {translated.keys[key]: shown_value(value) for key, value in translated.values.items() if key not in known}
    try:
        sizes = _released_sizes(load_preset(name, data, known), tensors)
        load_preset(name, data, known | sizes).sizes()
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{path}, as {method}/{data}: {error}") from error
    chosen = load_preset(name, data, known | sizes | dict(overrides or {}))
    config = chosen.sizes()
    try:
        empty = _without_memory(name, config)
        require_released(empty, empty.released_names(), tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{path}, as {method}/{data}: {error}") from error
    model = build_model(model_class(name), config)
    import_released(model, model.released_names(), tensors)
    return ImportedModel(
        model.eval(),
        data,
        tuple(_differences(preset, chosen, translated, sizes)),
        {**translated.unknown, **foreign},
        bool(checkpoint.config),
        _validation(checkpoint.validation),
        checkpoint.epoch,
    )


def _dataset_of(method: ModelName, file: Path, checkpoint: Checkpoint) -> str:
    """Return the data set that the checkpoint names, or the only data set whose preset has the widths of the tensors.

    If the method with its attachments has no presets, the presets of the method alone are used.
    """
    presets = list_presets()
    datasets = [data for name, data in presets if name == str(method)]
    datasets = datasets or [data for name, data in presets if name == method.method]
    collection = checkpoint.config.get("collection")
    if collection in datasets:
        return str(collection)
    widths = {}
    fitting = []
    for data in datasets:
        config = load_preset(method, data).sizes()
        widths[data] = (config.query_dim, config.video_dim)
        if set(widths[data]) <= {size for tensor in checkpoint.tensors.values() for size in tensor.shape}:
            fitting.append(data)
    if not fitting:
        expected = ", ".join(f"{data} {words}/{frames}" for data, (words, frames) in widths.items())
        raise CheckpointError(
            f"{file}: no tensor has the widths of a {method} preset (words/frames: {expected}); check the method, "
            "or choose the data set whose settings the file has (data)"
        )
    if len(fitting) > 1:
        raise ConfigError(f"{file}: fits the presets {' and '.join(fitting)}; choose its data set (data)")
    return fitting[0]


def _values(preset: Preset) -> dict[str, Any]:
    """Return all settings of a preset by dotted keys, including defaults."""
    return flat(plain_sections(preset.sizes()) | {"weights": preset.weights, "train": to_plain(preset.train)})


def _differences(
    preset: Preset, chosen: Preset, translated: TranslatedSettings, sizes: Mapping[str, Any]
) -> Iterator[SettingDifference]:
    before = _values(preset)
    after = _values(chosen)
    stored = dict(translated.values) | dict(sizes)
    for setting in dict.fromkeys([*stored, *after]):
        if setting not in before:
            continue
        value = to_plain(stored.get(setting))
        used = after[setting] if setting.startswith(("model.", "losses.")) else None
        is_changed = setting in stored and not _is_equal(value, before[setting])
        if is_changed or (used is not None and not _is_equal(used, before[setting])):
            key = FROM_TENSORS if setting in sizes else translated.keys.get(setting, "")
            yield SettingDifference(setting, before[setting], value, key, used)


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return math.isclose(left, right, rel_tol=1e-9)
    return bool(left == right)


def _without_memory(name: ModelName, config: ModelConfig) -> RetrievalModel:
    """Return a model whose tensors have shapes but no values.

    Raises: CheckpointError for impossible sizes.
    """
    try:
        with torch.device("meta"):
            return build_model(model_class(name), config)
    except (RuntimeError, OverflowError) as error:
        raise CheckpointError(f"its sizes are impossible ({one_line(error)}); is it of another method?") from error


def _released_sizes(preset: Preset, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return {dotted key: size} for the model's sizes that follow from the shapes of the checkpoint's tensors.

    To find out which axes depend on a size, we build a second model (without values) with larger sizes. Each size grows
    by a multiple of its own prime number, so the growth of an axis shows which size the axis depends on.

    If tensors imply different values of a size, the value that most of them imply is returned. If no value has a
    majority, the smallest is returned, because a table of positions can have more rows than there are frames. Other
    contradictions cause an error later, because the tensors do not fit the model.
    """
    plain = plain_settings(preset.sizes())
    values = flat(plain)
    growth = {f: prime * (plain["num_heads"] if f in _OF_HEADS else 1) for f, prime in _PRIMES.items() if f in values}
    before = _shapes(preset.name, plain)
    after = _shapes(preset.name, override(plain, {f: values[f] + step for f, step in growth.items()}))
    implied: dict[str, Counter[int]] = defaultdict(Counter)
    for name in before.keys() & tensors.keys():
        if tensors[name].ndim != len(before[name]):
            continue
        for old, new, size in zip(before[name], after[name], tensors[name].shape, strict=True):
            followed = next((f for f in growth if new > old and (new - old) % _PRIMES[f] == 0), None)
            if followed is not None:
                value = values[followed] + (size - old) * growth[followed] // (new - old)
                implied[f"model.{followed}"][value] += 1
    return {key: _majority(values) for key, values in implied.items()}


def _majority(values: Counter[int]) -> int:
    value, count = values.most_common(1)[0]
    return value if 2 * count > values.total() else min(values)


def _shapes(name: ModelName, settings: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return {name in the released program: shape} for a model's tensors."""
    model = _without_memory(name, configure(name, settings))
    state = model.state_dict()
    slots = model.released_names().items()
    return {theirs: tuple(slot.export(state).shape) for theirs, slot in slots if slot is not UNUSED}


def _validation(numbers: tuple[float, ...]) -> dict[str, float]:
    """Return {metric: percent} for the first stored numbers, or {} if they are not recalls followed by their sum."""
    recalls = numbers[: len(METRICS)]
    if len(recalls) < len(METRICS) or not abs(sum(recalls[:-1]) - recalls[-1]) <= _ROUNDING * len(METRICS):
        return {}
    return dict(zip(METRICS, recalls, strict=True))
