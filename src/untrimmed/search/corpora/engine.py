"""The engine of a library. It holds the videos in memory, and reads new commits before each search.

`Engine.answer` calls a search with the current `View`, and `View.corpus` returns the corpus for the library's model.
Videos that are not in memory are read from cached blocks on disk. Only videos that have changed since the blocks were
written are read from the table.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from untrimmed.errors import (
    CheckpointError,
    ConfigError,
    EncoderError,
    IndexMismatchError,
    UnknownNameError,
    UntrimmedError,
    shown,
)
from untrimmed.moments import tf_prvr
from untrimmed.search.cache.block_cache import BlockCache, valid_ids
from untrimmed.search.cache.mapped import DamagedError, retry_if_damaged
from untrimmed.search.corpora import frames
from untrimmed.search.corpora.corpus import Corpus, LocalCorpus, SearchModel
from untrimmed.search.store.bucket import name_of
from untrimmed.search.store.records import (
    PASSAGES,
    Records,
    absolute,
    batched_by_size,
    newest_commit,
    read_records_copy,
    version_of,
)
from untrimmed.search.store.table import StoredVideo, VideoIndex

if TYPE_CHECKING:
    from untrimmed.passages.passage import TextMode
    from untrimmed.search.corpora.passages import PassageCorpus, PassagesView

A = TypeVar("A")
C = TypeVar("C", bound=LocalCorpus[Any])
_FRAMES_AT_A_TIME = 2**18  # while the cache is updated, about this many frames are in memory


def _tf_prvr_model() -> SearchModel:
    from untrimmed.search.corpora.tf_prvr import TFPRVRModel

    return TFPRVRModel()


TRAINING_FREE: Mapping[str, Callable[[], SearchModel]] = {
    frames.NAME: frames.FrameModel,
    tf_prvr.NAME: _tf_prvr_model,
}


@dataclass(frozen=True)
class ModelReference:
    """The identity of a search model, and its folder if it is a trained model."""

    identity: str
    folder: str | None = None


FRAMES = ModelReference(frames.NAME)


@dataclass(frozen=True, eq=False)
class View:
    """One version of a library. Later commits do not affect it."""

    engine: Engine
    folder: Path
    # see `newest_commit`; version numbers repeat if a library is deleted and indexed again
    commit: list[Any] | None
    encoder: str  # identity of the encoder of the stored vectors
    model: ModelReference
    records: Records
    passages_commit: list[Any] | None = None  # the last commit of the table of passages; None if there is no table

    @cached_property
    def passages(self) -> PassagesView | None:
        """The passages of the videos, or None if the library has none."""
        if self.passages_commit is None:
            return None
        from untrimmed.search.store.readings import read_readings_copy  # an import that most libraries do not need

        readings = read_readings_copy(self.folder, self.passages_commit)
        if readings is not None and not any(reading.num_passages for reading in readings):
            return None
        from untrimmed.search.corpora.passages import PassagesView
        from untrimmed.search.store.passages import PassageTable

        table = PassageTable(self.folder, follow=False, version=version_of(self.passages_commit))
        if readings is None:
            readings = table.readings()
        view = PassagesView(
            table,
            [reading for reading in readings if reading.num_passages],
            self.records,
            self.encoder,
            self.engine.load_passages,
        )
        return view if view.modes else None

    @cached_property
    def index(self) -> VideoIndex:
        """The table at this version. It is opened only when it is needed, for videos that are not cached."""
        return _index_at(self.folder, self.commit)

    def frames(self) -> Corpus:
        """Return the training-free corpus of frames."""
        return self.engine.load(self, FRAMES)

    def corpus(self) -> Corpus:
        """Return the corpus for the library's model. See `load_search_model` for errors."""
        return self.engine.load(self, self.model)

    def below(self, path: str | os.PathLike[str]) -> frozenset[str]:
        """Return the ids of the videos below a folder, or of one file. Raises UnknownNameError if there are none."""
        video_ids = frozenset(record.video_id for record in self.records.matching(path))
        if not video_ids:
            raise UnknownNameError(f"{shown(absolute(path))}: contains no video of {self.folder}; see: untrimmed ls")
        return video_ids


class Engine:
    """Loads a library's corpora on first use, and reads changes of the library before each search.

    It is thread-safe. While a thread loads a version, new searches wait.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock = threading.RLock()  # guards the attributes below and reading the table
        self._view: View | None = None
        # corpora in memory, by encoder and model
        self._loaded: dict[tuple[str, ModelReference], tuple[LocalCorpus[Any], Records]] = {}
        self._damaged: set[Path] = set()  # damaged cache files, which are not read again
        self._outdated: set[ModelReference] = set()  # models whose cache lacks videos
        # vectors of passages in memory, by encoder and mode
        self._passages: dict[tuple[str, TextMode], tuple[PassageCorpus, Records]] = {}
        self._passages_outdated = False  # whether the cache lacks passages

    def view(self) -> View:
        """Return the current version of the library, including commits of other processes.

        Raises:
            UntrimmedError: There is no library, or nothing was indexed yet.
        """
        with self._lock:
            settings = VideoIndex(self._folder).settings
            commit = newest_commit(self._folder)
            model = ModelReference(settings.model, settings.model_folder) if settings else FRAMES
            passages = newest_commit(self._folder, PASSAGES)
            previous = self._view
            if previous is None or (commit, model) != (previous.commit, previous.model):
                copied_records = read_records_copy(self._folder, commit)
                records = Records(_index_at(self._folder, commit).scan() if copied_records is None else copied_records)
                if not records:
                    raise UntrimmedError(
                        f"{name_of(self._folder)}: nothing is indexed here yet; run: untrimmed index FOLDER"
                    )
                encoder = records[0].encoder_identity  # the settings may already belong to the next version
                self._view = View(self, self._folder, commit, encoder, model, records, passages)
                current = (encoder, FRAMES), (encoder, model)
                self._loaded = {key: loaded for key, loaded in self._loaded.items() if key in current}
                self._passages = {key: loaded for key, loaded in self._passages.items() if key[0] == encoder}
            elif passages != previous.passages_commit:
                self._view = replace(previous, passages_commit=passages)
            assert self._view is not None, "it was set above"
            return self._view

    def answer(self, search: Callable[[View], A]) -> A:
        """Return the result of `search` for the current version of the library.

        If another process deletes this version during the search, `search` is called again with the next version. If
        `search` reads a damaged cache file, `search` is called again, and the file's videos are read from the table
        instead. Errors that would occur in any version, such as an invalid option, are raised at once.
        """
        view = self.view()
        while True:
            try:
                return retry_if_damaged(partial(search, view), self._discard)
            except (ConfigError, EncoderError, UnknownNameError):
                raise
            except UntrimmedError:
                previous = view
                view = self.view()
                if view is previous:
                    raise

    def load(self, view: View, model: ModelReference) -> Corpus:
        """Return the corpus of a version for a model. See `load_search_model` for errors.

        If an earlier corpus of the model is in memory, the result is an update of that corpus. Otherwise, it is an
        update of the cached blocks. Only new and changed videos are read from the table.
        """
        with self._lock:
            key = view.encoder, model
            corpus, records = self._loaded.get(key) or read_cache(self._folder, model, view.records, self._damaged)
            added, removed = view.records.changes_since(records)
            if added or removed:
                corpus = corpus.update(view.index.read(added), removed)
                self._outdated.add(model)
            # do not replace the current version by an older one that a long search still uses
            if view is self._view:
                self._loaded[key] = corpus, view.records
            return corpus

    def load_passages(self, view: PassagesView, mode: TextMode) -> PassageCorpus:
        """Return the vectors of the passages in one mode. They are loaded like videos in `load`."""
        from untrimmed.search.corpora.passages import PassageCorpus

        with self._lock:
            wanted = view.vector_records(mode)
            key = view.encoder, mode
            corpus, records = self._passages.get(key) or _read_blocks(
                self._folder, PassageCorpus(mode), wanted, self._damaged
            )
            added, removed = wanted.changes_since(records)
            if added or removed:
                corpus = corpus.update(view.read_vectors(added, mode), removed)
                self._passages_outdated = True
            if self._view is not None and self._view.passages is view:
                self._passages[key] = corpus, wanted
            return corpus

    def update_cache(self) -> None:
        """Cache the videos that searches had to read from the table, if possible."""
        for model in self._outdated:
            cache_library(self._folder, model, codes=False)
        if self._passages_outdated and not self._outdated:
            cache_passages(self._folder, codes=False)
        self._outdated.clear()
        self._passages_outdated = False

    def _discard(self, damaged: Path) -> None:
        with self._lock:
            if damaged not in self._damaged:
                self._damaged.add(damaged)
                self._loaded.clear()
                self._passages.clear()
                with contextlib.suppress(OSError):
                    damaged.unlink()


def read_cache(
    folder: Path, model: ModelReference, records: Records, damaged: Iterable[Path] = ()
) -> tuple[LocalCorpus[Any], Records]:
    """Return a corpus of the cached videos among `records`, and their records. See `load_search_model` for errors."""
    return _read_blocks(folder, _empty_corpus(folder, model), records, damaged)


def _read_blocks(folder: Path, empty: C, records: Records, damaged: Iterable[Path] = ()) -> tuple[C, Records]:
    blocks = list(BlockCache(folder, empty.block_format).read(records, damaged))
    return empty.from_cache(blocks), Records(map(records.of, valid_ids(blocks)))


def cache_library(folder: Path, *models: ModelReference, codes: bool = True) -> None:
    """Update the cache of a library for these models (by default the library's), so that new processes start fast.

    With `codes=False`, codes are not built; building them is the slowest step. Errors are ignored, because the next
    search reports them.
    """
    with contextlib.suppress(UntrimmedError):
        view = Engine(folder).view()
        for model in models or (view.model,):
            empty = _empty_corpus(folder, model)
            update_cache(folder, empty, view.records, lambda ids: view.index.read(ids), codes=codes)
    cache_passages(folder, codes=codes)


def cache_passages(folder: Path, *, codes: bool = True) -> None:
    """Update the cache of the vectors of passages, see `cache_library`."""
    if newest_commit(folder, PASSAGES) is None:
        return
    with contextlib.suppress(UntrimmedError):
        if (passages := Engine(folder).view().passages) is not None:
            from untrimmed.search.corpora.passages import PassageCorpus

            for mode in passages.modes:
                read = partial(passages.read_vectors, mode=mode)
                update_cache(folder, PassageCorpus(mode), passages.vector_records(mode), read, codes=codes)


def update_cache(
    library: Path,
    empty: LocalCorpus[Any],
    records: Records,
    read: Callable[[Sequence[str]], Iterable[StoredVideo]],
    *,
    codes: bool,
) -> None:
    """Update the cached blocks of a library, and with `codes` also build missing codes.

    `read` reads videos by their ids. It is called for batches, which limits memory. Damaged files are built again.
    """
    cache = BlockCache(library, empty.block_format)
    damaged: set[Path] = set()

    def update() -> None:
        blocks = list(cache.read(records, damaged))
        cached = set(valid_ids(blocks))
        new = [record for record in records if record.video_id not in cached]
        for batch in list(batched_by_size(new, lambda record: record.num_frames, _FRAMES_AT_A_TIME)) or [[]]:
            added = read([record.video_id for record in batch]) if batch else ()
            parts = empty.from_cache(blocks).update(added).blocks.parts
            if not cache.write((part.block.arrays for part in parts), records):
                return
            blocks = list(cache.read(records))
        if codes:
            cache.write_codes(empty.from_cache(blocks).missing_codes())

    def discard(path: Path) -> None:
        if path in damaged:
            raise DamagedError(path, "cannot be written again")
        damaged.add(path)

    with contextlib.suppress(DamagedError):
        retry_if_damaged(update, discard)


def _index_at(folder: Path, commit: list[Any] | None) -> VideoIndex:
    return VideoIndex(folder, follow=False, version=version_of(commit))


def _empty_corpus(library: Path, model: ModelReference) -> LocalCorpus[Any]:
    return load_search_model(library, model.identity, model.folder).corpus()


def training_free_model(model: str | os.PathLike[str] | None) -> SearchModel | None:
    """Return the training-free model with this name, or None if `model` is the folder of a trained model.

    None and "none" are other names for the model "frames".
    """
    if model is None:
        return frames.FrameModel()
    if Path(model).exists():
        return None
    name = os.fspath(model)
    create_model = TRAINING_FREE.get(frames.NAME if name == "none" else name)
    return create_model() if create_model else None


def load_search_model(library: Path, identity: str, folder: str | None) -> SearchModel:
    """Return the model that encodes and searches a library's videos.

    Raises:
        CheckpointError: The model's folder is missing or damaged.
        IndexMismatchError: The folder does not contain the model that the library uses, or this version of the package
            does not have the model.
    """
    if identity in TRAINING_FREE:
        return TRAINING_FREE[identity]()
    if folder is None:
        raise IndexMismatchError(
            f"{shown(library)}: uses model {identity}, which this version of untrimmed does not know; choose another "
            "with: untrimmed index --model frames"
        )
    from untrimmed.search.corpora.trained import TrainedModel

    try:
        model = TrainedModel(folder)
    except CheckpointError as error:
        raise CheckpointError(
            f"{shown(library)}: uses model {identity}, but {str(error).partition('; ')[0]}; if it has moved, "
            "run: untrimmed index --model FOLDER; to search without it, run: untrimmed index --model none"
        ) from error
    if model.identity != identity:
        raise IndexMismatchError(
            f"{library}: uses model {identity}, found {model.identity} in {model.folder}; restore it, or encode the "
            f"library again with: untrimmed index --model {model.folder}"
        )
    return model
