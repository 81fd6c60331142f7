"""Reads the tensors, settings and validation results in an authors' checkpoint without executing pickled code.

The files contain tensors and pickled objects of the authors' classes (a schedule, an EasyDict). `_PickleReader`
interprets the pickle's opcodes itself: no class is looked up, no function is called, and an object of any class becomes
a `PickledObject`, a record of its arguments, items and state. Memory is bounded by the size of the file: compressed
members, tensors larger than their storage and pickles with too many objects are refused before anything is allocated.
"""

import math
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from untrimmed.errors import CheckpointError, one_line

MAX_PICKLE_BYTES = 16 * 2**20
"""Released checkpoints have at most 0.3 MB of pickle: names, shapes and settings. Tensors are outside of it."""
MAX_OPCODES = 2_000_000
"""An opcode creates one object of at most about 200 bytes."""
_MAX_AXES = 8
_MAX_NAME = 300  # characters


@dataclass(frozen=True)
class Checkpoint:
    """The content of an authors' checkpoint.

    `tensors` are views of the file's storages, by the authors' parameter names. `config` has the settings that the
    program stored: numbers, texts and lists or mappings of them. `validation` has the numbers of `model_val`, in the
    program's order. Both are empty in files without them. `epoch` counts from 0.
    """

    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    validation: tuple[float, ...] = ()
    epoch: int | None = None


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the parameters (entry `state_dict` or `model`, or the whole file), settings and results in a checkpoint.

    Raises: CheckpointError if the file is missing, truncated, older than PyTorch 1.6, contains no tensors, or would
        need more memory than its size justifies.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            storages = _Storages(archive, path.stat().st_size)
            content = _PickleReader(storages.pickle()).read()
            return _checkpoint(content, storages)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file; check the path") from error
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


def read_checkpoint_tensors(path: Path) -> dict[str, Tensor]:
    """Return the parameters in an authors' checkpoint by name; raises like `read_checkpoint`."""
    return dict(read_checkpoint(path).tensors)


class PickledName(NamedTuple):
    """A class or function that a pickle names. It is never imported."""

    module: str
    name: str


@dataclass(eq=False)
class PickledObject:
    """An object of any class: its arguments, the items that were set and the state that was given to it."""

    made_by: object
    arguments: object
    items: dict[Any, Any] = field(default_factory=dict)
    state: object = None


class _StorageReference(NamedTuple):
    dtype: torch.dtype
    key: str


class _TensorReference(NamedTuple):
    storage: _StorageReference
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


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

    def tensor(self, name: str, reference: _TensorReference) -> Tensor:
        """Return a view of a storage; raises CheckpointError for a tensor that its storage does not contain."""
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


class _PickleReader:
    """Interprets the opcodes of a pickle. It builds plain containers, and records instead of objects of classes."""

    DTYPES: ClassVar[Mapping[str, torch.dtype]] = {
        "FloatStorage": torch.float32,
        "DoubleStorage": torch.float64,
        "HalfStorage": torch.float16,
        "BFloat16Storage": torch.bfloat16,
        "LongStorage": torch.int64,
        "IntStorage": torch.int32,
        "ShortStorage": torch.int16,
        "CharStorage": torch.int8,
        "ByteStorage": torch.uint8,
        "BoolStorage": torch.bool,
    }
    CONSTANTS: ClassVar[Mapping[str, Callable[[], Any]]] = {
        "NONE": lambda: None,
        "NEWTRUE": lambda: True,
        "NEWFALSE": lambda: False,
        "EMPTY_LIST": list,
        "EMPTY_TUPLE": tuple,
        "EMPTY_DICT": dict,
        "EMPTY_SET": list,
    }
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset({"PROTO", "FRAME"})
    TUPLES: ClassVar[Mapping[str, int]] = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
    VALUES: ClassVar[frozenset[str]] = frozenset(
        {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
        | {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
        | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
    )
    PUTS: ClassVar[frozenset[str]] = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
    GETS: ClassVar[frozenset[str]] = frozenset({"GET", "BINGET", "LONG_BINGET"})

    def __init__(self, pickled: bytes):
        self._pickled = pickled
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        """Return the pickled value; raises CheckpointError for too many opcodes or one that checkpoints never have."""
        for number, (opcode, argument, _) in enumerate(pickletools.genops(self._pickled)):
            if number >= MAX_OPCODES:
                raise CheckpointError(f"its pickle has more than {MAX_OPCODES:,} opcodes; save only the weights")
            if opcode.name == "STOP":
                return self._stack.pop()
            self._apply(opcode.name, argument)
        raise CheckpointError("the pickle inside has no end; download the file again")

    def _apply(self, name: str, argument: Any) -> None:
        if name in self.VALUES:
            self._stack.append(argument)
        elif name in self.PUTS:
            self._memo[argument] = self._stack[-1]
        elif name in self.GETS:
            self._stack.append(self._memo[argument])
        elif name in self.CONSTANTS:
            self._stack.append(self.CONSTANTS[name]())
        elif name in self.TUPLES:
            count = self.TUPLES[name]
            items = tuple(self._stack[-count:])
            del self._stack[-count:]
            self._stack.append(items)
        elif name not in self.WITHOUT_EFFECT:
            operation = getattr(self, f"_{name.lower()}", None)
            if operation is None:
                raise CheckpointError(f"its pickle has the opcode {name}, which torch.save does not write")
            if argument is None:
                operation()
            else:
                operation(argument)

    def _popped_items(self) -> list[Any]:
        """Remove and return the values since the last mark."""
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _mark(self) -> None:
        self._marks.append(len(self._stack))

    def _pop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def _pop_mark(self) -> None:
        self._popped_items()

    def _dup(self) -> None:
        self._stack.append(self._stack[-1])

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _list(self) -> None:
        self._stack.append(self._popped_items())

    def _tuple(self) -> None:
        self._stack.append(tuple(self._popped_items()))

    def _dict(self) -> None:
        items = self._popped_items()
        self._stack.append({})
        self._set(zip(items[::2], items[1::2], strict=True))

    def _frozenset(self) -> None:
        self._list()

    def _append(self) -> None:
        self._extend([self._stack.pop()])

    def _appends(self) -> None:
        self._extend(self._popped_items())

    def _additems(self) -> None:
        self._extend(self._popped_items())

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self._stack[-1], list):
            self._stack[-1].extend(items)

    def _setitem(self) -> None:
        value = self._stack.pop()
        key = self._stack.pop()
        self._set([(key, value)])

    def _setitems(self) -> None:
        items = self._popped_items()
        self._set(zip(items[::2], items[1::2], strict=True))

    def _set(self, items: Iterable[tuple[Any, Any]]) -> None:
        target = self._stack[-1]
        entries = target.items if isinstance(target, PickledObject) else target
        if isinstance(entries, dict):  # other keys, such as nested tuples, name nothing that is read
            entries.update((key, value) for key, value in items if isinstance(key, str | int))

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        dtype = self.DTYPES.get(name) if module == "torch" else None
        self._stack.append(PickledName(module, name) if dtype is None else dtype)

    def _stack_global(self) -> None:
        name = self._stack.pop()
        module = self._stack.pop()
        self._global(f"{module} {name}")

    def _inst(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(_call(PickledName(module, name), tuple(self._popped_items())))

    def _obj(self) -> None:
        made_by, *arguments = self._popped_items()
        self._stack.append(_call(made_by, tuple(arguments)))

    def _reduce(self) -> None:
        arguments = self._stack.pop()
        self._stack.append(_call(self._stack.pop(), arguments))

    def _newobj(self) -> None:
        self._reduce()

    def _newobj_ex(self) -> None:
        self._stack.pop()  # keyword arguments
        self._reduce()

    def _build(self) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], PickledObject):
            self._stack[-1].state = state

    def _binpersid(self) -> None:
        kind, dtype, key, *_ = self._stack.pop()
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise CheckpointError(f"tensor storage {key} is of an unknown type; convert the checkpoint to float32")
        self._stack.append(_StorageReference(dtype, str(key)))


def _call(made_by: object, arguments: object) -> Any:
    """Return what a few known functions would return, without calling them, and a record for all others."""
    if isinstance(made_by, PickledName) and isinstance(arguments, tuple):
        match made_by:
            case ("collections", "OrderedDict"):
                return {}
            case ("torch._utils", "_rebuild_tensor_v2"):
                return _tensor_reference(*arguments[:4])
            case ("torch._utils", "_rebuild_parameter") if arguments and isinstance(arguments[0], _TensorReference):
                return arguments[0]
            case ("_codecs", "encode") if arguments and isinstance(arguments[0], str):
                return arguments[0].encode("latin1", "replace")
            case (module, "scalar") if module.startswith("numpy.") and len(arguments) == 2:
                return _numpy_number(*arguments)
    return PickledObject(made_by, arguments)


def _tensor_reference(storage: Any, offset: Any, shape: Any, stride: Any) -> _TensorReference:
    numbers = (offset, *shape, *stride)
    if (
        not isinstance(storage, _StorageReference)
        or len(shape) != len(stride)
        or len(shape) > _MAX_AXES
        or not all(isinstance(number, int) and 0 <= number < 2**62 for number in numbers)
    ):
        raise CheckpointError("a tensor has a damaged shape; download the file again")
    return _TensorReference(storage, offset, tuple(shape), tuple(stride))


def _numpy_number(dtype: Any, raw: Any) -> Any:
    """Return a numpy scalar as a Python number, None for other types."""
    kind = dtype.arguments[0] if isinstance(dtype, PickledObject) and isinstance(dtype.arguments, tuple) else None
    code = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i"}.get(str(kind))
    if code is None or not isinstance(raw, bytes) or len(raw) != struct.calcsize(code):
        return None
    return struct.unpack(code, raw)[0]


def _checkpoint(content: Any, storages: _Storages) -> Checkpoint:
    content = content if isinstance(content, dict) else {}
    parameters = content
    for entry in ("state_dict", "model"):
        if isinstance(content.get(entry), dict) and content[entry]:
            parameters = content[entry]
            break
    references = {str(name): item for name, item in parameters.items() if isinstance(item, _TensorReference)}
    if not references:
        expected = "expected an entry `state_dict` or `model` with tensors"
        raise CheckpointError(f"no parameters, {expected}; choose another file")
    if not all(name.isprintable() and len(name) <= _MAX_NAME for name in references):
        raise CheckpointError("the name of a tensor is not printable or too long; download the file again")
    total = sum(math.prod(item.shape) * item.storage.dtype.itemsize for item in references.values())
    if total > 2 * storages.file_size:  # a few tensors may share a storage
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
    """Converts pickled settings to numbers, texts, lists and mappings. All other values, and those too deep, are None.

    An object with items is a mapping (EasyDict), and otherwise an object with a mapping as its state (Namespace). A
    pickle can contain one list many times, so the number of values is limited.
    """

    MAX_DEPTH: ClassVar[int] = 20
    MAX_VALUES: ClassVar[int] = 10_000

    def __init__(self, storages: _Storages):
        self._storages = storages
        self._num_values = 0

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return the plain value; raises CheckpointError for more than `MAX_VALUES` values."""
        self._num_values += 1
        if self._num_values > self.MAX_VALUES:
            raise CheckpointError(f"its settings have more than {self.MAX_VALUES:,} values; save only the weights")
        if isinstance(value, PickledObject):
            value = value.items or value.state
        if isinstance(value, bool | float | str):
            return value
        if isinstance(value, int):
            return value if abs(value) < 2**63 else None
        if isinstance(value, _TensorReference):
            return self._storages.tensor("in the settings", value).item() if math.prod(value.shape) == 1 else None
        if depth >= self.MAX_DEPTH or isinstance(value, _StorageReference | PickledName):
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
