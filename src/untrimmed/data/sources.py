"""Rows of vectors by name: in a BigFile folder, an HDF5 file, a folder of numpy files, or in memory."""

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from jaxtyping import Float

from untrimmed.data.bigfile import BigFile, read_video2frames
from untrimmed.data.fields import read_json
from untrimmed.errors import FeatureError, one_line


class VectorSource(ABC):
    """Frame vectors of videos or word vectors of captions, by video or caption id.

    `place` names the source in messages; `dim` is the common width, in HDF5 and folders that of the first entry.
    `averages_in` is the precision in which the releases average such frames.
    """

    place: Path
    averages_in: Literal["float32", "float64"] = "float64"

    @property
    @abstractmethod
    def dim(self) -> int:
        """Width of a row."""

    @abstractmethod
    def __contains__(self, name: str) -> bool:
        """Whether there is an entry of that name."""

    @abstractmethod
    def count(self, name: str) -> int:
        """Number of rows of an entry, without reading them where the format allows it."""

    @abstractmethod
    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """Return an entry as float32 (float64 stays); FeatureError if it is missing, no table or of another width."""

    @abstractmethod
    def files(self, names: list[str]) -> list[Path]:
        """The files that the entries are in: when none of them changes, neither do the entries."""


class BigFileFrames(VectorSource):
    """Frames of videos in a BigFile folder in the order of `video2frames.txt`; tables are parsed when first needed."""

    def __init__(self, folder: Path):
        self.place = folder

    @property
    def dim(self) -> int:
        """Width of a frame."""
        return self._rows.shape[1]

    @cached_property
    def _rows(self) -> BigFile:
        return BigFile(self.place)

    @cached_property
    def _table(self) -> dict[str, list[str]]:
        return read_video2frames(self.place / "video2frames.txt")

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def count(self, name: str) -> int:
        """Number of frames of a video."""
        return len(self._frames(name))

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """The frames of a video in temporal order."""
        frames = self._frames(name)
        unknown = next((frame for frame in frames if frame not in self._rows.row_of), None)
        if unknown is not None:
            what = f"frame {unknown!r} of video {name!r} is in video2frames.txt but not in id.txt"
            raise FeatureError(f"{self.place}: {what}; write the folder again")
        return self._rows.read_sequence(frames) if frames else np.zeros((0, self.dim), np.float32)

    def files(self, names: list[str]) -> list[Path]:
        """The four files of the folder."""
        return [self.place / file for file in ("feature.bin", "id.txt", "shape.txt", "video2frames.txt")]

    def _frames(self, name: str) -> list[str]:
        if name not in self._table:
            raise FeatureError(_absent(self.place / "video2frames.txt", name))
        return self._table[name]


class _Tables(VectorSource):
    """Entries with a shape of their own each, (rows, width) or (1, rows, width); the first says how wide all are."""

    _suffix = ""  # of an entry's name in messages

    def __init__(self, place: Path, first: str, values: Any):
        self.place = place
        self._first = first
        self._dim = int(values.shape[-1]) if values.shape else 0

    @property
    def dim(self) -> int:
        """Width of the first entry."""
        return self._dim

    @abstractmethod
    def _found(self, name: str) -> Any:
        """What holds an entry: a data set, a file or an array; None where there is none."""

    def __contains__(self, name: str) -> bool:
        return self._found(name) is not None

    def count(self, name: str) -> int:
        """Number of rows of an entry; only an npz is read for it."""
        return self._shape(name, self._values(name))[0]

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """The rows of an entry, without a leading axis of length one."""
        values = self._values(name)
        shape = self._shape(name, values)
        try:
            whole = values[()]
        except (OSError, RuntimeError) as error:
            what = f"data set {name!r} cannot be read ({one_line(error)})"
            raise FeatureError(f"{self.place}: {what}; the file is damaged, write or copy it again") from error
        if whole.dtype.kind not in "fiu":
            raise FeatureError(f"{self.place}: {name!r} holds {whole.dtype}, wanted numbers; write it again")
        return np.asarray(whole if whole.dtype == np.float64 else whole.astype(np.float32)).reshape(shape)

    def _values(self, name: str) -> Any:
        found = self._found(name)
        if found is None:
            raise FeatureError(_absent(self.place, name + self._suffix))
        return _load_numpy(found) if isinstance(found, Path) else found

    def _shape(self, name: str, values: Any) -> tuple[int, int]:
        shape = tuple(values.shape)
        table = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
        if len(table) != 2:
            raise FeatureError(
                f"{self.place}: {name!r} has shape {shape}, wanted (rows, {self.dim or 'width'}); write it again"
            )
        if table[1] != self.dim:
            what = f"{name!r} has width {table[1]}, {self._first!r} has {self.dim}"
            raise FeatureError(f"{self.place}: {what}; extract all with one encoder")
        return int(table[0]), int(table[1])


class Hdf5Vectors(_Tables):
    """One HDF5 file with a data set per name."""

    def __init__(self, path: Path):
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise FeatureError(f"{path}: cannot be read as HDF5 ({one_line(error)}); write or copy it again") from error
        first = next(iter_datasets(self._file), None)
        if first is None:
            raise FeatureError(f"{path}: no data set in it; write it again")
        super().__init__(path, first.name.removeprefix("/"), first)

    def files(self, names: list[str]) -> list[Path]:
        """The file."""
        return [self.place]

    def _found(self, name: str) -> Any:
        found = self._file.get(name)
        return found if isinstance(found, h5py.Dataset) else None


class JSGFrames(Hdf5Vectors):
    """The frames of JSG's release, which averages in single precision."""

    averages_in = "float32"


class FolderVectors(_Tables):
    """A folder with `<name>.npy` or `<name>.npz` per name; an npz holds one array or one called `frames` or `words`."""

    _suffix = ".npy"

    def __init__(self, folder: Path):
        first = next((path for path in sorted(folder.rglob("*")) if path.suffix in (".npy", ".npz")), None)
        if first is None:
            raise FeatureError(f"{folder}: no .npy or .npz file in it; write one per entry")
        super().__init__(folder, first.relative_to(folder).with_suffix("").as_posix(), _load_numpy(first))

    def files(self, names: list[str]) -> list[Path]:
        """The file of each name."""
        return [path for path in map(self._found, names) if path is not None]

    def _found(self, name: str) -> Path | None:
        candidates = (self.place / f"{name}{suffix}" for suffix in (".npy", ".npz"))
        return next((path for path in candidates if path.is_file()), None)


def to_array(table: Any, place: str) -> Any:
    """Convert a tensor or lists to an array; arrays stay. Raises FeatureError for rows of different lengths."""
    if hasattr(table, "detach"):  # of PyTorch, which need not be installed
        table = table.detach().cpu()
        table = table.float() if "bfloat16" in str(table.dtype) else table  # which numpy does not have
    elif hasattr(table, "dtype") and hasattr(table, "shape"):
        return table
    try:
        return np.asarray(table)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{place} is a {type(table).__name__} that makes no table"
        raise FeatureError(f"{what}, wanted rows of numbers, all of one width; give such a table") from error


class ArrayVectors(_Tables):
    """Arrays by name, in memory or read when they are asked for; `what` they are stands in messages."""

    def __init__(self, arrays: Mapping[str, Any], what: str):
        if not arrays:
            raise FeatureError(f"{what}: no array in them; give one per entry")
        self._arrays = arrays
        first, values = next(iter(arrays.items()))
        super().__init__(Path(what), first, to_array(values, f"{what}: {first!r}"))

    def files(self, names: list[str]) -> list[Path]:
        """None: what is made of them is kept in memory too."""
        return []

    def _found(self, name: str) -> Any:
        found = self._arrays.get(name)
        return None if found is None else to_array(found, f"{self.place}: {name!r}")


class FolderArrays(ArrayVectors):
    """Arrays that a registered layout reads out of a folder."""

    def __init__(self, arrays: Mapping[str, Any], folder: Path):
        super().__init__(arrays, str(folder))

    def files(self, names: list[str]) -> list[Path]:
        """All files of the folder, as only the layout knows which it reads."""
        packed = self.place / "packed"
        return sorted(path for path in self.place.rglob("*") if path.is_file() and packed not in path.parents)


class JoinedFrames(VectorSource):
    """Frames of merged videos from their pieces, listed in the file `table`; videos that the source has stay whole."""

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

    def __contains__(self, name: str) -> bool:
        return all(piece in self._source for piece in self._of(name))

    def count(self, name: str) -> int:
        """Number of frames of all pieces."""
        return sum(self._source.count(piece) for piece in self._of(name))

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """The frames of all pieces, one after the other."""
        return np.concatenate([self._source.read(piece) for piece in self._of(name)])

    def files(self, names: list[str]) -> list[Path]:
        """The files of all pieces, and the one that says which they are."""
        return [self._table, *self._source.files([piece for name in names for piece in self._of(name)])]

    def _of(self, name: str) -> list[str]:
        return [name] if name in self._source else self._pieces.get(name, [name])


def iter_datasets(group: Any) -> Any:
    """The data sets below a group of an HDF5 file, groups within it included."""
    for item in group.values():
        if isinstance(item, h5py.Dataset):
            yield item
        elif isinstance(item, h5py.Group):
            yield from iter_datasets(item)


def read_pieces(path: Path) -> dict[str, list[str]]:
    """Return the pieces of each merged video; raises FeatureError if the file is damaged."""
    pieces = read_json(path)
    if not isinstance(pieces, dict) or not all(isinstance(own, list) and own for own in pieces.values()):
        raise FeatureError(f"{path}: wanted {{video: [piece, ...]}}; run untrimmed data prepare again")
    return pieces


def _load_numpy(path: Path) -> np.ndarray:
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            names = loaded.files
            chosen = next((n for n in ("frames", "words") if n in names), names[0] if len(names) == 1 else None)
            if chosen is not None:
                return loaded[chosen]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FeatureError(f"{path}: cannot be read as numpy ({one_line(error)}); write it again") from error
    raise FeatureError(f"{path}: arrays {', '.join(names)}, wanted one, or one called 'frames' or 'words'; rename it")


def _absent(place: Path, name: str) -> str:
    return f"{place}: no entry {name!r}; extract its features, or remove its captions"
