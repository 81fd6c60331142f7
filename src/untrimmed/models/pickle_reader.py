"""Read a pickle without executing it. No class is imported, and no function of the pickle is called.

An object of any class becomes a `PickledObject`, which contains its arguments, items and state. A tensor becomes a
`TensorReference`. The number of objects is limited, because the number of opcodes is limited.
"""

import pickletools
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch

from untrimmed.errors import CheckpointError

MAX_OPCODES = 2_000_000
"""Largest number of opcodes. An opcode creates one object of at most about 200 bytes."""
_MAX_AXES = 8


class PickledName(NamedTuple):
    """The name of a class or function in a pickle, which is never imported."""

    module: str
    name: str


@dataclass(eq=False)
class PickledObject:
    """An object of any class, as its pickle describes it: constructor arguments, items and state."""

    made_by: object
    arguments: object
    items: dict[Any, Any] = field(default_factory=dict)
    state: object = None


class StorageReference(NamedTuple):
    """The type and the key of a storage, which is another member of the file."""

    dtype: torch.dtype
    key: str


class TensorReference(NamedTuple):
    """A view of a storage. Offset and strides are in numbers, not bytes, as in `Tensor.as_strided`."""

    storage: StorageReference
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class PickleReader:
    """Interprets the opcodes of a pickle.

    The result consists of plain containers. An object of any other class becomes a `PickledObject`.
    """

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
        """Return the pickled value.

        Raises: CheckpointError if the pickle has too many opcodes, or an opcode that checkpoints never contain.
        """
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
        if isinstance(entries, dict):
            # values under other keys, such as tuples, are never needed
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
        self._stack.pop()  # discard keyword arguments
        self._reduce()

    def _build(self) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], PickledObject):
            self._stack[-1].state = state

    def _binpersid(self) -> None:
        kind, dtype, key, *_ = self._stack.pop()
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise CheckpointError(f"tensor storage {key} is of an unknown type; convert the checkpoint to float32")
        self._stack.append(StorageReference(dtype, str(key)))


def _call(made_by: object, arguments: object) -> Any:
    """Return the result of a known function, computed by our own code, or a `PickledObject` for other functions."""
    if isinstance(made_by, PickledName) and isinstance(arguments, tuple):
        match made_by:
            case ("collections", "OrderedDict"):
                return {}
            case ("torch._utils", "_rebuild_tensor_v2"):
                return _tensor_reference(*arguments[:4])
            case ("torch._utils", "_rebuild_parameter") if arguments and isinstance(arguments[0], TensorReference):
                return arguments[0]
            case ("_codecs", "encode") if arguments and isinstance(arguments[0], str):
                return arguments[0].encode("latin1", "replace")
            case (module, "scalar") if module.startswith("numpy.") and len(arguments) == 2:
                return _numpy_number(*arguments)
    return PickledObject(made_by, arguments)


def _tensor_reference(storage: Any, offset: Any, shape: Any, stride: Any) -> TensorReference:
    numbers = (offset, *shape, *stride)
    if (
        not isinstance(storage, StorageReference)
        or len(shape) != len(stride)
        or len(shape) > _MAX_AXES
        or not all(isinstance(number, int) and 0 <= number < 2**62 for number in numbers)
    ):
        raise CheckpointError("a tensor has a damaged shape; download the file again")
    return TensorReference(storage, offset, tuple(shape), tuple(stride))


def _numpy_number(dtype: Any, raw: Any) -> Any:
    """Return a numpy scalar as a Python number, or None for other types."""
    kind = dtype.arguments[0] if isinstance(dtype, PickledObject) and isinstance(dtype.arguments, tuple) else None
    code = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i"}.get(str(kind))
    if code is None or not isinstance(raw, bytes) or len(raw) != struct.calcsize(code):
        return None
    return struct.unpack(code, raw)[0]
