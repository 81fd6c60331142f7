"""Arrays in one file that is mapped into memory instead of read, and checked where it is first touched.

The head of the file, which begins with its own checksum, names the arrays and has a checksum of every 64 kB of each. So
nothing has to be read before it is needed, and a byte that has changed is known before anything is made of it.
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
_ALIGNED = 64  # bytes: where arrays begin
A = TypeVar("A")
_DIGEST, _LENGTH = 32, 12  # characters before the head: its checksum, and how long it is

Places = Int[np.ndarray, " K"]  # along the second axis of an array, one for each of some rows


class DamagedError(UntrimmedError):
    """A file is not as it was written, or not there: what it held has to be made again."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path}: {what}; repair it with: untrimmed doctor --repair")
        self.path, self._what = path, what

    def __reduce__(self) -> tuple[type[DamagedError], tuple[Path, str]]:
        """What it is made of: other processes raise it, too."""
        return type(self), (self.path, self._what)


def without_damaged(read: Callable[[], A], forget: Callable[[Path], None]) -> A:
    """Return what `read` returns; if it meets a damaged file, `forget` the file and read again.

    `forget` sees to it that the file is not read again, and raises if that does not help.
    """
    while True:
        try:
            return read()
        except DamagedError as error:
            forget(error.path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file, whole or not at all."""
    pieces, listed = [], []
    for name, array in arrays.items():
        plain = np.asarray(array, order="C")
        content = plain.reshape(-1).view(np.uint8)
        padded = np.pad(content, (0, -len(content) % _ALIGNED)) if len(content) % _ALIGNED else content
        listed.append([name, plain.dtype.str, plain.shape, _checksums(padded)])
        pieces.append(padded)
    head = json.dumps(listed).encode()
    head += b" " * (-(len(head) + _DIGEST + _LENGTH) % _ALIGNED)
    head = f"{len(head):{_LENGTH}d}".encode() + head
    with whole_file(path) as temporary, temporary.open("wb") as file:
        file.write(xxhash.xxh3_128_hexdigest(head).encode() + head)
        for piece in pieces:
            file.write(piece.data)


class MappedArrays(Mapping[str, np.ndarray]):
    """The arrays that `write_arrays` wrote, by name; each is whole and as it was when it is given.

    Of a large array that is read here and there, `rows` gives some. Any number of threads may ask. A file that is
    removed stays as it was for whoever has it mapped.
    """

    def __init__(self, path: Path):
        """Raises: DamagedError where the file is not there, or its head or its length are not as they were written."""
        self.path = path
        try:  # what is compiled takes arrays that can be written to; what is written would stay in this process
            with path.open("rb") as opened:
                self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise DamagedError(path, f"cannot be mapped ({error})") from error
        file = np.frombuffer(self._map, dtype=np.uint8)
        start, listed = _read_head(path, file)
        self.digest = bytes(file[:_DIGEST]).decode()  # of the head, and so of all checksums
        self._arrays: dict[str, np.ndarray] = {}
        self._bytes: dict[str, UInt8[np.ndarray, " B"]] = {}
        self._checks: dict[str, list[int]] = {}
        self._seen: dict[str, Bool[np.ndarray, " P"]] = {}
        self._starts: dict[str, int] = {}
        lengths = [np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape, *_ in listed]
        padded = [-(-length // _ALIGNED) * _ALIGNED for length in lengths]
        if start + sum(padded) != len(file):
            raise DamagedError(path, f"{len(file):,} bytes, which is not what was written")
        for (name, dtype, shape, checks), length, size in zip(listed, lengths, padded, strict=True):
            own = self._bytes[name] = file[start : start + size]
            self._starts[name] = start
            start += size
            self._arrays[name] = own[:length].view(dtype).reshape(shape)
            self._checks[name], self._seen[name] = checks, np.zeros(len(checks), dtype=bool)

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        """An array, all of which has been checked.

        Raises: DamagedError; KeyError for a name that is not there.
        """
        return self.rows(name, 0, len(self._arrays[name]) if self._arrays[name].ndim else 1)

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """An array from one row to before another, which have been checked; of a number without rows all.

        Raises: DamagedError; KeyError for a name that is not there.
        """
        array = self._arrays[name]
        self._check(name, self._pages(name, start, stop))
        return array[start:stop] if array.ndim else array

    def fetch(self, name: str, rows: Int[np.ndarray, " K"]) -> None:
        """Have the system read a few rows here and there all at once, for `picked`: else each waits for the one before.

        Raises: KeyError for a name that is not there.
        """
        array = self._arrays[name]
        if not array.nbytes or 4 * len(rows) > len(array):
            return
        if not hasattr(self._map, "madvise"):  # Windows has no such call
            return
        width, begin = array.nbytes // len(array), self._starts[name]
        for row in rows.tolist():
            first, last, pages = row * width, (row + 1) * width, self._pages(name, row, row + 1)
            if not self._seen[name][pages.start : pages.stop].all():
                first, last = pages.start * PAGE, min(pages.stop * PAGE, len(self._bytes[name]))
            start = (begin + first) // mmap.PAGESIZE * mmap.PAGESIZE
            with contextlib.suppress(OSError):  # it is advice: whoever reads the rows waits for them
                self._map.madvise(mmap.MADV_WILLNEED, start, begin + last - start)

    def picked(self, name: str, rows: Int[np.ndarray, " K"], places: Places | None = None) -> np.ndarray:
        """Copies of rows here and there, or of one place in each, which have been checked; of many rows, all are.

        Raises: DamagedError; KeyError for a name that is not there.
        """
        each = np.unique(rows).tolist()
        if 4 * len(each) > len(self._arrays[name]):
            return _at(self[name], rows, places)
        for row in each:
            self.rows(name, row, row + 1)
        return _at(self._arrays[name], rows, places)

    def _pages(self, name: str, start: int, stop: int) -> range:
        """Those with a checksum that an array is in from one row to before another."""
        array = self._arrays[name]
        width = array.nbytes // max(1, len(array)) if array.ndim else array.nbytes
        is_whole = array.ndim == 0 or (start, stop) == (0, len(array))  # then what fills up the last page, too
        last = len(self._bytes[name]) if is_whole else stop * width
        return range(start * width // PAGE, -(-last // PAGE))

    def _check(self, name: str, pages: range) -> None:
        content, wanted, seen = self._bytes[name], self._checks[name], self._seen[name]
        if seen[pages.start : pages.stop].all():
            return
        for page in pages:
            if not seen[page]:
                if xxhash.xxh3_64_intdigest(content[page * PAGE : (page + 1) * PAGE].data) != wanted[page]:
                    raise DamagedError(self.path, f"bytes of '{name}' from {page * PAGE:,} on are not those written")
                seen[page] = True


def rows_of(arrays: Mapping[str, np.ndarray], name: str, start: int, stop: int) -> np.ndarray:
    """Some rows of an array that is in memory or in a file.

    Raises: DamagedError where the file is not as it was written.
    """
    return arrays.rows(name, start, stop) if isinstance(arrays, MappedArrays) else arrays[name][start:stop]


def picked(
    arrays: Mapping[str, np.ndarray], name: str, rows: Int[np.ndarray, " K"], places: Places | None = None
) -> np.ndarray:
    """Copies of rows here and there, or of one place in each, of an array that is in memory or in a file.

    Raises: DamagedError where the file is not as it was written.
    """
    if isinstance(arrays, MappedArrays):
        return arrays.picked(name, rows, places)
    return _at(arrays[name], rows, places)


def _at(array: np.ndarray, rows: Int[np.ndarray, " K"], places: Places | None) -> np.ndarray:
    found: np.ndarray = array[rows] if places is None else array[rows, places]
    return found


def _read_head(path: Path, file: UInt8[np.ndarray, " B"]) -> tuple[int, list[Any]]:
    """Where arrays begin, and what the head says of each."""
    before = bytes(file[: _DIGEST + _LENGTH])
    length = int(before[_DIGEST:]) if before[_DIGEST:].strip().isdigit() else 0
    start = _DIGEST + _LENGTH + length
    if before[:_DIGEST] != xxhash.xxh3_128_hexdigest(bytes(file[_DIGEST:start])).encode():
        raise DamagedError(path, "its head is not as it was written")
    return start, json.loads(bytes(file[_DIGEST + _LENGTH : start]))


def _checksums(content: UInt8[np.ndarray, " B"]) -> list[int]:
    return [xxhash.xxh3_64_intdigest(content[start : start + PAGE].data) for start in range(0, len(content), PAGE)]
