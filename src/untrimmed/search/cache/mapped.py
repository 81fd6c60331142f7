"""Arrays in one memory-mapped file, with checksums that are verified on first access.

The header begins with its own checksum. It lists the arrays and the checksum of each 64 kB page of an array. Pages are
read only when they are needed, and a changed byte is detected before it is used.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash
from jaxtyping import Bool, Int, UInt8

from untrimmed.errors import UntrimmedError
from untrimmed.files import whole_file

PAGE = 1 << 16
_ALIGNED = 64  # arrays begin at multiples of this number of bytes
A = TypeVar("A")
_DIGEST = 32  # characters of the header's checksum
_LENGTH = 12  # characters of the header's length
_PREFIX = _DIGEST + _LENGTH

Places = Int[np.ndarray, " K"]  # one index along the second axis for each row


class DamagedError(UntrimmedError):
    """A file is damaged or missing; its content must be built again from the table."""

    def __init__(self, path: Path, problem: str):
        super().__init__(f"{path}: {problem}; repair it with: untrimmed doctor --repair")
        self.path = path
        self._problem = problem

    def __reduce__(self) -> tuple[type[DamagedError], tuple[Path, str]]:
        """Support pickling: shards in other processes raise this error."""
        return type(self), (self.path, self._problem)


def without_damaged(read: Callable[[], A], forget: Callable[[Path], None]) -> A:
    """Return the result of `read`. If `read` finds a damaged file, call `forget` with its path and try again.

    `forget` must make sure that the file is not read again, or raise.
    """
    while True:
        try:
            return read()
        except DamagedError as error:
            forget(error.path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file atomically."""
    pieces = []
    entries = []
    for name, array in arrays.items():
        plain = np.asarray(array, order="C")
        content = plain.reshape(-1).view(np.uint8)
        padded = np.pad(content, (0, -len(content) % _ALIGNED)) if len(content) % _ALIGNED else content
        entries.append([name, plain.dtype.str, plain.shape, _checksums(padded)])
        pieces.append(padded)
    head = json.dumps(entries).encode()
    head += b" " * (-(len(head) + _PREFIX) % _ALIGNED)
    head = f"{len(head):{_LENGTH}d}".encode() + head
    with whole_file(path) as temporary, temporary.open("wb") as file:
        file.write(xxhash.xxh3_128_hexdigest(head).encode() + head)
        for piece in pieces:
            file.write(piece.data)


class MappedArrays(Mapping[str, np.ndarray]):
    """The arrays of a file of `write_arrays`, by name; each is verified before it is returned.

    `rows` and `picked` verify only some pages. Instances are thread-safe. If the file is removed, the mapping stays
    valid.
    """

    def __init__(self, path: Path):
        """Raises: DamagedError if the file is missing, or its header or its length is wrong."""
        self.path = path
        try:  # compiled loops need writable arrays, so map copy-on-write
            with path.open("rb") as opened:
                self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise DamagedError(path, f"cannot be mapped ({error})") from error
        file = np.frombuffer(self._map, dtype=np.uint8)
        start, entries = _read_head(path, file)
        self.digest = bytes(file[:_DIGEST]).decode()  # of the header, which has all other checksums
        self._arrays: dict[str, np.ndarray] = {}
        self._bytes: dict[str, UInt8[np.ndarray, " B"]] = {}
        self._checks: dict[str, list[int]] = {}
        self._is_verified: dict[str, Bool[np.ndarray, " P"]] = {}
        self._starts: dict[str, int] = {}
        lengths = [np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape, *_ in entries]
        padded = [-(-length // _ALIGNED) * _ALIGNED for length in lengths]
        if start + sum(padded) != len(file):
            raise DamagedError(path, f"{len(file):,} bytes, expected {start + sum(padded):,}")
        for (name, dtype, shape, checks), length, size in zip(entries, lengths, padded, strict=True):
            self._bytes[name] = file[start : start + size]
            self._starts[name] = start
            self._arrays[name] = file[start : start + length].view(dtype).reshape(shape)
            self._checks[name] = checks
            self._is_verified[name] = np.zeros(len(checks), dtype=bool)
            start += size

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return an array after verifying all of it.

        Raises: DamagedError; KeyError for an unknown name.
        """
        return self.rows(name, 0, len(self._arrays[name]) if self._arrays[name].ndim else 1)

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop` of an array after verifying them; a scalar as a whole.

        Raises: DamagedError; KeyError for an unknown name.
        """
        array = self._arrays[name]
        self._check(name, self._pages(name, start, stop))
        return array[start:stop] if array.ndim else array

    def fetch(self, name: str, rows: Int[np.ndarray, " K"]) -> None:
        """Ask the system to read a few scattered rows in parallel before `picked`, which reads one after another.

        Raises: KeyError for an unknown name.
        """
        array = self._arrays[name]
        has_madvise = hasattr(self._map, "madvise")  # not on Windows
        if not has_madvise or not array.nbytes or 4 * len(rows) > len(array):
            return
        width = array.nbytes // len(array)
        begin = self._starts[name]
        for row in rows.tolist():
            first = row * width
            last = first + width
            pages = self._pages(name, row, row + 1)
            if not self._is_verified[name][pages.start : pages.stop].all():
                first = pages.start * PAGE
                last = min(pages.stop * PAGE, len(self._bytes[name]))
            start = (begin + first) // mmap.PAGESIZE * mmap.PAGESIZE
            with contextlib.suppress(OSError):  # only a hint: `picked` reads the rows anyway
                self._map.madvise(mmap.MADV_WILLNEED, start, begin + last - start)

    def picked(self, name: str, rows: Int[np.ndarray, " K"], places: Places | None = None) -> np.ndarray:
        """Return copies of scattered rows, or of one place in each row, after verifying them.

        Raises: DamagedError; KeyError for an unknown name.
        """
        distinct = np.unique(rows).tolist()
        if 4 * len(distinct) > len(self._arrays[name]):
            return _at(self[name], rows, places)
        for row in distinct:
            self.rows(name, row, row + 1)
        return _at(self._arrays[name], rows, places)

    def _pages(self, name: str, start: int, stop: int) -> range:
        """Return the pages of rows `start` to `stop`."""
        array = self._arrays[name]
        width = array.nbytes // max(1, len(array)) if array.ndim else array.nbytes
        is_whole = array.ndim == 0 or (start, stop) == (0, len(array))  # then the padding, too
        last = len(self._bytes[name]) if is_whole else stop * width
        return range(start * width // PAGE, -(-last // PAGE))

    def _check(self, name: str, pages: range) -> None:
        is_verified = self._is_verified[name]
        if is_verified[pages.start : pages.stop].all():
            return
        content = self._bytes[name]
        for page in pages:
            if not is_verified[page]:
                if xxhash.xxh3_64_intdigest(content[page * PAGE : (page + 1) * PAGE].data) != self._checks[name][page]:
                    raise DamagedError(self.path, f"bytes of '{name}' from {page * PAGE:,} on have a wrong checksum")
                is_verified[page] = True


def rows_of(arrays: Mapping[str, np.ndarray], name: str, start: int, stop: int) -> np.ndarray:
    """Return rows `start` to `stop` of an array in memory or in a file.

    Raises: DamagedError if the file is damaged.
    """
    return arrays.rows(name, start, stop) if isinstance(arrays, MappedArrays) else arrays[name][start:stop]


def picked(
    arrays: Mapping[str, np.ndarray], name: str, rows: Int[np.ndarray, " K"], places: Places | None = None
) -> np.ndarray:
    """Return copies of scattered rows, or of one place in each row, of an array in memory or in a file.

    Raises: DamagedError if the file is damaged.
    """
    if isinstance(arrays, MappedArrays):
        return arrays.picked(name, rows, places)
    return _at(arrays[name], rows, places)


def _at(array: np.ndarray, rows: Int[np.ndarray, " K"], places: Places | None) -> np.ndarray:
    values: np.ndarray = array[rows] if places is None else array[rows, places]
    return values


def _read_head(path: Path, file: UInt8[np.ndarray, " B"]) -> tuple[int, list[Any]]:
    """Return where the arrays begin, and the header's entry of each."""
    prefix = bytes(file[:_PREFIX])
    length = int(prefix[_DIGEST:]) if prefix[_DIGEST:].strip().isdigit() else 0
    start = _PREFIX + length
    if prefix[:_DIGEST] != xxhash.xxh3_128_hexdigest(bytes(file[_DIGEST:start])).encode():
        raise DamagedError(path, "the header has a wrong checksum")
    return start, json.loads(bytes(file[_PREFIX:start]))


def _checksums(content: UInt8[np.ndarray, " B"]) -> list[int]:
    return [xxhash.xxh3_64_intdigest(content[start : start + PAGE].data) for start in range(0, len(content), PAGE)]
