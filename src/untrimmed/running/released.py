"""Import authors' checkpoints as our models, with the published settings of their data set."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.models.base import RetrievalModel
from untrimmed.models.checkpoint_file import read_checkpoint_tensors
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, model_class
from untrimmed.models.released import import_released
from untrimmed.presets import list_presets, load_preset
from untrimmed.running.training_free import require_learner


def import_released_file(
    method: str, file: Path | str, *, data: str | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[RetrievalModel, str]:
    """Return the model in an authors' checkpoint, and the name of the data set whose settings it has.

    A checkpoint does not contain its data set's name, but the weights need its settings, such as GMMFormer v2's
    temperature. Without `data`, the widths must fit exactly one preset. `overrides` are dotted keys as in training.

    Raises: CheckpointError for a damaged or unfitting file, ConfigError if several presets fit without `data` or the
        method needs no training, UnknownNameError for an unknown method or data set.
    """
    require_learner(method)
    name = ModelName.of(method)
    cls = model_class(name)  # a wrong method is reported before a damaged file
    tensors = read_checkpoint_tensors(Path(file))
    if data is None:
        data = _fitting(name, Path(file), tensors, overrides)
    model = build_model(cls, load_preset(name, data, overrides).sizes())
    try:
        import_released(model, model.released_names(), tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{file}, as {method}/{data}: {error}") from error
    return model.eval(), data


def _fitting(method: ModelName, file: Path, tensors: Mapping[str, Tensor], overrides: Mapping[str, Any] | None) -> str:
    """Return the data set whose preset has the tensors' widths; a combination without presets uses its method's."""
    widths = {}
    fitting = []
    presets = list_presets()
    datasets = [data for name, data in presets if name == str(method)]
    for data in datasets or [data for name, data in presets if name == method.method]:
        config = load_preset(method, data, overrides).sizes()
        widths[data] = (config.query_dim, config.video_dim)
        if set(widths[data]) <= {size for tensor in tensors.values() for size in tensor.shape}:
            fitting.append(data)
    if not fitting:
        expected = ", ".join(f"{data} {words}/{frames}" for data, (words, frames) in widths.items())
        raise CheckpointError(
            f"{file}: no tensor has the widths of a {method} preset (words/frames: {expected}); check the method, "
            "or for other widths give --data and model.query_dim, model.video_dim"
        )
    if len(fitting) > 1:
        raise ConfigError(f"{file}: fits the presets {' and '.join(fitting)}; choose its data set with --data")
    return fitting[0]
