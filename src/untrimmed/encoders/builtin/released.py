"""Read arrays from released weight files with NumPy alone, without executing pickled code."""

import collections
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untrimmed.errors import EncoderError

_ONNX = {1: np.float32, 3: np.int8}  # ONNX's number of a data type -> the data type
_VARINT = 0  # protobuf's number of the wire type of integers
# protobuf's number of a wire type of fixed size -> the size in bytes; fields of other types begin with their size
_FIXED = {1: 8, 5: 4}
_SMALLEST = 16  # size in bytes; smaller tensors are constants of the program, not weights
_STORAGES = {"FloatStorage": np.float32, "LongStorage": np.int64}
_MAGIC = 0x1950A86A20F9469CFC6C


def read_onnx(file: Path) -> dict[str, np.ndarray]:
    """Return the weights of an ONNX file by name, as views of the memory-mapped file.

    Tensors of less than 16 bytes are constants of the graph and are left out.

    An ONNX file is a protobuf message (https://protobuf.dev/programming-guides/encoding). Field 7 of the model is the
    graph. The repeated field 5 of the graph contains tensors, with the fields dimensions (1), type (2), name (8) and
    content (9).
    """
    content = np.memmap(file, dtype=np.uint8, mode="r")
    message = content.data
    graph = _Fields.read(message, range(len(message))).spans[7][0]
    tensors = {}
    for span in _Fields.read(message, graph).spans[5]:
        fields = _Fields.read(message, span)
        (name,), (kind,), (place,) = fields.spans[8], fields.numbers[2], fields.spans[9] or [range(0)]
        if len(place) >= _SMALLEST and kind in _ONNX:
            array = content[place.start : place.stop].view(_ONNX[kind]).reshape(fields.numbers[1])
            tensors[bytes(message[name.start : name.stop]).decode()] = array
    return tensors


@dataclass(frozen=True)
class _Fields:
    """The fields of a protobuf message by field number: integers, and the byte ranges of all other fields."""

    numbers: dict[int, list[int]]
    spans: dict[int, list[range]]

    @classmethod
    def read(cls, message: memoryview, span: range) -> "_Fields":
        """Read the fields of the message that fills these bytes."""
        fields = cls(collections.defaultdict(list), collections.defaultdict(list))
        place = span.start
        while place < span.stop:
            key, place = _read_varint(message, place)
            field, kind = key >> 3, key & 7
            if kind == _VARINT:
                number, place = _read_varint(message, place)
                fields.numbers[field].append(number)
                continue
            size = _FIXED.get(kind)
            if size is None:
                size, place = _read_varint(message, place)
            fields.spans[field].append(range(place, place + size))
            place += size
        return fields


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the integer at a position (stored with seven bits per byte), and the position after it."""
    number = shift = 0
    while True:
        byte = message[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7


@dataclass(frozen=True)
class _Tensor:
    """The position of a tensor in one of the file's storages. Offset and strides count numbers, not bytes."""

    storage: tuple[Any, str]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, storages: dict[str, bytes]) -> np.ndarray:
        dtype = np.dtype(self.storage[0])
        key = self.storage[1]
        strides = [stride * dtype.itemsize for stride in self.strides]
        return np.ndarray(self.shape, dtype, storages[key], self.offset * dtype.itemsize, strides)


class _StateUnpickler(pickle.Unpickler):
    """Unpickles containers and references to tensors, and refuses any other class."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an object that weight files may refer to. Raises `pickle.UnpicklingError` for all others."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _place
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"contains {module}.{name}, which is not a tensor")

    def persistent_load(self, reference: Any) -> tuple[Any, str]:
        """Return the data type and the key of a storage (an array of numbers that tensors refer to)."""
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
    """Return the arrays of a weight file that was written by PyTorch before version 1.6.

    Such a file consists of several pickles, followed by the numbers of the tensors. The fourth pickle describes them.

    Raises:
        EncoderError: The file has another format, is damaged, or contains something other than weights.
    """
    content = io.BytesIO(file.read_bytes())
    try:
        if _StateUnpickler(content).load() != _MAGIC:
            raise pickle.UnpicklingError("is not of the format of PyTorch before 1.6")
        _protocol, _sizes, places, keys = (_StateUnpickler(content).load() for _ in range(4))
        itemsizes = {place.storage[1]: np.dtype(place.storage[0]).itemsize for place in places.values()}
        storages = {key: _next_storage(content, itemsizes[key]) for key in keys}
        return {name: place.read(storages) for name, place in places.items()}
    except Exception as error:  # a damaged pickle can raise any exception; unpickling runs no code of the file
        raise EncoderError(f"{file}: cannot be read as weights ({error}); reinstall its package") from error
