"""A library in several shards, each a process with a part of the videos. Results are those of a single process.

A shard reads its videos from the cached blocks on disk or from the table, at the version of the search, so a restarted
process loses nothing. The caller combines the results of all shards. This module does not depend on how shards are
reached.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from untrimmed.errors import UntrimmedError
from untrimmed.search.cache.mapped import without_damaged
from untrimmed.search.corpora.corpus import Corpus, Doubt, LocalCorpus, PreparedQuery
from untrimmed.search.corpora.engine import Engine, InUse, View, read_cache
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.store.records import Records, library_folder
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import Moment, TextFeatures

_VERSIONS = 2  # in the memory of a shard: running searches continue with the previous version


def shard_of(video_id: str, shards: int) -> int:
    """Return the number of the shard that has a video."""
    return zlib.crc32(video_id.encode()) % shards


@dataclass(frozen=True)
class Version:
    """One version of a library and the model that searches it: shared by all shards of one answer."""

    number: int  # of the table
    commit: tuple[Any, ...]  # numbers start again if a library is deleted and made again
    encoder: str
    model: InUse


Call = Callable[[PreparedQuery], Any]  # `operator.methodcaller`, which can be sent to other processes
Extents = Mapping[int, Any]  # the results of `Shard.extent`, by number


@dataclass
class _Loaded:
    records: Records
    corpus: LocalCorpus[Any]
    fitted: tuple[frozenset[int], Corpus] | None = None  # for the shards that answered before the last search

    def beside(self, others: Extents) -> Corpus:
        """Return the corpus as one shard of this version."""
        if self.fitted is None or self.fitted[0] != others.keys():
            self.fitted = frozenset(others), self.corpus.beside(list(others.values()))
        return self.fitted[1]


class Shard:
    """The videos of one shard in memory. Thread-safe; each call names its version."""

    def __init__(self, library: Path | str, number: int, shards: int):
        """`library`: its folder, or its address on object storage."""
        self._folder = library_folder(library)
        self._number = number
        self._shards = shards
        self._lock = threading.Lock()
        self._loaded: dict[Version, _Loaded] = {}  # the newest first
        self._damaged: set[Path] = set()  # cached files that are not read again

    def extent(self, version: Version) -> Any:
        """Load a version, reading only changes; return the summary that the other shards need."""
        return without_damaged(lambda: self._load(version).corpus.extent(), self._forget)

    def ask(self, version: Version, others: Extents, query: TextFeatures, calls: Sequence[Call]) -> list[Any]:
        """Return the results of methods of `PreparedQuery` for this shard's videos."""

        def results() -> list[Any]:
            prepared = self._load(version).beside(others).prepare(query)
            return [call(prepared) for call in calls]

        return without_damaged(results, self._forget)

    def _forget(self, damaged: Path) -> None:
        """Read the videos of a damaged file from the table from now on."""
        with self._lock:
            if damaged not in self._damaged:
                self._damaged.add(damaged)
                self._loaded = {}

    def _load(self, version: Version) -> _Loaded:
        if (loaded := self._loaded.get(version)) is not None:  # without the lock: another version may be loading
            return loaded
        with self._lock:
            if (loaded := self._loaded.get(version)) is not None:  # another thread has loaded it meanwhile
                return loaded
            index = VideoIndex(self._folder, version=version.number)
            records = Records(r for r in index.scan() if shard_of(r.video_id, self._shards) == self._number)
            for loaded_version, loaded in self._loaded.items():
                if (loaded_version.encoder, loaded_version.model) == (version.encoder, version.model):
                    corpus = loaded.corpus
                    old_records = loaded.records
                    break
            else:
                corpus, old_records = read_cache(self._folder, version.model, records, self._damaged)
            added, removed = records.changes_since(old_records)
            corpus = corpus.update(index.read(added) if added else (), removed)  # other shards' videos are dropped
            loaded = _Loaded(records, corpus)
            self._loaded = dict([(version, loaded), *self._loaded.items()][:_VERSIONS])
            return loaded


@runtime_checkable
class Shards(Protocol):
    """Access to the shards of a library."""

    number: int  # of shards

    def ask(self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False) -> dict[int, Any]:
        """Call a method of several shards, with arguments for each; return the results of the shards that answer.

        With `patient`, wait until all videos are read, and call each replica of a shard.
        """
        ...


class ShardedEngine(Engine):
    """An engine that reads records here and searches videos in shards."""

    def __init__(self, folder: Path, shards: Shards):
        super().__init__(folder)
        self._shards = shards
        self._extents: dict[tuple[Version, int], Any] = {}

    def load(self, view: View, model: InUse) -> ShardedCorpus:
        """Load a version in all shards.

        Raises: UntrimmedError if no shard has answered.
        """
        version = Version(view.index.version(), tuple(view.commit or ()), view.encoder, model)
        with self._lock:
            self._extents = {key: extent for key, extent in self._extents.items() if key[0] == version}
            missing = [n for n in range(self._shards.number) if (version, n) not in self._extents]
            if missing:
                loaded = self._shards.ask("extent", dict.fromkeys(missing, (version,)), patient=True)
                self._extents.update({(version, number): extent for number, extent in loaded.items()})
            extents = {number: extent for (_, number), extent in self._extents.items()}
        return ShardedCorpus(self._shards, version, extents, len(view.records))


@dataclass(frozen=True, eq=False)
class ShardedCorpus(Corpus):
    """All videos of a library; those of a shard that does not answer are missing."""

    shards: Shards
    version: Version
    extents: Extents
    num_videos: int

    def __len__(self) -> int:
        return self.num_videos

    def prepare(self, query: TextFeatures) -> ShardedQuery:
        """Return the query; each shard prepares it with its model."""
        return ShardedQuery(self, query)


class ShardedQuery(PreparedQuery):
    """A query for all shards of one version."""

    def __init__(self, corpus: ShardedCorpus, query: TextFeatures):
        self._corpus = corpus
        self._query = query
        self._ranked: list[str] = []
        self._moments: dict[int, dict[str, list[Moment]]] = {}
        self._missing: set[int] = set()
        self._alive: set[int] = set()  # shards that answered their last call

    @property
    def missing(self) -> str:
        """A warning if the answers so far are incomplete."""
        if not self._missing:
            return ""
        return f"partial: {len(self._missing)} of {self._corpus.shards.number} shards of the library did not answer"

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the best videos of all shards, see `PreparedQuery.rank`.

        Raises: UntrimmedError if no shard has answered.
        """
        shards = range(self._corpus.shards.number)
        groups = dict.fromkeys(shards) if among is None else self._by_shard(among)
        answers = self._ask({n: [methodcaller("rank", limit=limit, among=ids)] for n, ids in groups.items()})
        videos = sorted((video for (ranked,) in answers.values() for video in ranked), key=lambda video: -video.score)
        best = [video for video in videos if video.score >= videos[min(limit, len(videos)) - 1].score]
        self._ranked = [video.video_id for video in best]
        return best

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Return spans of one video; empty if its shard has died. The first call fetches those of all ranked videos."""
        spans = self._moments.setdefault(limit, {})
        if video_id not in spans:
            groups = self._by_shard({*self._ranked, video_id})
            calls = {n: [methodcaller("moments", name, limit=limit) for name in ids] for n, ids in groups.items()}
            for number, answer in self._ask(calls).items():
                spans.update(zip(groups[number], answer, strict=True))
        return spans.get(video_id, [])

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times and relevance of one video, see `PreparedQuery.relevance`.

        Raises: UntrimmedError if its shard has died meanwhile.
        """
        number = shard_of(video_id, self._corpus.shards.number)
        answers = self._ask({number: [methodcaller("relevance", video_id)]})
        if number not in answers:
            raise UntrimmedError(f"{video_id}: its shard did not answer; check that the cluster has enough cores")
        answer: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]] = answers[number][0]
        return answer

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Return those of the model; None if the shard has died meanwhile."""
        return self._explained[0]

    def doubt(self) -> Doubt | None:
        """Return that of the model; None if the shard has died meanwhile."""
        return self._explained[1]

    @cached_property
    def _explained(self) -> tuple[Float[np.ndarray, " N"] | None, Doubt | None]:
        number = min(self._alive or self._corpus.extents)
        answers = self._call({number: [methodcaller("word_weights"), methodcaller("doubt")]})
        weights, doubt = answers.get(number, (None, None))
        return weights, doubt

    def _by_shard(self, video_ids: Collection[str]) -> dict[int, list[str]]:
        groups: dict[int, list[str]] = {}
        for video_id in video_ids:
            groups.setdefault(shard_of(video_id, self._corpus.shards.number), []).append(video_id)
        return groups

    def _call(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Any]]:
        """Return the answers of the shards that answer."""
        corpus = self._corpus
        arguments: dict[int, tuple[Any, ...]] = {}
        for number, methods in calls.items():
            others = {n: extent for n, extent in corpus.extents.items() if n != number}
            arguments[number] = corpus.version, others, self._query, methods
        return corpus.shards.ask("ask", arguments)

    def _ask(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Any]]:
        """Return the answers, and note the shards that do not answer."""
        answers = self._call(calls)
        silent = calls.keys() - answers.keys()
        self._missing |= silent
        self._alive = (self._alive | answers.keys()) - silent
        if calls and not self._alive:
            raise UntrimmedError(f"none of {len(calls)} shards answered; check that the cluster has enough cores")
        return answers
