"""Read tables of vectors by name from an HDF5 file, without following links to other files."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from untrimmed.data.sources import TableSource
from untrimmed.errors import FeatureError, one_line

_MAX_LINKS = 16  # largest number of soft links to follow to a data set


class Hdf5Vectors(TableSource):
    """An HDF5 file with one data set per name."""

    def __init__(self, path: Path):
        with ExitStack() as closed_on_errors:
            try:
                self._file = closed_on_errors.enter_context(h5py.File(path, "r"))
                first = _first_dataset(path, self._file)
            except FeatureError:
                raise
            except (OSError, RuntimeError, KeyError, ValueError) as error:
                what = f"cannot be read as HDF5 ({one_line(error)})"
                raise FeatureError(f"{path}: {what}; write or copy it again") from error
            if first is None:
                raise FeatureError(f"{path}: contains no data set; write it again")
            super().__init__(path, first.name.removeprefix("/"), first)
            closed_on_errors.pop_all()

    def files(self, names: list[str]) -> list[Path]:
        """Return the path of the HDF5 file, in a list."""
        return [self.place]

    def _entry(self, name: str) -> Any:
        try:
            item = _find(self.place, self._file, name, _MAX_LINKS)
        except FeatureError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            what = f"entry {name!r} cannot be read ({one_line(error)})"
            raise FeatureError(f"{self.place}: {what}; the file is damaged, write or copy it again") from error
        return item if isinstance(item, h5py.Dataset) else None


class JSGFrames(Hdf5Vectors):
    """Frames in an HDF5 file of JSG's release. The released program averages these frames in float32."""

    averages_in = "float32"


class FeatureFolderFrames(Hdf5Vectors):
    """Frames in an HDF5 file in `FeatureData/<name>/`.

    Holmes and DreamPRVR average these frames in the number format of the file.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        first = self._entry(self._first)
        self.averages_in = "float64" if first is not None and first.dtype == np.float64 else "float32"


def _first_dataset(path: Path, file: Any) -> Any:
    """Return the first data set of a file, or None. Nested groups are searched, too.

    Each group is visited only once, because links may form a loop.
    """
    waiting = [file]
    visited = set()
    while waiting:
        group = waiting.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in visited:
            continue
        visited.add(address)
        groups = []
        for name in group:
            item = _item(path, group, name, _MAX_LINKS)
            if isinstance(item, h5py.Dataset):
                return item
            if isinstance(item, h5py.Group):
                groups.append(item)
        waiting += reversed(groups)
    return None


def _find(path: Path, group: Any, name: str, links: int) -> Any:
    """Return the data set or group at a path relative to `group`, or None. At most `links` soft links are followed."""
    item = group
    for part in filter(None, name.split("/")):
        if not isinstance(item, h5py.Group):
            return None
        item = _item(path, item, part, links)
    return item


def _item(path: Path, group: Any, name: str, links: int) -> Any:
    """Return an item of a group, or None; raises FeatureError for links that loop or lead to other files."""
    link = group.get(name, getlink=True)
    if link is None:
        return None
    if isinstance(link, h5py.ExternalLink):
        raise FeatureError(_elsewhere(path, name, f"is a link to the file {link.filename!r}"))
    if isinstance(link, h5py.SoftLink):
        if links == 0:
            raise FeatureError(_elsewhere(path, name, f"is a link to {link.path!r}, and so on in a loop"))
        return _find(path, group.file if link.path.startswith("/") else group, link.path, links - 1)
    item = group.get(name)
    if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
        raise FeatureError(_elsewhere(path, name, "is stored in another file"))
    return item


def _elsewhere(path: Path, name: str, what: str) -> str:
    return f"{path}: {name!r} {what}, expected a data set in this file; copy the data into it (h5repack, h5copy)"
