"""A library in several shards, each the videos of some ids in a process of its own; together they answer as one would.

A shard has its videos from the library's cached blocks, or from its table, at the version that a search is
of: it keeps no state that a new process would lack. Whoever asks all of them ranks what they give; how they are reached
is not known here.
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

_VERSIONS = 2  # in the memory of a shard: searches that have begun go on with the one before


def shard_of(video_id: str, shards: int) -> int:
    """Which of so many shards has a video."""
    return zlib.crc32(video_id.encode()) % shards


@dataclass(frozen=True)
class Version:
    """One version of a library, before one model: what all shards of an answer have in common."""

    number: int  # of the table
    commit: tuple[Any, ...]  # numbers begin again where a library is made anew
    encoder: str
    model: InUse


Call = Callable[[PreparedQuery], Any]  # `operator.methodcaller`, which other processes can be sent
Extents = Mapping[int, Any]  # what shards of one version say of themselves, by number


@dataclass
class _Held:
    version: Version
    records: Records
    corpus: LocalCorpus[Any]
    fitted: tuple[frozenset[int], Corpus] | None = None  # beside those that answered before the last search

    def beside(self, others: Extents) -> Corpus:
        """The corpus as one shard of this version."""
        fitted = self.fitted
        if fitted is None or fitted[0] != others.keys():
            self.fitted = fitted = frozenset(others), self.corpus.beside(list(others.values()))
        return fitted[1]


class Shard:
    """The videos of one shard in memory. Any number of threads may ask; each names the version it asks for."""

    def __init__(self, library: Path | str, number: int, shards: int):
        """`library`: its folder, or its address on object storage."""
        self._folder = library_folder(library)
        self._number, self._shards = number, shards
        self._lock = threading.Lock()
        self._held: list[_Held] = []
        self._damaged: set[Path] = set()  # cache files that are not read again

    def extent(self, version: Version) -> Any:
        """What the other shards need to know of this one; loads the version, of which only changes are read."""
        return without_damaged(lambda: self._load(version).corpus.extent(), self._forget)

    def ask(self, version: Version, others: Extents, query: TextFeatures, calls: Sequence[Call]) -> list[Any]:
        """Return what some methods of `PreparedQuery` return for this shard's videos."""

        def answers() -> list[Any]:
            prepared = self._load(version).beside(others).prepare(query)
            return [call(prepared) for call in calls]

        return without_damaged(answers, self._forget)

    def _forget(self, damaged: Path) -> None:
        """Read the videos of a damaged file from the table from now on."""
        with self._lock:
            if damaged not in self._damaged:
                self._damaged.add(damaged)
                self._held.clear()

    def _find(self, version: Version) -> _Held | None:
        return next((held for held in self._held if held.version == version), None)

    def _load(self, version: Version) -> _Held:
        if (known := self._find(version)) is not None:  # while another one is being read
            return known
        with self._lock:
            if (known := self._find(version)) is not None:  # somebody else has loaded it meanwhile
                return known
            used = version.encoder, version.model
            before = next((held for held in self._held if (held.version.encoder, held.version.model) == used), None)
            index = VideoIndex(self._folder, version=version.number)
            records = Records(r for r in index.scan() if shard_of(r.video_id, self._shards) == self._number)
            if before:
                corpus, had = before.corpus, before.records
            else:
                corpus, had = read_cache(self._folder, version.model, records, self._damaged)
            added, removed = records.changes_since(had)
            corpus = corpus.update(index.read(added) if added else (), removed)  # copies what blocks of others hold
            self._held = [_Held(version, records, corpus), *self._held[: _VERSIONS - 1]]
            return self._held[0]


@runtime_checkable
class Shards(Protocol):
    """How shards are reached, wherever they are."""

    @property
    def number(self) -> int:
        """How many there are."""
        ...

    def ask(self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False) -> dict[int, Any]:
        """Call a method of some shards, all at once, with arguments for each; gives the answers of those that answer.

        With `patient` there is time to read all videos, and each copy of a shard is asked.
        """
        ...


class ShardedEngine(Engine):
    """An engine whose corpora are shards elsewhere; records are here."""

    def __init__(self, folder: Path, shards: Shards):
        super().__init__(folder)
        self._shards = shards
        self._known: dict[tuple[Version, int], Any] = {}  # extents

    def load(self, view: View, model: InUse) -> ShardedCorpus:
        """The videos of a version for a model, loaded by all shards.

        Raises:
            UntrimmedError: No shard has answered.
        """
        version = Version(view.index.version(), tuple(view.commit or ()), view.encoder, model)
        with self._lock:
            self._known = {key: extent for key, extent in self._known.items() if key[0] == version}
            lacking = [n for n in range(self._shards.number) if (version, n) not in self._known]
            if lacking:
                found = self._shards.ask("extent", dict.fromkeys(lacking, (version,)), patient=True)
                self._known.update({(version, number): extent for number, extent in found.items()})
            extents = {number: extent for (_, number), extent in self._known.items()}
        return ShardedCorpus(self._shards, version, extents, len(view.records))


@dataclass(frozen=True, eq=False)
class ShardedCorpus(Corpus):
    """All videos of a library, wherever they are; a video of a shard that does not answer is missing."""

    shards: Shards
    version: Version
    extents: Extents
    num_videos: int

    def __len__(self) -> int:
        return self.num_videos

    def prepare(self, query: TextFeatures) -> ShardedQuery:
        """The query as it is: shards read it by their model."""
        return ShardedQuery(self, query)

    def others(self, own: int) -> dict[int, Any]:
        """What a shard needs to know of all others."""
        return {number: extent for number, extent in self.extents.items() if number != own}


class ShardedQuery(PreparedQuery):
    """A query before all shards of one version."""

    def __init__(self, corpus: ShardedCorpus, query: TextFeatures):
        self._corpus, self._query = corpus, query
        self._ranked: list[str] = []
        self._moments: dict[int, dict[str, list[Moment]]] = {}
        self._missing: set[int] = set()
        self._alive: set[int] = set()  # those that answered when they were last asked

    @property
    def missing(self) -> str:
        """What answers so far lack."""
        if not self._missing:
            return ""
        return f"partial: {len(self._missing)} of {self._corpus.shards.number} shards of the library did not answer"

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos of all shards, see `PreparedQuery.rank`.

        Raises:
            UntrimmedError: No shard has answered.
        """
        shards = self._corpus.shards.number
        asked: dict[int, list[str] | None] = dict.fromkeys(range(shards))
        if among is not None:
            asked = {}
            for video_id in among:
                own = asked.setdefault(shard_of(video_id, shards), [])
                assert own is not None, "made above"
                own.append(video_id)
        answers = self._ask({n: [methodcaller("rank", limit=limit, among=some)] for n, some in asked.items()})
        found = sorted((video for (ranked,) in answers.values() for video in ranked), key=lambda video: -video.score)
        kept = [video for video in found if video.score >= found[min(limit, len(found)) - 1].score]
        self._ranked = [video.video_id for video in kept]
        return kept

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Spans of one video, none where its shard has died since; all that were ranked are asked for at once."""
        found = self._moments.setdefault(limit, {})
        if video_id not in found:
            by_shard: dict[int, list[str]] = {}
            for wanted in {*self._ranked, video_id}:
                by_shard.setdefault(shard_of(wanted, self._corpus.shards.number), []).append(wanted)
            calls = {n: [methodcaller("moments", some, limit=limit) for some in ids] for n, ids in by_shard.items()}
            for number, answer in self._ask(calls).items():
                found.update(zip(by_shard[number], answer, strict=True))
        return found.get(video_id, [])

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times and fits of one video, see `PreparedQuery.relevance`.

        Raises:
            UntrimmedError: Its shard has died since.
        """
        number = shard_of(video_id, self._corpus.shards.number)
        answers = self._ask({number: [methodcaller("relevance", video_id)]})
        if number not in answers:
            raise UntrimmedError(f"{video_id}: its shard did not answer; see that the cluster has room for all")
        answer: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]] = answers[number][0]
        return answer

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Those of the model; none where the shard that is asked has died since."""
        return self._explained[0]

    def doubt(self) -> Doubt | None:
        """That of the model; none where the shard that is asked has died since."""
        return self._explained[1]

    @cached_property
    def _explained(self) -> tuple[Float[np.ndarray, " N"] | None, Doubt | None]:
        number = min(self._alive or self._corpus.extents)
        weights, doubt = self._try({number: [methodcaller("word_weights"), methodcaller("doubt")]}).get(
            number, (None, None)
        )
        return weights, doubt

    def _try(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Any]]:
        """Return the answers of those shards that answer."""
        corpus = self._corpus
        whole = {n: (corpus.version, corpus.others(n), self._query, own) for n, own in calls.items()}
        return corpus.shards.ask("ask", whole)

    def _ask(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Any]]:
        """`_try`, which notes the shards that do not answer.

        Raises:
            UntrimmedError: No shard has answered.
        """
        answers = self._try(calls)
        lacking = calls.keys() - answers.keys()
        self._missing |= lacking
        self._alive = (self._alive | answers.keys()) - lacking
        if calls and not self._alive:
            raise UntrimmedError(f"none of {len(calls)} shards answered; see that the cluster has room for all")
        return answers
