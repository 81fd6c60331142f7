"""Reads tensors from an authors' checkpoint file without executing pickled code.

The files contain tensors and pickled objects of the authors' classes (a schedule, an EasyDict). The reader replaces
every class that is not needed to rebuild tensors by an inert placeholder.
"""

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from untrimmed.errors import CheckpointError


class _Inert(dict):
    """A placeholder for any object that is not a tensor. It stores nothing and executes nothing."""

    def __init__(self, *arguments: object, **settings: object):
        super().__init__()

    def __setstate__(self, state: object) -> None:
        return

    def __setitem__(self, key: object, value: object) -> None:
        return

    def append(self, item: object) -> None:
        """Ignore an item of a pickled list-like object."""

    def extend(self, items: object) -> None:
        """Ignore items of a pickled list-like object."""


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: object) -> Tensor:
    return data


class _TensorUnpickler(pickle.Unpickler):
    """Rebuilds tensors and plain containers; all other objects become `_Inert`."""

    ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    }
    DTYPES: ClassVar[dict[str, torch.dtype]] = {
        "FloatStorage": torch.float32,
        "DoubleStorage": torch.float64,
        "HalfStorage": torch.float16,
        "BFloat16Storage": torch.bfloat16,
        "LongStorage": torch.int64,
        "IntStorage": torch.int32,
        "ByteStorage": torch.uint8,
        "BoolStorage": torch.bool,
    }

    def __init__(self, archive: zipfile.ZipFile, root: str):
        super().__init__(io.BytesIO(archive.read(f"{root}/data.pkl")))
        self.archive = archive
        self.root = root
        self.storages: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed function, a dtype for a storage class, or `_Inert` for any other name."""
        if module == "torch" and name in self.DTYPES:
            return self.DTYPES[name]
        return self.ALLOWED.get((module, name), _Inert)

    def persistent_load(self, reference: Any) -> Any:
        """Return the storage of a tensor, read from a member of the archive."""
        _, dtype, key, _, _ = reference
        if not isinstance(dtype, torch.dtype):
            raise CheckpointError(f"tensor storage {key} is of an unknown type; convert the checkpoint to float32")
        if key not in self.storages:
            raw = bytearray(self.archive.read(f"{self.root}/data/{key}"))
            untyped = torch.frombuffer(raw, dtype=torch.uint8).untyped_storage() if raw else torch.UntypedStorage(0)
            self.storages[key] = torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
        return self.storages[key]


def read_checkpoint_tensors(path: Path) -> dict[str, Tensor]:
    """Return the parameters in an authors' checkpoint by name: the entry `state_dict` or `model`, or the whole file.

    Raises: CheckpointError if the file is missing, truncated, older than PyTorch 1.6, or contains no tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise CheckpointError(f"{path}: a zip file, but not one written by torch.save")
            content = _TensorUnpickler(archive, pickles[0].removesuffix("/data.pkl")).load()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file; check the path") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (zipfile.BadZipFile, OSError) as error:
        raise CheckpointError(
            f"{path}: truncated, or not a checkpoint of PyTorch 1.6 or later ({error}); download it again, or load and "
            "save it once with torch"
        ) from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise CheckpointError(f"{path}: the pickle inside is damaged ({type(error).__name__}: {error})") from error
    return _parameters(path, content)


def _parameters(path: Path, content: object) -> dict[str, Tensor]:
    if isinstance(content, dict):
        for entry in ("state_dict", "model"):
            if isinstance(content.get(entry), dict) and content[entry]:
                content = content[entry]
                break
    tensors = {n: t for n, t in content.items() if isinstance(t, Tensor)} if isinstance(content, dict) else {}
    if not tensors:
        raise CheckpointError(f"{path}: no parameters; expected an entry `state_dict` or `model` with tensors")
    return {str(name): tensor.clone() for name, tensor in tensors.items()}
