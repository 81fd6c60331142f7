"""What a search model, a corpus of videos and a prepared query are, whichever way videos are ranked."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Int

from untrimmed.search.cache.blocks import Block, Blocks, PartialBlock, Split
from untrimmed.search.cache.snapshot import Arrays, CachedBlock
from untrimmed.search.pruning.coder import Coder
from untrimmed.search.pruning.codes import CodedBlocks, CodedVideos, Probe
from untrimmed.search.pruning.ranking import (
    RankedVideo,
    Requests,
    UpperBounds,
    answered,
    ranked_by_bounds,
    ranked_by_rough_scores,
)
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo


class Doubt(NamedTuple):
    """A predicted standard deviation, and the value that nine in ten validation captions do not exceed."""

    deviation: float
    usual: float


class PreparedQuery(ABC):
    """A query and one version of a corpus: later changes of the library do not affect it."""

    @abstractmethod
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the best videos, best first, and all that tie with the last of them; the caller breaks ties.

        Args:
            among: Ids of the videos to rank; unknown ids are ignored. None: all videos.
        """

    @abstractmethod
    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Return spans of one video in seconds, best first, at least one."""

    @abstractmethod
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the relevance at each."""

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Return the weight of each of the first N words of the encoder; None if the model weighs no words."""
        return None

    def doubt(self) -> Doubt | None:
        """Return how unsure the model is of the sentence; None if it does not predict that."""
        return None

    @property
    def missing(self) -> str:
        """What the answers so far lack, as a sentence; empty if they are complete."""
        return ""


class Corpus(ABC):
    """Videos that one model ranks. A corpus never changes, so any number of threads may use it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def prepare(self, query: TextFeatures) -> PreparedQuery:
        """Return the query as this model reads it."""

    def rank_all(
        self,
        queries: Sequence[TextFeatures],
        *,
        limit: int,
        among: Collection[str] | None = None,
    ) -> tuple[list[list[RankedVideo]], str]:
        """Rank videos for each query as `PreparedQuery.rank` does; also return what the answers lack."""
        prepared = [self.prepare(query) for query in queries]
        ranked = [query.rank(limit=limit, among=among) for query in prepared]
        return ranked, next((query.missing for query in prepared if query.missing), "")


@runtime_checkable
class SearchModel(Protocol):
    """A way of searching, trained or training-free: encodes stored frames once and makes a corpus of the results."""

    @property
    def identity(self) -> str:
        """Names the exact model: its encodings are not comparable with those of another."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder of its weights; None for a training-free model."""
        ...

    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return what the table stores of a video for this model."""
        ...

    def corpus(self) -> LocalCorpus[Any]:
        """Return a corpus without videos; `LocalCorpus.update` adds them."""
        ...


B = TypeVar("B", bound=Block)
C = TypeVar("C", bound="LocalCorpus[Any]")


class LocalCorpus(Corpus, Generic[B]):
    """Videos in blocks, with codes for large corpora; cached on disk as plain arrays.

    A subclass says how stored videos become blocks and which vectors of a video are compared with a query's.
    """

    # In the unit of `Block.sizes`, rows or videos:
    least_coded: ClassVar[int]  # fewer are ranked without codes in about the same time
    least_coded_at_once: ClassVar[int]  # fewer are searched some times before the code to scan codes is loaded
    coded_together: ClassVar[int]  # about: while they are coded they take several times the memory of their codes

    def __init__(self, join: Callable[[Sequence[PartialBlock[B]]], B], most: int):
        """Start without videos. `join` makes one block of several whose sizes add up to `most` at most."""
        self.blocks: Blocks[B] = Blocks(join, most)
        self.coder: Coder[B] = Coder()  # shared by all corpora that `update` returns

    @property
    @abstractmethod
    def layout(self) -> str:
        """Names the form of the blocks with every setting that it depends on; the first word names a folder."""

    @abstractmethod
    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[B]:
        """Yield blocks of stored videos, which have at least one frame each."""

    @abstractmethod
    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> B:
        """Return the block that consists of these arrays."""

    @abstractmethod
    def sketch(self, block: B, rows: Int[np.ndarray, " K"]) -> Mapping[str, tuple[Float[np.ndarray, "R D"], Any]]:
        """Return the vectors of some videos by branch, video after video, and how many each video has.

        A video's score is at most the sum, over a query's vectors, of the best product with the video's vectors.
        """

    def context(self, block: B) -> str:
        """What the codes of a block depend on besides its arrays."""
        return ""

    def extent(self) -> Any:
        """What the other shards of a library need to know of this one."""
        return None

    def beside(self: C, others: Sequence[Any]) -> C:
        """Return the corpus as one shard of a library, given the extents of the others."""
        return self

    def __len__(self) -> int:
        return len(self.blocks)

    def update(self: C, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> C:
        """Return the corpus with more videos, which replace those with their ids, and without some.

        The result answers as a corpus made from scratch does. It shares unchanged blocks with this one.
        """
        return self._with(self.blocks.update(self.new_blocks(added), removed))

    def arrays(self) -> Sequence[Mapping[str, np.ndarray]]:
        """Return the arrays of each block; `ids` are those of its videos."""
        return [part.block.arrays for part in self.blocks.parts]

    def restored(self: C, cached: Iterable[CachedBlock]) -> C:
        """Return the corpus of blocks that `arrays` gave.

        Raises: DamagedError if a file is not as it was written, now or in later searches.
        """
        cached = list(cached)
        parts = [PartialBlock(self.cached_block(arrays), present) for arrays, present, _ in cached]
        corpus = self._with(self.blocks.of(parts))
        for part, (_, _, codes) in zip(corpus.blocks.parts, cached, strict=True):
            self.coder.add_files(part.block, codes, self.context(part.block))
        return corpus

    def missing_codes(self) -> Iterator[tuple[B, Arrays, Arrays]]:
        """Yield each block without codes on disk, with the arrays of its new codes and of the axes."""
        if self._size >= self.least_coded:
            yield from self.coder.missing([part.block for part in self.blocks.parts], self.coded)

    def coded(self, block: B) -> dict[str, CodedVideos]:
        """Return new codes of a block by branch."""
        parts: dict[str, list[CodedVideos]] = {}
        step = max(1, self.coded_together * len(block.ids) // max(1, int(block.sizes.sum())))
        for start in range(0, len(block.ids), step):
            rows = np.arange(start, min(start + step, len(block.ids)))
            for branch, (vectors, counts) in self.sketch(block, rows).items():
                axes = self.coder.axes(branch, vectors)
                parts.setdefault(branch, []).append(CodedVideos.of(axes, vectors, counts))
        return {branch: CodedVideos.joined(some) for branch, some in parts.items()}

    def codes_are_ready(self, num_videos: int) -> bool:
        """Whether a search of so many videos can use codes now; each call counts as a search, see `Coder.ready`."""
        size = self._size * min(num_videos, len(self)) // max(1, len(self))
        if size < self.least_coded:
            return False
        blocks = [part.block for part in self.blocks.parts]
        return self.coder.ready(blocks, self.coded, many=size >= self.least_coded_at_once)

    @property
    def _size(self) -> int:
        return sum(part.size for part in self.blocks.parts)

    def _with(self: C, blocks: Blocks[Any]) -> C:
        corpus = copy.copy(self)
        corpus.blocks = blocks
        return corpus.beside([])


class LocalQuery(PreparedQuery, Generic[B]):
    """A query whose videos are ranked by exact scores of those that rough scores or bounds leave."""

    rounding: ClassVar[float]  # more than a rough score of up to 1 can be off, and an exact one from its bound

    def __init__(self, corpus: LocalCorpus[B]):
        self.blocks, self.coder = corpus.blocks, corpus.coder
        self._corpus = corpus
        self.uses_codes = False  # in this search
        self.num_scored = 0  # videos with exact scores in this search
        self.known: Callable[[], Float32[np.ndarray, " V"]] | None = None  # upper bounds that are known already

    @property
    @abstractmethod
    def vectors(self) -> Mapping[str, Float32[np.ndarray, "M D"]]:
        """The query's vectors by branch."""

    @abstractmethod
    def rough(self, split: Split[B]) -> Float[np.ndarray, " N"]:
        """Return scores that are off by less than `rounding`."""

    @abstractmethod
    def exact(self, split: Split[B]) -> Float[np.ndarray, " N"]:
        """Return scores that depend on the query and each video alone."""

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """See `PreparedQuery.rank`."""
        return answered(self.ranking(limit=limit, among=among), self.exact)

    def ranking(self, *, limit: int, among: Collection[str] | None = None) -> Requests[B, list[RankedVideo]]:
        """Rank videos, but leave exact scores to the caller, who may compute those of several queries together."""
        videos = self.blocks.among(among)
        self.num_scored = 0
        can_prune = 4 * limit <= len(videos) and self.has_finite_vectors
        self.uses_codes = can_prune and self._corpus.codes_are_ready(len(videos))
        if not self.uses_codes:
            return (yield from ranked_by_rough_scores(videos, self.rough, limit, rounding=self.rounding))
        bounds = UpperBounds[B](self.coded, self.probes, margin=2 * self.rounding, known=self.known)
        ranked = yield from ranked_by_bounds(videos, bounds.bounds, limit)
        self.coder.learn(self.num_scored / max(1, len(videos)))
        return ranked

    @property
    def coded(self) -> dict[str, CodedBlocks]:
        """Codes of all blocks by branch; only once they are ready."""
        return self.coder.together(self.blocks)

    @cached_property
    def probes(self) -> list[tuple[str, Probe]]:
        """The query's vectors as codes are compared with them, each with its branch; only once codes are ready."""
        return [
            (branch, coded.axes.probe(vector))
            for branch, coded in self.coded.items()
            for vector in self.vectors[branch]
        ]

    @property
    def num_vectors(self) -> int:
        """Number of the query's vectors in all branches."""
        return sum(map(len, self.vectors.values()))

    @property
    def has_finite_vectors(self) -> bool:
        """Whether codes can say anything about the query."""
        return self.num_vectors > 0 and all(np.isfinite(rows).all() for rows in self.vectors.values())
