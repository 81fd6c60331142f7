"""Layouts of data sets from outside this package: a class that is registered says where captions and features are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from untrimmed.data.annotations import Annotation
from untrimmed.errors import ConfigError, FeatureError, UntrimmedError, one_line
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


T = TypeVar("T")
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
    known = (_Checked(name, layout) for name, layout in _LAYOUTS.items())
    return next((layout for layout in known if layout.recognises(folder)), None)


class _Checked:
    """A layout whose errors, and answers of the wrong kind, are told in one line."""

    def __init__(self, name: str, layout: OutsideLayout):
        self._name, self._layout = name, layout

    def recognises(self, folder: Path) -> bool:
        return bool(self._asked("recognises", lambda: self._layout.recognises(folder)))

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        captions = self._asked("captions", lambda: list(self._layout.captions(folder, split)))
        wrong = next((caption for caption in captions if not isinstance(caption, Annotation)), None)
        if wrong is not None:
            raise FeatureError(self._wrong("captions", f"holds a {type(wrong).__name__}, wanted Annotations"))
        return captions

    def frames(self, folder: Path) -> Mapping[str, Any]:
        return self._tables("frames", lambda: self._layout.frames(folder))

    def words(self, folder: Path) -> Mapping[str, Any]:
        return self._tables("words", lambda: self._layout.words(folder))

    def _tables(self, what: str, ask: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        tables = self._asked(what, ask)
        if not hasattr(tables, "items") or not hasattr(tables, "get"):  # an open HDF5 file has both
            raise FeatureError(self._wrong(what, f"gave a {type(tables).__name__}, wanted a mapping of arrays by id"))
        return tables

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except UntrimmedError:
            raise
        except Exception as error:
            raise FeatureError(self._wrong(what, f"{type(error).__name__}: {one_line(error)}")) from error

    def _wrong(self, what: str, found: str) -> str:
        return f"layout {self._name!r}, {what}: {found}; correct it"
