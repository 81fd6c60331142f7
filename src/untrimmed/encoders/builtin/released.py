"""Reads arrays from released weight files with NumPy alone. No pickled code is executed."""

import collections
import io
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untrimmed.errors import EncoderError

_SAFETENSORS = {"F32": np.float32, "I64": np.int64}
_STORAGES = {"FloatStorage": np.float32, "LongStorage": np.int64}
_MAGIC = 0x1950A86A20F9469CFC6C


def read_safetensors(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file by name, as views of the mapped file. Unused arrays are not read."""
    content = np.memmap(file, dtype=np.uint8, mode="r")
    start = 8 + int(content[:8].view(np.uint64)[0])
    entries = json.loads(content[8:start].tobytes())
    return {
        name: content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        .view(_SAFETENSORS[entry["dtype"]])
        .reshape(entry["shape"])
        for name, entry in entries.items()
        if name != "__metadata__"
    }


@dataclass(frozen=True)
class _Tensor:
    """The position of an array in the storages after the pickle. Offset and strides count numbers."""

    storage: tuple[Any, str]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, storages: dict[str, bytes]) -> np.ndarray:
        dtype, key = np.dtype(self.storage[0]), self.storage[1]
        strides = [stride * dtype.itemsize for stride in self.strides]
        return np.ndarray(self.shape, dtype, storages[key], self.offset * dtype.itemsize, strides)


class _StateUnpickler(pickle.Unpickler):
    """Unpickles containers and tensor positions, and refuses any other class."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or function of one of the three kinds that weight files use."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _place
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"contains {module}.{name}, which is not a tensor")

    def persistent_load(self, reference: Any) -> tuple[Any, str]:
        """Return the type and the key of a storage."""
        _, dtype, key, *_ = reference
        return dtype, key


def _place(
    storage: tuple[Any, str], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


def _next_storage(content: io.BytesIO, itemsize: int) -> bytes:
    size = int.from_bytes(content.read(8), "little") * itemsize
    if len(storage := content.read(size)) < size:
        raise EOFError("the file is truncated")
    return storage


def read_torch_state(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that PyTorch before 1.6 wrote.

    The file contains several pickles, of which the fourth names the tensors, and then the numbers of the tensors.

    Raises:
        EncoderError: The file is of another format, damaged, or holds something that is not weights.
    """
    content = io.BytesIO(file.read_bytes())
    try:
        if _StateUnpickler(content).load() != _MAGIC:
            raise pickle.UnpicklingError("is not of the format of PyTorch before 1.6")
        _protocol, _sizes, places, keys = (_StateUnpickler(content).load() for _ in range(4))
        itemsizes = {place.storage[1]: np.dtype(place.storage[0]).itemsize for place in places.values()}
        storages = {key: _next_storage(content, itemsizes[key]) for key in keys}
        return {name: place.read(storages) for name, place in places.items()}
    except Exception as error:  # a damaged pickle can fail in any way; no code ran
        raise EncoderError(f"{file}: cannot be read as weights ({error}); reinstall its package") from error
