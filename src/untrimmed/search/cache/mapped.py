"""Arrays in one memory-mapped file, with checksums that are verified on first access.

The header lists the arrays, and a checksum for each 64 kB page of each array. It begins with its own checksum. Pages
are read only when they are needed, and a changed byte is detected before it is used.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_DIGEST = 32  # number of characters of the header's checksum
_LENGTH = 12  # number of characters of the header's length
_PREFIX = _DIGEST + _LENGTH

Columns = Int[np.ndarray, " K"]  # for each row, an index along the second axis


class DamagedError(UntrimmedError):
    """Raised if a file is damaged or missing, so that its content must be built again from the table."""

    def __init__(self, path: Path, problem: str):
        super().__init__(f"{path}: {problem}; repair it with: untrimmed doctor --repair")
        self.path = path
        self._problem = problem

    def __reduce__(self) -> tuple[type[DamagedError], tuple[Path, str]]:
        """Return how to pickle the error, because shards in other processes raise it."""
        return type(self), (self.path, self._problem)


def retry_if_damaged(read: Callable[[], A], discard: Callable[[Path], None]) -> A:
    """Return the result of `read()`. If `read` raises a DamagedError, call `discard` with the file and try again.

    `discard` must ensure that the file is not read again.
    """
    while True:
        try:
            return read()
        except DamagedError as error:
            discard(error.path)


def remove_damaged_files(paths: Iterable[Path]) -> list[Path]:
    """Verify every byte of files of arrays; remove damaged files and return their paths."""
    damaged = []
    for path in paths:
        try:
            dict(MappedArrays(path))
        except DamagedError:
            path.unlink(missing_ok=True)
            damaged.append(path)
    return damaged


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
    header = json.dumps(entries).encode()
    header += b" " * (-(len(header) + _PREFIX) % _ALIGNED)
    header = f"{len(header):{_LENGTH}d}".encode() + header
    with whole_file(path) as temporary, temporary.open("wb") as file:
        file.write(xxhash.xxh3_128_hexdigest(header).encode() + header)
        for piece in pieces:
            file.write(piece.data)


class MappedArrays(Mapping[str, np.ndarray]):
    """The arrays, by name, in a file that `write_arrays` wrote. An array is verified before it is returned.

    `row_range` and `scattered_rows` verify only the pages that contain the rows. All methods raise DamagedError if a
    checksum is wrong, and KeyError if a name is unknown. Instances are thread-safe, and stay valid if the file is
    removed.
    """

    def __init__(self, path: Path):
        """Raises: DamagedError if the file is missing, or its header or its length is wrong."""
        self.path = path
        try:  # copy-on-write, because compiled loops need writable arrays
            with path.open("rb") as opened:
                self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise DamagedError(path, f"cannot be mapped ({error})") from error
        file = np.frombuffer(self._map, dtype=np.uint8)
        start, entries = _read_header(path, file)
        self.digest = bytes(file[:_DIGEST]).decode()  # checksum of the header, which contains all other checksums
        self._arrays: dict[str, np.ndarray] = {}
        self._bytes: dict[str, UInt8[np.ndarray, " B"]] = {}
        self._checksums: dict[str, list[int]] = {}
        self._is_verified: dict[str, Bool[np.ndarray, " P"]] = {}
        self._starts: dict[str, int] = {}
        lengths = [np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape, *_ in entries]
        padded = [-(-length // _ALIGNED) * _ALIGNED for length in lengths]
        if start + sum(padded) != len(file):
            raise DamagedError(path, f"{len(file):,} bytes, expected {start + sum(padded):,}")
        for (name, dtype, shape, checksums), length, size in zip(entries, lengths, padded, strict=True):
            self._bytes[name] = file[start : start + size]
            self._starts[name] = start
            self._arrays[name] = file[start : start + length].view(dtype).reshape(shape)
            self._checksums[name] = checksums
            self._is_verified[name] = np.zeros(len(checksums), dtype=bool)
            start += size

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return an array after verifying all its pages."""
        return self.row_range(name, 0, len(self._arrays[name]) if self._arrays[name].ndim else 1)

    def row_range(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop` of an array (or a whole scalar) after verifying them."""
        array = self._arrays[name]
        self._verify(name, self._pages(name, start, stop))
        return array[start:stop] if array.ndim else array

    def prefetch(self, name: str, rows: Int[np.ndarray, " K"]) -> None:
        """Ask the system to read a few rows in parallel. A later call of `scattered_rows` is then faster."""
        array = self._arrays[name]
        has_madvise = hasattr(self._map, "madvise")  # `madvise` does not exist on Windows
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
            with contextlib.suppress(OSError):  # only a hint: `scattered_rows` reads the rows anyway
                self._map.madvise(mmap.MADV_WILLNEED, start, begin + last - start)

    def scattered_rows(self, name: str, rows: Int[np.ndarray, " K"], columns: Columns | None = None) -> np.ndarray:
        """Return copies of these rows, or of one column of each row, after verifying them."""
        distinct = np.unique(rows).tolist()
        if 4 * len(distinct) > len(self._arrays[name]):
            return _indexed(self[name], rows, columns)
        for row in distinct:
            self.row_range(name, row, row + 1)
        return _indexed(self._arrays[name], rows, columns)

    def _pages(self, name: str, start: int, stop: int) -> range:
        """Return the pages that contain rows `start` to `stop`."""
        array = self._arrays[name]
        width = array.nbytes // max(1, len(array)) if array.ndim else array.nbytes
        # reading a whole array also verifies its padding
        is_whole = array.ndim == 0 or (start, stop) == (0, len(array))
        last = len(self._bytes[name]) if is_whole else stop * width
        return range(start * width // PAGE, -(-last // PAGE))

    def _verify(self, name: str, pages: range) -> None:
        is_verified = self._is_verified[name]
        if is_verified[pages.start : pages.stop].all():
            return
        for page in pages:
            if not is_verified[page]:
                content = self._bytes[name][page * PAGE : (page + 1) * PAGE]
                if xxhash.xxh3_64_intdigest(content.data) != self._checksums[name][page]:
                    raise DamagedError(self.path, f"bytes of '{name}' from {page * PAGE:,} on have a wrong checksum")
                is_verified[page] = True


def row_range(arrays: Mapping[str, np.ndarray], name: str, start: int, stop: int) -> np.ndarray:
    """Return rows `start` to `stop` of an array. If the array is in a file, the rows are verified.

    Raises:
        DamagedError: A checksum is wrong.
    """
    return arrays.row_range(name, start, stop) if isinstance(arrays, MappedArrays) else arrays[name][start:stop]


def scattered_rows(
    arrays: Mapping[str, np.ndarray], name: str, rows: Int[np.ndarray, " K"], columns: Columns | None = None
) -> np.ndarray:
    """Return copies of these rows, or of one column of each row. If the array is in a file, the rows are verified.

    Raises:
        DamagedError: A checksum is wrong.
    """
    if isinstance(arrays, MappedArrays):
        return arrays.scattered_rows(name, rows, columns)
    return _indexed(arrays[name], rows, columns)


def _indexed(array: np.ndarray, rows: Int[np.ndarray, " K"], columns: Columns | None) -> np.ndarray:
    values: np.ndarray = array[rows] if columns is None else array[rows, columns]
    return values


def _read_header(path: Path, file: UInt8[np.ndarray, " B"]) -> tuple[int, list[Any]]:
    """Return the position of the first array, and the entries of the header, one per array."""
    prefix = bytes(file[:_PREFIX])
    length = int(prefix[_DIGEST:]) if prefix[_DIGEST:].strip().isdigit() else 0
    start = _PREFIX + length
    if prefix[:_DIGEST] != xxhash.xxh3_128_hexdigest(bytes(file[_DIGEST:start])).encode():
        raise DamagedError(path, "the header has a wrong checksum")
    return start, json.loads(bytes(file[_PREFIX:start]))


def _checksums(content: UInt8[np.ndarray, " B"]) -> list[int]:
    return [xxhash.xxh3_64_intdigest(content[start : start + PAGE].data) for start in range(0, len(content), PAGE)]
