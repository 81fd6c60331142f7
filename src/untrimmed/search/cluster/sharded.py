"""Search a library in several shards. A shard is a process that holds a part of the videos.

`ShardedEngine` replaces `Engine`: its corpus sends each query to all shards and combines their results. The result is
the same as if one process had searched all videos. Each call names a version of the library, and the shard reads this
version from the cached blocks or from the table. So a shard can be restarted at any time. A `Shards` object, such as
`RayShards`, sends calls to the shards.
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
from untrimmed.search.cache.mapped import retry_if_damaged
from untrimmed.search.corpora.corpus import Corpus, LocalCorpus, PreparedQuery, Uncertainty
from untrimmed.search.corpora.engine import Engine, ModelReference, View, read_cache
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.store.records import Records, library_folder
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import Moment, TextFeatures

_VERSIONS = 2  # number of versions in memory, because running searches may use the previous one


def shard_of(video_id: str, shards: int) -> int:
    """Return the number of the shard that holds a video."""
    return zlib.crc32(video_id.encode()) % shards


@dataclass(frozen=True)
class Version:
    """One version of a library, and the model that searches it. All shards use the same version for a query."""

    number: int  # version number of the table
    commit: tuple[Any, ...]  # the commit's identity: version numbers repeat if a library is deleted and indexed again
    encoder: str
    model: ModelReference


Call = Callable[[PreparedQuery], Any]  # a `methodcaller`, because it can be sent to other processes
Summaries = Mapping[int, Any]  # results of `Shard.load`, by number of the shard


@dataclass
class _LoadedShard:
    records: Records
    corpus: LocalCorpus[Any]
    # the numbers of the other shards, and the corpus that `as_shard` returned for them
    fitted: tuple[frozenset[int], Corpus] | None = None

    def as_shard(self, others: Summaries) -> Corpus:
        """Return this shard's corpus. Its scores equal those that a single corpus of all shards' videos would give."""
        if self.fitted is None or self.fitted[0] != others.keys():
            self.fitted = frozenset(others), self.corpus.as_shard(list(others.values()))
        return self.fitted[1]


class Shard:
    """The videos of one shard in memory. Each call names a version of the library. It is thread-safe."""

    def __init__(self, library: Path | str, number: int, shards: int):
        """Create shard `number` of `shards`. `library` is a folder, or an address on object storage."""
        self._folder = library_folder(library)
        self._number = number
        self._shards = shards
        self._lock = threading.Lock()
        self._loaded: dict[Version, _LoadedShard] = {}  # newest version first
        self._damaged: set[Path] = set()  # cached files that are not read again

    def load(self, version: Version) -> Any:
        """Load a version, and return its `LocalCorpus.shard_summary`, which the other shards need.

        Only changes since the previous version are read.
        """
        return retry_if_damaged(lambda: self._load(version).corpus.shard_summary(), self._discard)

    def run_query(self, version: Version, others: Summaries, query: TextFeatures, calls: Sequence[Call]) -> list[Any]:
        """Call methods of the `PreparedQuery` for this shard's videos, and return their results."""

        def results() -> list[Any]:
            prepared = self._load(version).as_shard(others).prepare(query)
            return [call(prepared) for call in calls]

        return retry_if_damaged(results, self._discard)

    def _discard(self, damaged: Path) -> None:
        """Remember a damaged cache file, so that its videos are read from the table."""
        with self._lock:
            if damaged not in self._damaged:
                self._damaged.add(damaged)
                self._loaded = {}

    def _load(self, version: Version) -> _LoadedShard:
        # without the lock, which another thread may hold for a long time while it loads another version
        if (loaded := self._loaded.get(version)) is not None:
            return loaded
        with self._lock:
            if (loaded := self._loaded.get(version)) is not None:  # another thread has loaded it
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
            corpus = corpus.update(index.read(added) if added else (), removed)  # remove other shards' videos
            loaded = _LoadedShard(records, corpus)
            self._loaded = dict([(version, loaded), *self._loaded.items()][:_VERSIONS])
            return loaded


@runtime_checkable
class Shards(Protocol):
    """The shards of a library, in other processes or in this one."""

    number: int  # number of shards

    def call(self, method: str, calls: Mapping[int, tuple[Any, ...]], *, wait_for_load: bool = False) -> dict[int, Any]:
        """Call a method of several shards, and return the results that arrive in time, by shard number.

        `calls` contains the arguments for each shard. With `wait_for_load`, call all replicas of each shard, and wait
        until they have read their videos.
        """
        ...


class ShardedEngine(Engine):
    """An engine whose corpora are in shards. This process holds only the records."""

    def __init__(self, folder: Path, shards: Shards):
        super().__init__(folder)
        self._shards = shards
        self._summaries: dict[tuple[Version, int], Any] = {}

    def load(self, view: View, model: ModelReference) -> ShardedCorpus:
        """Load a version in all shards and return its corpus. Raises UntrimmedError if no shard answers."""
        version = Version(view.index.version(), tuple(view.commit or ()), view.encoder, model)
        with self._lock:
            self._summaries = {key: summary for key, summary in self._summaries.items() if key[0] == version}
            missing = [n for n in range(self._shards.number) if (version, n) not in self._summaries]
            if missing:
                loaded = self._shards.call("load", dict.fromkeys(missing, (version,)), wait_for_load=True)
                self._summaries.update({(version, number): summary for number, summary in loaded.items()})
            summaries = {number: summary for (_, number), summary in self._summaries.items()}
        return ShardedCorpus(self._shards, version, summaries, len(view.records))


@dataclass(frozen=True, eq=False)
class ShardedCorpus(Corpus):
    """The videos of all shards that have loaded this version."""

    shards: Shards
    version: Version
    summaries: Summaries
    num_videos: int

    def __len__(self) -> int:
        return self.num_videos

    def prepare(self, query: TextFeatures) -> ShardedQuery:
        """Return a query for all shards. Each shard encodes the query for its own corpus."""
        return ShardedQuery(self, query)


class ShardedQuery(PreparedQuery):
    """A query that is answered by all shards of a `ShardedCorpus`."""

    def __init__(self, corpus: ShardedCorpus, query: TextFeatures):
        self._corpus = corpus
        self._query = query
        self._ranked: list[str] = []
        # arguments of `moments` -> video id -> moments
        self._moments: dict[tuple[Any, ...], dict[str, list[Moment]]] = {}
        self._missing: set[int] = set()
        self._alive: set[int] = set()  # shards that answered their last call

    @property
    def missing(self) -> str:
        """A warning if a shard did not answer, otherwise an empty text."""
        if not self._missing:
            return ""
        return f"partial: {len(self._missing)} of {self._corpus.shards.number} shards of the library did not answer"

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the best videos of all shards, see `PreparedQuery.rank`. Raises UntrimmedError if no shard answers."""
        shards = range(self._corpus.shards.number)
        groups = dict.fromkeys(shards) if among is None else self._by_shard(among)
        answers = self._tracked_call({n: [methodcaller("rank", limit=limit, among=ids)] for n, ids in groups.items()})
        videos = sorted((video for (ranked,) in answers.values() for video in ranked), key=lambda video: -video.score)
        best = [video for video in videos if video.score >= videos[min(limit, len(videos)) - 1].score]
        self._ranked = [video.video_id for video in best]
        return best

    def moments(self, video_id: str, *, limit: int | None, min_s: float = 0.0, nested: bool = False) -> list[Moment]:
        """Return spans of one video, best first, or no spans if its shard does not answer.

        The first call requests the moments of all ranked videos.
        """
        options = {"limit": limit, "min_s": min_s, "nested": nested}
        spans = self._moments.setdefault(tuple(options.values()), {})
        if video_id not in spans:
            groups = self._by_shard({*self._ranked, video_id})
            calls = {n: [methodcaller("moments", name, **options) for name in ids] for n, ids in groups.items()}
            for number, answer in self._tracked_call(calls).items():
                spans.update(zip(groups[number], answer, strict=True))
        return spans.get(video_id, [])

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the relevance at each time.

        Raises: UntrimmedError if the shard of the video does not answer.
        """
        answer: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]] = self._ask_shard("relevance", video_id)
        return answer

    def shot_starts_s(self, video_id: str) -> Float[np.ndarray, " S"] | None:
        """Return the times at which a video's shots begin, or None if the model does not detect shots.

        Raises: UntrimmedError if the shard of the video does not answer.
        """
        starts: Float[np.ndarray, " S"] | None = self._ask_shard("shot_starts_s", video_id)
        return starts

    def _ask_shard(self, method: str, video_id: str) -> Any:
        number = shard_of(video_id, self._corpus.shards.number)
        answers = self._tracked_call({number: [methodcaller(method, video_id)]})
        if number not in answers:
            raise UntrimmedError(f"{video_id}: its shard did not answer; check that the cluster has enough cores")
        return answers[number][0]

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Return the weights of the encoded words, or None if the model has no weights or no shard answers."""
        return self._weights_and_uncertainty[0]

    def uncertainty(self) -> Uncertainty | None:
        """Return the predicted ambiguity of the sentence, or None if there is no prediction or no shard answers."""
        return self._weights_and_uncertainty[1]

    @cached_property
    def _weights_and_uncertainty(self) -> tuple[Float[np.ndarray, " N"] | None, Uncertainty | None]:
        number = min(self._alive or self._corpus.summaries)
        answers = self._call({number: [methodcaller("word_weights"), methodcaller("uncertainty")]})
        weights, doubt = answers.get(number, (None, None))
        return weights, doubt

    def _by_shard(self, video_ids: Collection[str]) -> dict[int, list[str]]:
        groups: dict[int, list[str]] = {}
        for video_id in video_ids:
            groups.setdefault(shard_of(video_id, self._corpus.shards.number), []).append(video_id)
        return groups

    def _call(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Any]]:
        """Call methods of the query in shards, and return the results of the shards that answer, by shard number."""
        corpus = self._corpus
        arguments: dict[int, tuple[Any, ...]] = {}
        for number, methods in calls.items():
            others = {n: summary for n, summary in corpus.summaries.items() if n != number}
            arguments[number] = corpus.version, others, self._query, methods
        return corpus.shards.call("run_query", arguments)

    def _tracked_call(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Any]]:
        """Return the result of `_call`, and record which shards do not answer."""
        answers = self._call(calls)
        silent = calls.keys() - answers.keys()
        self._missing |= silent
        self._alive = (self._alive | answers.keys()) - silent
        if calls and not self._alive:
            raise UntrimmedError(f"none of {len(calls)} shards answered; check that the cluster has enough cores")
        return answers
