"""A library's videos in memory, kept up to date with its commits, and the hits among them; it knows no method."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from untrimmed.errors import (
    CheckpointError,
    ConfigError,
    EncoderError,
    IndexMismatchError,
    UnknownNameError,
    UntrimmedError,
    shown,
)
from untrimmed.search.cache.mapped import DamagedError
from untrimmed.search.cache.snapshot import LaidOut, ids_of, lay_out
from untrimmed.search.corpora import frames
from untrimmed.search.corpora.corpus import Corpus, LocalCorpus, SearchModel
from untrimmed.search.corpora.training_free import TRAINING_FREE
from untrimmed.search.store.bucket import name_of
from untrimmed.search.store.records import Records, absolute, newest_commit, read_copy, version_of
from untrimmed.search.store.table import VideoIndex

A = TypeVar("A")


@dataclass(frozen=True)
class InUse:
    """The model that searches a library: its identity, and the folder of one that was trained."""

    identity: str
    folder: str | None = None


FRAMES = InUse(frames.NAME)


@dataclass(frozen=True, eq=False)
class View:
    """One version of a library: all that it is asked comes from there, whatever is committed meanwhile."""

    engine: Engine
    folder: Path
    commit: list[Any] | None  # of that version, see `newest_commit`; numbers begin again where a library is made anew
    encoder: str  # the identity of the one that made its vectors
    model: InUse
    records: Records

    @cached_property
    def index(self) -> VideoIndex:
        """The table at that version; a search whose videos are laid out on disk opens none."""
        return _index_at(self.folder, self.commit)

    def frames(self) -> Corpus:
        """Frames, training-free: for pictures, and for sentences if the library uses no other model."""
        return self.engine.load(self, FRAMES)

    def corpus(self) -> Corpus:
        """The library's own model.

        Raises:
            CheckpointError: Its folder is gone or damaged.
            IndexMismatchError: The model there is not the library's.
        """
        return self.engine.load(self, self.model)

    def below(self, place: str | os.PathLike[str]) -> frozenset[str]:
        """The ids of the videos below a folder, or of that file.

        Raises:
            UnknownNameError: There is none.
        """
        path = absolute(place)
        found = frozenset(record.video_id for record in self.records.below(path))
        if not found:
            raise UnknownNameError(f"{shown(path)}: no video of {self.folder} lies there; see: untrimmed ls")
        return found


class Engine:
    """Loads what a search needs when it is first needed, and what commits have changed before the next search.

    Any number of threads may ask; while one loads, all others wait before they begin.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock = threading.RLock()  # of all below, and of reading the table
        self._view: View | None = None
        self._loaded: dict[tuple[str, InUse], tuple[LocalCorpus[Any], Records]] = {}  # by encoder and model
        self._damaged: set[Path] = set()  # blocks on disk that are not read again
        self._not_kept: set[InUse] = set()  # models, of whose corpora not all was on disk

    def view(self) -> View:
        """The library as it is now, with what has been committed by whichever process.

        Raises:
            UntrimmedError: There is no library, or nothing was indexed yet.
        """
        with self._lock:
            settings = VideoIndex(self._folder).settings
            commit = newest_commit(self._folder)
            model = InUse(settings.model, settings.model_folder) if settings else FRAMES
            if self._view is None or (commit, model) != (self._view.commit, self._view.model):
                copied = read_copy(self._folder, commit)
                records = Records(_index_at(self._folder, commit).scan() if copied is None else copied)
                if not records:
                    raise UntrimmedError(
                        f"{name_of(self._folder)}: nothing is indexed here yet; run: untrimmed index FOLDER"
                    )
                encoder = records[0].encoder_identity  # settings may be those of the next version already
                self._view = View(self, self._folder, commit, encoder, model, records)
                wanted = (encoder, FRAMES), (encoder, model)
                self._loaded = {used: held for used, held in self._loaded.items() if used in wanted}
            return self._view

    def answer(self, ask: Callable[[View], A]) -> A:
        """What is asked of the library as it is now.

        A version may be cleared away while it is read: then the next one is asked, from the start. What no version
        would answer, such as a wrong option, is not asked again. What turns out to be damaged of the blocks on disk is
        removed, and read from the table.
        """
        view = self.view()
        while True:
            try:
                return ask(view)
            except (ConfigError, EncoderError, UnknownNameError):
                raise
            except DamagedError as error:
                with self._lock:
                    if error.path not in self._damaged:
                        self._damaged.add(error.path)
                        self._loaded.clear()
                        with contextlib.suppress(OSError):
                            error.path.unlink()
            except UntrimmedError:
                before, view = view, self.view()
                if view is before:
                    raise

    def load(self, view: View, model: InUse) -> Corpus:
        """Return the videos of a version for a model.

        Of what is in memory, or else laid out on disk, only changes are read from the table.

        Raises:
            CheckpointError: The model's folder is gone or damaged.
            IndexMismatchError: The model there is not the library's.
        """
        with self._lock:
            used = view.encoder, model
            corpus, records = self._loaded.get(used) or on_disk(self._folder, model, view.records, self._damaged)
            added, removed = view.records.changes_since(records)
            if added or removed:
                corpus = corpus.update(view.index.read(added), removed)
                self._not_kept.add(model)
            if view is self._view:  # an older one, of a search that began before, is not kept
                self._loaded[used] = corpus, view.records
            return corpus

    def keep(self) -> None:
        """Lay out on disk what the searches so far have read from the table, where that can be."""
        for model in self._not_kept:
            keep_laid_out(self._folder, model, codes=False)
        self._not_kept.clear()


def on_disk(
    folder: Path, model: InUse, records: Records, damaged: Iterable[Path] = ()
) -> tuple[LocalCorpus[Any], Records]:
    """Those of some videos that are laid out on disk, but for what is `damaged`, and their records.

    Raises:
        CheckpointError: The model's folder is gone or damaged.
        IndexMismatchError: The model there is not the library's.
    """
    corpus = empty_corpus(folder, model)
    blocks = list(LaidOut(folder, corpus.layout).read(records, damaged))
    return corpus.restored(blocks), Records(map(records.of, ids_of(blocks)))


def keep_laid_out(folder: Path, *models: InUse, codes: bool = True) -> None:
    """Lay out on disk what a library is searched by, or by these models, so that new processes have it at once.

    Codes take longer than all else: who waits does without. Where it cannot be done, nothing happens: searches say what
    is wrong, or do without it.
    """
    with contextlib.suppress(UntrimmedError):
        view = Engine(folder).view()
        for model in models or (view.model,):
            empty = empty_corpus(folder, model)
            lay_out(folder, empty, view.records, lambda ids: view.index.read(ids), codes=codes)


def _index_at(folder: Path, commit: list[Any] | None) -> VideoIndex:
    """The table as it was after a commit."""
    return VideoIndex(folder, follow=False, version=version_of(commit))


def empty_corpus(library: Path, model: InUse) -> LocalCorpus[Any]:
    """Return a corpus without videos for a library's model.

    Raises:
        CheckpointError: The model's folder is gone or damaged.
        IndexMismatchError: The model there is not the library's.
    """
    return model_in_use(library, model.identity, model.folder).corpus()


def model_in_use(library: Path, identity: str, folder: str | None) -> SearchModel:
    """Return the model that encodes and searches a library's videos.

    Raises:
        CheckpointError: Its folder is gone or damaged.
        IndexMismatchError: The model there is another one, or no such model is known.
    """
    if identity in TRAINING_FREE:
        return TRAINING_FREE[identity]()
    if folder is None:
        raise IndexMismatchError(
            f"{shown(library)}: is searched with model {identity}, which this version does not know; choose another "
            "with: untrimmed index --model frames"
        )
    from untrimmed.search.corpora.trained import TrainedModel

    try:
        model = TrainedModel(folder)
    except CheckpointError as error:
        raise CheckpointError(
            f"{shown(library)}: in use is model {identity}, and {str(error).partition('; ')[0]}; if it has moved: "
            "untrimmed index --model FOLDER, to search without it: untrimmed index --model none"
        ) from error
    if model.identity != identity:
        raise IndexMismatchError(
            f"{library}: in use is model {identity}, found {model.identity} in {model.folder}; restore it, or encode "
            f"the library again with: untrimmed index --model {model.folder}"
        )
    return model
