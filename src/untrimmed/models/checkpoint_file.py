"""Read tensors, settings and validation results from an authors' checkpoint without executing pickled code.

Checkpoints contain tensors and pickled objects of the authors' classes (a schedule, an EasyDict). A small file cannot
cause a large memory allocation, because compressed members, tensors larger than their storage, and pickles with too
many objects raise an error before memory is allocated.
"""

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from untrimmed.errors import CheckpointError, one_line
from untrimmed.models.pickle_reader import (
    PickledName,
    PickledObject,
    PickleReader,
    StorageReference,
    TensorReference,
)

MAX_PICKLE_BYTES = 16 * 2**20
"""Largest size of the pickle.

Released checkpoints have a pickle of at most 0.3 MB, with names, shapes and settings but no tensors.
"""
_MAX_NAME = 300  # longest name of a tensor, in characters


@dataclass(frozen=True)
class Checkpoint:
    """The content of an authors' checkpoint.

    - `tensors` maps the authors' parameter names to views of the file's storages.
    - `config` contains the settings that the authors' program stored: numbers, texts, and lists or mappings of numbers
      and texts. `config` is empty if the file has no such entry.
    - `validation` contains the validation metrics (the entry `model_val`) in the order of the file. `validation` may be
      empty.
    - `epoch` is counted from 0.
    """

    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    validation: tuple[float, ...] = ()
    epoch: int | None = None


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the parameters, settings and validation results in a checkpoint.

    Raises: CheckpointError if the file is missing or truncated, was written by a PyTorch older than 1.6, contains no
        tensors, or would need too much memory for its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            storages = _Storages(archive, path.stat().st_size)
            content = PickleReader(storages.pickle()).read()
            return _checkpoint(content, storages)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"{path}: is a folder; name the checkpoint file in it") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise CheckpointError(
            f"{path}: truncated, or not a checkpoint of PyTorch 1.6 or later ({one_line(error)}); download it again, "
            "or load and save it once with torch"
        ) from error
    except Exception as error:  # a damaged pickle can fail in any way
        what = f"the pickle inside is damaged ({type(error).__name__}: {one_line(error)})"
        raise CheckpointError(f"{path}: {what}; download the file again") from error


class _Storages:
    """The members of a zip file that torch.save wrote: one pickle, and one member per storage."""

    def __init__(self, archive: zipfile.ZipFile, file_size: int):
        members = archive.infolist()
        compressed = next((member for member in members if member.compress_type != zipfile.ZIP_STORED), None)
        if compressed is not None:
            raise CheckpointError(
                f"member {compressed.filename!r} is compressed, but torch.save stores members as they are; load the "
                "file with torch and save it again if you trust it"
            )
        declared = sum(member.file_size for member in members)
        if declared > file_size:
            raise CheckpointError(
                f"its members have {declared:,} bytes, the file has {file_size:,}; members overlap, download it again"
            )
        pickles = [member for member in members if member.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError("a zip file, but not one written by torch.save; choose the checkpoint")
        self._archive = archive
        self._pickle = pickles[0]
        self._members = {member.filename: member for member in members}
        self._root = self._pickle.filename.removesuffix("/data.pkl")
        self._storages: dict[str, Tensor] = {}
        self.file_size = file_size

    def pickle(self) -> bytes:
        """Return the pickle."""
        if self._pickle.file_size > MAX_PICKLE_BYTES:
            raise CheckpointError(
                f"its pickle has {self._pickle.file_size:,} bytes, expected at most {MAX_PICKLE_BYTES:,}; save only "
                "`state_dict`, `config` and `model_val` with torch"
            )
        return self._archive.read(self._pickle)

    def tensor(self, name: str, reference: TensorReference) -> Tensor:
        """Return a tensor as a view of its storage; raises CheckpointError if it extends beyond the storage."""
        (dtype, key), offset, shape, stride = reference
        count = math.prod(shape)
        end = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1 if count else 0
        storage = self._storage(key)
        available = len(storage) // dtype.itemsize
        if count > available or end > available:
            raise CheckpointError(
                f"tensor {name} has shape {_shown(shape)} and strides {_shown(stride)}, its storage has only "
                f"{available:,} numbers; save a contiguous copy with torch, or download the file again"
            )
        if not count:
            return torch.zeros(shape, dtype=dtype)
        values = storage[: available * dtype.itemsize].view(dtype)
        return values.as_strided(shape, stride, offset)

    def _storage(self, key: str) -> Tensor:
        """Return the bytes of a storage."""
        if key not in self._storages:
            member = self._members.get(f"{self._root}/data/{key}")
            if member is None:
                raise CheckpointError(f"the storage {key!r} of a tensor is missing; download the file again")
            buffer = bytearray(self._archive.read(member))
            self._storages[key] = torch.frombuffer(buffer, dtype=torch.uint8) if buffer else torch.zeros(0).byte()
        return self._storages[key]


def _checkpoint(content: Any, storages: _Storages) -> Checkpoint:
    content = content if isinstance(content, dict) else {}
    parameters = content
    for entry in ("state_dict", "model"):
        if isinstance(content.get(entry), dict) and content[entry]:
            parameters = content[entry]
            break
    references = {str(name): item for name, item in parameters.items() if isinstance(item, TensorReference)}
    if not references:
        expected = "expected an entry `state_dict` or `model` with tensors"
        raise CheckpointError(f"no parameters, {expected}; choose another file")
    if not all(name.isprintable() and len(name) <= _MAX_NAME for name in references):
        raise CheckpointError("the name of a tensor is not printable or too long; download the file again")
    total = sum(math.prod(item.shape) * item.storage.dtype.itemsize for item in references.values())
    if total > 2 * storages.file_size:  # tensors can share a storage, so that their total may exceed the file's size
        raise CheckpointError(
            f"its tensors have {total:,} bytes, the file has {storages.file_size:,}; save a copy of each tensor with "
            "torch, or download it again"
        )
    tensors = {name: storages.tensor(name, reference) for name, reference in references.items()}
    settings = _Settings(storages)
    config = settings.plain(content.get("config") or content.get("model_cfg"))
    results = settings.plain(content.get("model_val"))
    epoch = settings.plain(content.get("epoch"))
    return Checkpoint(
        tensors,
        config if isinstance(config, dict) else {},
        tuple(float(number) for number in results if _is_number(number)) if isinstance(results, list) else (),
        epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None,
    )


class _Settings:
    """Converts pickled settings to numbers, texts, lists and mappings.

    Objects with items (EasyDict) or with a mapping as state (Namespace) become mappings. All other values, and values
    that are nested too deeply, become None. The number of values is limited, because a pickle can contain the same list
    many times.
    """

    MAX_DEPTH: ClassVar[int] = 20
    MAX_VALUES: ClassVar[int] = 10_000

    def __init__(self, storages: _Storages):
        self._storages = storages
        self._num_values = 0

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return the converted value; raises CheckpointError if there are more than `MAX_VALUES` values."""
        self._num_values += 1
        if self._num_values > self.MAX_VALUES:
            raise CheckpointError(f"its settings have more than {self.MAX_VALUES:,} values; save only the weights")
        if isinstance(value, PickledObject):
            value = value.items or value.state
        if isinstance(value, bool | float | str):
            return value
        if isinstance(value, int):
            return value if abs(value) < 2**63 else None
        if isinstance(value, TensorReference):
            return self._storages.tensor("in the settings", value).item() if math.prod(value.shape) == 1 else None
        if depth >= self.MAX_DEPTH or isinstance(value, StorageReference | PickledName):
            return None
        if isinstance(value, list | tuple):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {str(key): self.plain(item, depth + 1) for key, item in value.items()}
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(sizes: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in sizes) or "()"
