"""Codes of blocks: made by a thread of its own after some searches, or read from disk, and kept as long as the block.

To code a video takes as long as to compare it with dozens of queries. So who searches once or twice is better off
without codes, and no search waits for them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from jaxtyping import Float

from untrimmed.search.cache.blocks import Block, Blocks
from untrimmed.search.cache.mapped import DamagedError, MappedArrays
from untrimmed.search.cache.snapshot import CodeFiles
from untrimmed.search.pruning.codes import FITTED_TO, Axes, CodedBlocks, CodedVideos

LEAST_SEARCHES = 2
_MOST_LEFT = 0.5  # of all videos
_TRIED_EACH = 32  # searches
_FORMAT = 5  # counts changes in what codes mean; codes of another format are made anew

Arrays = Mapping[str, np.ndarray]
Codes = dict[str, CodedVideos]  # of one block, by branch
B = TypeVar("B", bound=Block)


class Coder(Generic[B]):
    """The codes of all blocks that a corpus has, or had before updates, with the axes that they share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._axes: dict[str, Axes] = {}
        self._axes_read: dict[Path, dict[str, Axes]] = {}
        self._files: WeakKeyDictionary[B, tuple[CodeFiles, str]] = WeakKeyDictionary()
        self._codes: WeakKeyDictionary[B, Codes] = WeakKeyDictionary()
        self._together: WeakKeyDictionary[Blocks[Any], dict[str, CodedBlocks]] = WeakKeyDictionary()
        self._searches = 0
        self._left = 0.0  # share of all videos that codes left undecided: a mean in which the last search counts most
        self._maker: threading.Thread | None = None

    def keep(self, block: B, files: CodeFiles, context: str = "") -> None:
        """Note where the codes of a block are on disk; codes made in another `context` do not count."""
        self._files[block] = files, context

    def ready(self, blocks: Sequence[B], make: Callable[[B], Codes], *, many: bool = False) -> bool:
        """Whether all blocks have codes that help; after a few searches missing ones begin to be made.

        Where codes leave most videos undecided they are tried in few searches only. Codes on disk are read at once
        where `many` videos are searched, otherwise after a few searches.

        Raises: DamagedError if a file is not as it was written.
        """
        with self._lock:
            self._searches += 1
            often = self._searches > LEAST_SEARCHES
            if not ((often or many) and can_scan()):
                return False
            for block in blocks:
                if block not in self._codes and (codes := self._read(block)) is not None:
                    self._codes[block] = codes
            missing = [block for block in blocks if block not in self._codes]
            idle = self._maker is None or not self._maker.is_alive()
            if missing and idle and often:
                self._maker = threading.Thread(target=self._make, args=(missing, make), name="codes", daemon=True)
                _makers.add(self._maker)
                self._maker.start()
            return not missing and (self._left < _MOST_LEFT or self._searches % _TRIED_EACH == 0)

    def missing(self, blocks: Sequence[B], make: Callable[[B], Codes]) -> Iterator[tuple[B, Arrays, Arrays]]:
        """Yield each block without codes on disk, with the arrays of its new codes and of the axes.

        Raises: DamagedError if a file is not as it was written.
        """
        for block in blocks:
            if can_scan() and self._arrays_of(block) is None:
                codes = make(block)
                yield block, arrays_of(codes, self._files.get(block, (None, ""))[1]), self._axes_arrays()

    def learn(self, share: float) -> None:
        """Remember which share of all videos the last search by codes had to look at besides."""
        with self._lock:
            self._left += (share - self._left) / 4

    def together(self, blocks: Blocks[B]) -> dict[str, CodedBlocks]:
        """Return the codes of all blocks by branch; only once they are ready."""
        if (together := self._together.get(blocks)) is None:
            each = [self._codes[part.block] for part in blocks.parts]
            together = {branch: CodedBlocks([codes[branch] for codes in each]) for branch in each[0]}
            self._together[blocks] = together
        return together

    def axes(self, branch: str, vectors: Float[np.ndarray, "R D"]) -> Axes:
        """Return the axes on disk, or else those that fit these vectors; to be called while codes are made."""
        if _ending.is_set():
            raise _EndingError
        for files, _ in [*self._files.values()]:
            if not self._axes and files.axes is not None:
                with contextlib.suppress(DamagedError):  # others do as well
                    self._axes = dict(self._axes_at(files.axes))
        if branch not in self._axes:
            self._axes[branch] = Axes.of(vectors[np.isfinite(vectors).all(axis=1)][:FITTED_TO], len(self._axes))
        return self._axes[branch]

    def wait(self) -> None:
        """Wait until codes that are being made are ready."""
        if self._maker is not None:
            self._maker.join()

    def _make(self, blocks: Sequence[B], make: Callable[[B], Codes]) -> None:
        if sys.platform == "linux":  # there alone threads have a priority of their own; searches come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        with contextlib.suppress(_EndingError):
            for block in blocks:
                codes = make(block)
                with self._lock:
                    self._codes[block] = codes

    def _axes_arrays(self) -> Arrays:
        arrays = {f"{branch}/matrix": axes.matrix for branch, axes in self._axes.items()}
        return {"format": np.array(_FORMAT), "branches": np.array([*self._axes], dtype=str), **arrays}

    def _axes_at(self, path: Path) -> dict[str, Axes]:
        """Return the axes in a file; none if they are of another format."""
        if path not in self._axes_read:
            arrays = MappedArrays(path)
            known = "format" in arrays and arrays["format"] == _FORMAT
            branches = arrays["branches"].tolist() if known else []
            self._axes_read[path] = {branch: Axes(arrays[f"{branch}/matrix"]) for branch in branches}
        return self._axes_read[path]

    def _arrays_of(self, block: B) -> tuple[MappedArrays, dict[str, Axes]] | None:
        """Return a block's codes on disk and their axes, unless there are none that count."""
        files, context = self._files.get(block, (CodeFiles(), ""))
        if files.axes is None or files.codes is None or not (axes := self._axes_at(files.axes)):
            return None
        arrays = MappedArrays(files.codes)
        return (arrays, axes) if arrays["context"] == context else None

    def _read(self, block: B) -> Codes | None:
        if (there := self._arrays_of(block)) is None:
            return None
        arrays, axes = there
        return {branch: _restored(arrays, branch, axes[branch]) for branch in arrays["branches"].tolist()}


_NAMES = [field.name for field in fields(CodedVideos) if field.name != "axes"]


def arrays_of(codes: Codes, context: str) -> Arrays:
    """Return the codes of a block as plain arrays; `context` is what they depend on besides the block."""
    values = {f"{branch}/{name}": getattr(coded, name) for branch, coded in codes.items() for name in _NAMES}
    return {"context": np.array(context), "branches": np.array([*codes], dtype=str)} | values


def _restored(arrays: Mapping[str, np.ndarray], branch: str, axes: Axes) -> CodedVideos:
    values: dict[str, Any] = {name: arrays[f"{branch}/{name}"] for name in _NAMES}
    return CodedVideos(axes=axes, **values | {"longest": float(values["longest"])})


class _EndingError(Exception):
    """Nobody needs the codes that are being made."""


_ending = threading.Event()
_makers: WeakSet[threading.Thread] = WeakSet()


def _end() -> None:
    """Let threads that make codes end: torch aborts a process that ends while another thread is in it."""
    _ending.set()
    for maker in [*_makers]:
        maker.join()


atexit.register(_end)


def can_scan() -> bool:
    """Whether numba is installed, which scans codes."""
    return find_spec("numba") is not None
