"""Read tables of vectors by name from a BigFile folder, a folder of numpy files, or memory.

`hdf5.py` reads HDF5 files.
"""

import sys
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from jaxtyping import Float

from untrimmed.data.bigfile import BigFile, read_video2frames
from untrimmed.data.fields import read_json
from untrimmed.errors import FeatureError, one_line

MAX_ENTRY_BYTES = 4 * 2**30
"""Maximum size of the table of one video or caption, in bytes.

This is enough for about 100 hours at one frame (3,072 float32) per second.
"""
_ZIP = b"PK"  # the first bytes of an npz file
_MAX_COMPRESSION = 1100  # largest plausible compression ratio; deflate reaches 1,032
_SMALL_ENTRY = 2**20  # entries of at most this many bytes are read whatever their compression ratio


class VectorSource(ABC):
    """Frame vectors by video id, or word vectors by caption id.

    `place` names the source in messages. `averages_in` is the number format in which the released programs average the
    frames.
    """

    place: Path
    averages_in: Literal["float32", "float64"] = "float64"

    @property
    @abstractmethod
    def dim(self) -> int:
        """Width of all rows."""

    @property
    def first_name(self) -> str:
        """The name of one entry, as an example for messages. Empty if no name is known."""
        return ""

    @abstractmethod
    def __contains__(self, name: str) -> bool:
        """Whether there is an entry with this name."""

    @abstractmethod
    def count(self, name: str) -> int:
        """Return the number of rows of an entry. If possible, the rows are not read."""

    @abstractmethod
    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """Return an entry as float32 or float64; raises FeatureError if it is missing or has a wrong shape."""

    @abstractmethod
    def files(self, names: list[str]) -> list[Path]:
        """Return the files that contain the entries. If a file has changed, cached features are outdated."""


class BigFileFrames(VectorSource):
    """Frames by video id from a BigFile folder. The files are read when they are first needed."""

    def __init__(self, folder: Path):
        self.place = folder

    @property
    def dim(self) -> int:
        """Width of a frame."""
        return self._rows.shape[1]

    @property
    def first_name(self) -> str:
        """The first video in `video2frames.txt`."""
        return next(iter(self._table), "")

    @cached_property
    def _rows(self) -> BigFile:
        return BigFile(self.place)

    @cached_property
    def _table(self) -> dict[str, list[str]]:
        return read_video2frames(self.place / "video2frames.txt")

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def count(self, name: str) -> int:
        """Return the number of frames of a video."""
        return len(self._frames(name))

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """Return the frames of a video in temporal order."""
        frames = self._frames(name)
        unknown = next((frame for frame in frames if frame not in self._rows.row_of), None)
        if unknown is not None:
            what = f"frame {unknown!r} of video {name!r} is in video2frames.txt but not in id.txt"
            raise FeatureError(f"{self.place}: {what}; write the folder again")
        return self._rows.read_sequence(frames) if frames else np.zeros((0, self.dim), np.float32)

    def files(self, names: list[str]) -> list[Path]:
        """Return the four files of the folder."""
        return [self.place / file for file in ("feature.bin", "id.txt", "shape.txt", "video2frames.txt")]

    def _frames(self, name: str) -> list[str]:
        if name not in self._table:
            raise FeatureError(_missing(self.place / "video2frames.txt", name))
        return self._table[name]


class TableSource(VectorSource):
    """Entries of shape (rows, width) or (1, rows, width). All entries must have the same width."""

    _suffix = ""  # suffix of file names, for messages

    def __init__(self, place: Path, first: str, values: Any):
        self.place = place
        self._first = first
        self._dim = int(values.shape[-1]) if values.shape else 0

    @property
    def dim(self) -> int:
        """Width of the first entry."""
        return self._dim

    @property
    def first_name(self) -> str:
        """The name of the first entry."""
        return self._first

    @abstractmethod
    def _entry(self, name: str) -> Any:
        """Return an entry as an HDF5 data set, a path or an array, or None if there is no such entry."""

    def __contains__(self, name: str) -> bool:
        return self._entry(name) is not None

    def count(self, name: str) -> int:
        """Return the number of rows of an entry. Only npz files have to be read completely for this number."""
        return self._shape(name, self._values(name))[0]

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """Return the rows of an entry. A leading axis of length one is removed."""
        values = self._values(name)
        shape = self._shape(name, values)
        _require_size(self.place, name, values)
        try:
            table = values[()]
        except (OSError, RuntimeError, MemoryError) as error:
            what = f"data set {name!r} cannot be read ({one_line(error)})"
            raise FeatureError(f"{self.place}: {what}; the file is damaged, write or copy it again") from error
        if table.dtype.kind not in "fiu":
            raise FeatureError(f"{self.place}: {name!r} contains {table.dtype}, expected numbers; write it again")
        return np.asarray(table if table.dtype == np.float64 else table.astype(np.float32)).reshape(shape)

    def _values(self, name: str) -> Any:
        entry = self._entry(name)
        if entry is None:
            raise FeatureError(_missing(self.place, name + self._suffix))
        return _load_numpy(entry) if isinstance(entry, Path) else entry

    def _shape(self, name: str, values: Any) -> tuple[int, int]:
        shape = tuple(values.shape or ())  # an empty HDF5 data set has no shape
        table = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
        if len(table) != 2:
            raise FeatureError(
                f"{self.place}: {name!r} has shape {shape}, expected (rows, {self.dim or 'width'}); write it again"
            )
        if table[1] != self.dim:
            what = f"{name!r} has width {table[1]}, expected {self.dim} as in {self._first!r}"
            raise FeatureError(f"{self.place}: {what}; extract all with one encoder")
        return int(table[0]), int(table[1])


class FolderVectors(TableSource):
    """Entries in the files `<name>.npy` or `<name>.npz` of a folder.

    An npz file contains a single array, or an array named `frames` or `words`.
    """

    _suffix = ".npy"

    def __init__(self, folder: Path):
        first = next((path for path in sorted(folder.rglob("*")) if path.suffix in (".npy", ".npz")), None)
        if first is None:
            raise FeatureError(f"{folder}: contains no .npy or .npz file; write one per entry")
        super().__init__(folder, first.relative_to(folder).with_suffix("").as_posix(), _load_numpy(first))

    def files(self, names: list[str]) -> list[Path]:
        """Return the files of the entries that exist."""
        return [path for path in map(self._entry, names) if path is not None]

    def _entry(self, name: str) -> Path | None:
        candidates = (self.place / f"{name}{suffix}" for suffix in (".npy", ".npz"))
        return next((path for path in candidates if path.is_file()), None)


def to_array(table: Any, place: str) -> Any:
    """Return a tensor or nested lists as an array. Arrays are returned unchanged.

    Raises: FeatureError if the table cannot be converted, for example because its rows have different lengths.
    """
    if hasattr(table, "detach"):  # a PyTorch tensor; there is no isinstance check, because PyTorch may not be installed
        table = table.detach().cpu()
        table = table.float() if "bfloat16" in str(table.dtype) else table  # numpy has no bfloat16
    elif hasattr(table, "dtype") and hasattr(table, "shape"):
        return table
    try:
        return np.asarray(table)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{place} is a {type(table).__name__} that cannot be converted to a table"
        raise FeatureError(f"{what}, expected rows of numbers of one width; fix it") from error


class ArrayVectors(TableSource):
    """Arrays from a mapping, which may read them lazily. `what` names the mapping in messages."""

    def __init__(self, arrays: Mapping[str, Any], what: str):
        if not arrays:
            raise FeatureError(f"{what}: contains no arrays; pass one per entry")
        self._arrays = arrays
        first, values = next(iter(arrays.items()))
        super().__init__(Path(what), first, to_array(values, f"{what}: {first!r}"))

    def files(self, names: list[str]) -> list[Path]:
        """Return an empty list, because features in memory are not cached on disk."""
        return []

    def _entry(self, name: str) -> Any:
        table = self._arrays.get(name)
        return None if table is None else to_array(table, f"{self.place}: {name!r}")


class FolderArrays(ArrayVectors):
    """Arrays that a registered layout reads from a folder."""

    def __init__(self, arrays: Mapping[str, Any], folder: Path):
        super().__init__(arrays, str(folder))

    def files(self, names: list[str]) -> list[Path]:
        """Return all files of the folder except the cache, because the layout may read any of these files."""
        packed = self.place / "packed"
        return sorted(path for path in self.place.rglob("*") if path.is_file() and packed not in path.parents)


class JoinedFrames(VectorSource):
    """Frames of merged videos.

    If the source has no frames of a merged video, the frames of its pieces are concatenated. The file `table` lists the
    pieces of each merged video.
    """

    def __init__(self, source: VectorSource, table: Path):
        self.place = source.place
        self.averages_in = source.averages_in
        self._source = source
        self._table = table
        self._pieces = read_pieces(table)

    @property
    def dim(self) -> int:
        """Width of a frame."""
        return self._source.dim

    @property
    def first_name(self) -> str:
        """The name of the first video or piece."""
        return self._source.first_name

    def __contains__(self, name: str) -> bool:
        return all(piece in self._source for piece in self._pieces_of(name))

    def count(self, name: str) -> int:
        """Return the number of frames of all pieces."""
        return sum(self._source.count(piece) for piece in self._pieces_of(name))

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """Return the frames of all pieces in order."""
        return np.concatenate([self._source.read(piece) for piece in self._pieces_of(name)])

    def files(self, names: list[str]) -> list[Path]:
        """Return the files of all pieces, and the file that lists the pieces."""
        return [self._table, *self._source.files([piece for name in names for piece in self._pieces_of(name)])]

    def _pieces_of(self, name: str) -> list[str]:
        return [name] if name in self._source else self._pieces.get(name, [name])


def _require_size(place: Path, name: str, values: Any) -> None:
    """Raise a FeatureError for an HDF5 data set that would need far more memory than it occupies in its file."""
    h5py = sys.modules.get("h5py")  # if h5py is not imported, `values` is not an HDF5 data set
    if h5py is None or not isinstance(values, h5py.Dataset):
        return
    stored = values.id.get_storage_size()
    limit = min(MAX_ENTRY_BYTES, _SMALL_ENTRY + _MAX_COMPRESSION * stored)
    if values.nbytes > limit:
        what = f"{name!r} declares {values.nbytes:,} bytes, the file stores {stored:,}"
        raise FeatureError(f"{place}: {what}, expected at most {limit:,}; write it again")


def read_pieces(path: Path) -> dict[str, list[str]]:
    """Return {merged video: pieces in order}; raises FeatureError if the file is damaged."""
    pieces = read_json(path)
    if not isinstance(pieces, dict) or not all(isinstance(names, list) and names for names in pieces.values()):
        raise FeatureError(f"{path}: expected {{video: [piece, ...]}}; run untrimmed data prepare again")
    return pieces


def _load_numpy(path: Path) -> np.ndarray:
    """Return the memory-mapped array of an npy file, or the array of an npz file, which is read completely.

    The format is detected from the file's content, not from its name.
    """
    try:
        with path.open("rb") as file:
            is_zip = file.read(len(_ZIP)) == _ZIP
            file.seek(0)
            return _load_npz(path, file) if is_zip else np.load(path, mmap_mode="r", allow_pickle=False)
    except FeatureError:
        raise
    except (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile) as error:
        raise FeatureError(f"{path}: cannot be read as numpy ({one_line(error)}); write it again") from error


def _load_npz(path: Path, file: BinaryIO) -> np.ndarray:
    with np.load(file, allow_pickle=False) as arrays:
        names = arrays.files
        chosen = next((n for n in ("frames", "words") if n in names), names[0] if len(names) == 1 else None)
        if chosen is None:
            raise FeatureError(f"{path}: arrays {', '.join(names)}, expected one, or 'frames' or 'words'; rename it")
        size = arrays.zip.getinfo(f"{chosen}.npy").file_size
        if size > MAX_ENTRY_BYTES:
            raise FeatureError(f"{path}: {size:,} bytes, expected at most {MAX_ENTRY_BYTES:,}; write it again")
        return arrays[chosen]


def _missing(place: Path, name: str) -> str:
    return f"{place}: no entry {name!r}; extract its features or remove its captions"
