"""Save and load a model as `model.safetensors` and `config.json` in one folder. These files contain no code.

The settings contain a digest of the weights, with which loading detects damaged weights and weights of another model.

If a model has classes from outside this package, the settings name their modules. Loading imports these modules only if
the user has imported them before (`untrimmed.plugins`), because an import executes code.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError
from untrimmed.files import whole_file, write_whole
from untrimmed.models.base import RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, configure, model_class, plain_settings
from untrimmed.plugins import PluginModule, plain, plugins_of, read_plugins, require

FORMAT = 1
WEIGHTS = "model.safetensors"
SETTINGS = "config.json"
DIGESTS = "weights_sha256"


def save_model(model: RetrievalModel, folder: Path) -> None:
    """Write a model's weights and settings, each file atomically. An older model is replaced."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    settings: dict[str, Any] = {"format": FORMAT, "method": model.name, "model": plain_settings(model.config)}
    if imports := plugins_of(model_classes(model)):
        settings["imports"] = plain(imports)
    old_digests: list[str] = []
    with suppress(CheckpointError):
        old_digests = list(_read_settings(folder / SETTINGS).get(DIGESTS, []))
    digest = weights_digest(tensors)
    if old_digests:  # if the process is killed before the last line, old and new weights are both valid
        _write_settings(folder / SETTINGS, settings | {DIGESTS: [*old_digests, digest]})
    write_tensors(folder / WEIGHTS, tensors)
    _write_settings(folder / SETTINGS, settings | {DIGESTS: [digest]})


def _write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(settings, indent=2) + "\n", is_only_writer=True)


def model_classes(model: RetrievalModel) -> list[type]:
    """Return the classes of a model and of its attachments."""
    return [type(model), *(type(attachment) for attachment in model.attachments.values())]


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically.

    Raises: CheckpointError if the file cannot be written. An older file then remains.
    """
    try:
        with whole_file(path, is_only_writer=True) as temporary:
            save_file(tensors, temporary, metadata=metadata)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written ({error}); free space, or choose another folder") from error


def imports_of(folder: Path) -> list[PluginModule]:
    """Return the plug-ins that a saved model lists. Raises CheckpointError if the list is damaged."""
    return _imports(_read_settings(folder / SETTINGS), folder)


def _imports(settings: Mapping[str, Any], folder: Path) -> list[PluginModule]:
    try:
        return read_plugins(settings.get("imports", []))
    except ValueError as error:
        raise CheckpointError(f"{folder / SETTINGS}: {error}; copy the file again") from error


def load_model(folder: Path) -> RetrievalModel:
    """Return a model that `save_model` wrote, on the CPU and in evaluation mode.

    Raises: CheckpointError for a file that is missing or truncated, does not fit the settings, or has values that are
        not finite. ConfigError if the model needs code from outside this package that the user has not imported before.
    """
    settings = _read_settings(folder / SETTINGS)
    require(_imports(settings, folder), folder)
    try:
        name = ModelName.of(str(settings["method"]))
        config = configure(name, settings["model"], where=str(folder / SETTINGS))
        model = build_model(model_class(name), config)
    except (UnknownNameError, ConfigError) as error:
        raise CheckpointError(f"{folder / SETTINGS}: {error}") from error
    path = folder / WEIGHTS
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); copy the file again") from error
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != shapes:
        first = min(key for key in expected.keys() | shapes.keys() if expected.get(key) != shapes.get(key))
        raise CheckpointError(
            f"{path}: tensor {first} has shape {shapes.get(first)}, {SETTINGS} expects {expected.get(first)}; "
            "keep weights and config.json of one model together"
        )
    if tensor_name := not_finite(tensors):
        raise CheckpointError(f"{path}: tensor {tensor_name} is not finite; copy the file again, or train again")
    if weights_digest(tensors) not in settings[DIGESTS]:
        raise CheckpointError(
            f"{path}: damaged or of another model: {SETTINGS} in this folder has another digest; copy both files again"
        )
    model.load_state_dict(tensors)
    return model.eval()


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 digest of the names, shapes and values of a model's tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """Return the name of the first tensor with a value that is not finite, or "" if all values are finite."""
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), "")


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); give the folder of a saved model") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error}); copy the file again") from error
    if not isinstance(settings, dict) or not {"format", "method", "model"} <= settings.keys():
        raise CheckpointError(f"{path}: expected format, method and model; save_model did not write this file")
    if settings["format"] != FORMAT or not isinstance(settings.get(DIGESTS), list):
        raise CheckpointError(f"{path}: saved by another development version of untrimmed; train or import it again")
    return settings
