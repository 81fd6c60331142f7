"""Layouts of data sets from outside this package: a class that is registered says where captions and features are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from untrimmed.data.annotations import Annotation
from untrimmed.errors import ConfigError
from untrimmed.plugins import load_installed


@runtime_checkable
class OutsideLayout(Protocol):
    """How the files of a data set lie in its folder.

    Mappings hold arrays or the data sets of an open HDF5 file; they may read an entry when it is asked for. A change to
    any file in the folder makes packed features stale.
    """

    def recognises(self, folder: Path) -> bool:
        """Whether the folder is in this layout; asked before the layouts of this package are tried."""

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """The captions of train, val or test, in order; none where the data set has no such split."""

    def frames(self, folder: Path) -> Mapping[str, Any]:
        """Frame vectors [frames, width] by video id."""

    def words(self, folder: Path) -> Mapping[str, Any]:
        """Word vectors [words, width] by caption id."""


L = TypeVar("L", bound=type[OutsideLayout])
_LAYOUTS: dict[str, OutsideLayout] = {}


def register_layout(name: str) -> Callable[[L], L]:
    """Make a layout available; its class is made without arguments.

    Raises: ConfigError when the name is taken.
    """

    def add(cls: L) -> L:
        if name in _LAYOUTS:
            raise ConfigError(f"two layouts are named {name!r}; give yours another name")
        _LAYOUTS[name] = cls()
        return cls

    return add


def find_layout(folder: Path) -> OutsideLayout | None:
    """The registered layout that recognises the folder, None where only this package's may."""
    load_installed()
    return next((layout for layout in _LAYOUTS.values() if layout.recognises(folder)), None)
