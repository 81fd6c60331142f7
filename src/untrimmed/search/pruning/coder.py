"""Read the quantized codes of blocks from disk. If there are none, build them in a background thread.

Building the codes of a video takes as long as comparing it with dozens of queries. So missing codes are built only from
the third search on, and no search waits for them: until codes are ready, searches read the vectors themselves.
"""

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

from untrimmed.search.cache.block_cache import CodeFiles
from untrimmed.search.cache.blocks import Block, Blocks
from untrimmed.search.cache.mapped import DamagedError, MappedArrays
from untrimmed.search.pruning.codes import FITTED_TO, Axes, CodedBlocks, CodedVideos

LEAST_SEARCHES = 2  # number of searches before codes are built
_MAX_CANDIDATES = 0.5  # if a larger share of videos remains after pruning, codes save no time
_TRIAL_INTERVAL = 32  # if codes save no time, they are tried again in every 32nd search
_FORMAT = 5  # version of the format; codes of another version are built again

Arrays = Mapping[str, np.ndarray]
Codes = dict[str, CodedVideos]  # codes of one block, by branch
B = TypeVar("B", bound=Block)


class Coder(Generic[B]):
    """Holds the codes of blocks and their `Axes`. All versions of a corpus share one coder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._axes: dict[str, Axes] = {}
        self._axes_read: dict[Path, dict[str, Axes]] = {}
        self._files: WeakKeyDictionary[B, tuple[CodeFiles, str]] = WeakKeyDictionary()
        self._codes: WeakKeyDictionary[B, Codes] = WeakKeyDictionary()
        self._coded_blocks: WeakKeyDictionary[Blocks[Any], dict[str, CodedBlocks]] = WeakKeyDictionary()
        self._searches = 0
        self._candidates = 0.0  # moving average of the share of videos that remained after pruning
        self._builder: threading.Thread | None = None

    def add_files(self, block: B, files: CodeFiles, context: str = "") -> None:
        """Register the files of a block's codes. If they were built with another `context`, they are not used."""
        self._files[block] = files, context

    def request(self, blocks: Sequence[B], build: Callable[[B], Codes], *, many: bool = False) -> bool:
        """Record a search, and return whether it should use codes. After a few searches, start to build missing codes.

        `many` is whether the search ranks many videos. If so, even the first search uses codes that are on disk. If
        not, codes are used only after a few searches. If codes prune too few videos, only every `_TRIAL_INTERVAL`-th
        search uses them.

        Raises:
            DamagedError: A file is damaged.
        """
        with self._lock:
            self._searches += 1
            is_frequent = self._searches > LEAST_SEARCHES
            if not ((is_frequent or many) and can_scan()):
                return False
            for block in blocks:
                if block not in self._codes and (codes := self._read_codes(block)) is not None:
                    self._codes[block] = codes
            missing = [block for block in blocks if block not in self._codes]
            is_idle = self._builder is None or not self._builder.is_alive()
            if missing and is_idle and is_frequent:
                self._builder = threading.Thread(target=self._build, args=(missing, build), name="codes", daemon=True)
                _builders.add(self._builder)
                self._builder.start()
            return not missing and (self._candidates < _MAX_CANDIDATES or self._searches % _TRIAL_INTERVAL == 0)

    def build_missing(self, blocks: Sequence[B], build: Callable[[B], Codes]) -> Iterator[tuple[B, Arrays, Arrays]]:
        """Build the codes that are missing on disk. Yield each block without codes, with its new codes and axes.

        Raises:
            DamagedError: A file is damaged.
        """
        for block in blocks:
            if can_scan() and self._arrays_of(block) is None:
                codes = build(block)
                yield block, arrays_of(codes, self._files.get(block, (None, ""))[1]), self._axes_arrays()

    def record_candidates(self, share: float) -> None:
        """Record the share of videos that needed exact scores in a search with codes."""
        with self._lock:
            self._candidates += (share - self._candidates) / 4

    def coded_blocks(self, blocks: Blocks[B]) -> dict[str, CodedBlocks]:
        """Return the codes of all blocks by branch. The codes of every block must be in memory."""
        if (coded := self._coded_blocks.get(blocks)) is None:
            codes = [self._codes[part.block] for part in blocks.parts]
            coded = {branch: CodedBlocks([block_codes[branch] for block_codes in codes]) for branch in codes[0]}
            self._coded_blocks[blocks] = coded
        return coded

    def axes(self, branch: str, vectors: Float[np.ndarray, "R D"]) -> Axes:
        """Return the axes of a branch on disk, or if there are none, new axes that are fitted to these vectors."""
        if _process_ends.is_set():
            raise _ProcessEndsError
        for files, _ in [*self._files.values()]:
            if not self._axes and files.axes is not None:
                with contextlib.suppress(DamagedError):  # if the file is damaged, new axes are fitted below
                    self._axes = dict(self._axes_at(files.axes))
        if branch not in self._axes:
            self._axes[branch] = Axes.of(vectors[np.isfinite(vectors).all(axis=1)][:FITTED_TO], len(self._axes))
        return self._axes[branch]

    def wait(self) -> None:
        """Wait until the background thread has built the codes."""
        if self._builder is not None:
            self._builder.join()

    def _build(self, blocks: Sequence[B], build: Callable[[B], Codes]) -> None:
        if sys.platform == "linux":  # lower this thread's priority; only Linux supports this
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        with contextlib.suppress(_ProcessEndsError):
            for block in blocks:
                codes = build(block)
                with self._lock:
                    self._codes[block] = codes

    def _axes_arrays(self) -> Arrays:
        arrays = {f"{branch}/matrix": axes.matrix for branch, axes in self._axes.items()}
        return {"format": np.array(_FORMAT), "branches": np.array([*self._axes], dtype=str), **arrays}

    def _axes_at(self, path: Path) -> dict[str, Axes]:
        """Return the axes in a file by branch. The result is empty if the file has another format."""
        if path not in self._axes_read:
            arrays = MappedArrays(path)
            is_current = "format" in arrays and arrays["format"] == _FORMAT
            branches = arrays["branches"].tolist() if is_current else []
            self._axes_read[path] = {branch: Axes(arrays[f"{branch}/matrix"]) for branch in branches}
        return self._axes_read[path]

    def _arrays_of(self, block: B) -> tuple[MappedArrays, dict[str, Axes]] | None:
        """Return a block's codes on disk and their axes, or None if there are no valid codes."""
        files, context = self._files.get(block, (CodeFiles(), ""))
        if files.axes is None or files.codes is None or not (axes := self._axes_at(files.axes)):
            return None
        arrays = MappedArrays(files.codes)
        return (arrays, axes) if arrays["context"] == context else None

    def _read_codes(self, block: B) -> Codes | None:
        if (stored := self._arrays_of(block)) is None:
            return None
        arrays, axes = stored
        return {branch: _restored(arrays, branch, axes[branch]) for branch in arrays["branches"].tolist()}


_NAMES = [field.name for field in fields(CodedVideos) if field.name != "axes"]


def arrays_of(codes: Codes, context: str) -> Arrays:
    """Return a block's codes as plain arrays by name. They include the `context` for which the codes are valid."""
    values = {f"{branch}/{name}": getattr(coded, name) for branch, coded in codes.items() for name in _NAMES}
    return {"context": np.array(context), "branches": np.array([*codes], dtype=str)} | values


def _restored(arrays: Mapping[str, np.ndarray], branch: str, axes: Axes) -> CodedVideos:
    values: dict[str, Any] = {name: arrays[f"{branch}/{name}"] for name in _NAMES}
    return CodedVideos(axes=axes, **values | {"longest": float(values["longest"])})


class _ProcessEndsError(Exception):
    """Raised in the background thread when the process ends, because codes are no longer needed."""


_process_ends = threading.Event()
_builders: WeakSet[threading.Thread] = WeakSet()


def _end() -> None:
    """Stop the threads. Otherwise torch would abort the process if it exits while a thread runs torch code."""
    _process_ends.set()
    for builder in [*_builders]:
        builder.join()


atexit.register(_end)


def can_scan() -> bool:
    """Return whether codes can be scanned, which needs numba."""
    return find_spec("numba") is not None
