"""Base classes of search models, corpora and prepared queries."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Int

from untrimmed.search.cache.block_cache import Arrays, CachedBlock
from untrimmed.search.cache.blocks import Block, Blocks, PartialBlock, Split
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
        """Return the best videos, best first, and all ties with the last one; the caller breaks ties.

        `among` limits the ranking to these ids; unknown ids are ignored.
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
        """Return the predicted uncertainty of the sentence; None if the model predicts none."""
        return None

    @property
    def missing(self) -> str:
        """A sentence about what is missing from the answers so far; empty if they are complete."""
        return ""


class Corpus(ABC):
    """Videos that one model ranks. A corpus never changes, so any number of threads may use it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def prepare(self, query: TextFeatures) -> PreparedQuery:
        """Encode the query with this model."""

    def rank_all(
        self, queries: Sequence[TextFeatures], *, limit: int, among: Collection[str] | None = None
    ) -> tuple[list[list[RankedVideo]], str]:
        """Return the result of `PreparedQuery.rank` for each query, and `PreparedQuery.missing`."""
        prepared = [self.prepare(query) for query in queries]
        ranked = [query.rank(limit=limit, among=among) for query in prepared]
        return ranked, next((query.missing for query in prepared if query.missing), "")


@runtime_checkable
class SearchModel(Protocol):
    """A way of searching, trained or training-free: encodes the stored frames of videos, and ranks them in a corpus."""

    @property
    def identity(self) -> str:
        """Name of the exact model; encodings of different models are not comparable."""

    @property
    def folder(self) -> Path | None:
        """The folder of its weights; None for a training-free model."""

    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return the bytes that the table stores for a video."""

    def corpus(self) -> LocalCorpus[Any]:
        """Return a corpus without videos; `LocalCorpus.update` adds them."""


B = TypeVar("B", bound=Block)
C = TypeVar("C", bound="LocalCorpus[Any]")


class LocalCorpus(Corpus, Generic[B]):
    """Videos in blocks of plain arrays, with quantized codes if there are many.

    A subclass builds blocks from stored videos and selects the vectors that are compared with a query's vectors.
    """

    # In the unit of `Block.sizes`, rows or videos:
    least_coded: ClassVar[int]  # with fewer, codes save no time
    least_coded_at_once: ClassVar[int]  # with fewer, codes are not used in the first searches
    coded_together: ClassVar[int]  # limits the memory for coding, several times that of the codes

    def __init__(self, join: Callable[[Sequence[PartialBlock[B]]], B], max_size: int):
        """Start without videos; see `Blocks` for the arguments."""
        self.blocks: Blocks[B] = Blocks(join, max_size)
        self.coder: Coder[B] = Coder()  # shared by all corpora that `update` returns

    @property
    @abstractmethod
    def layout(self) -> str:
        """Name of the blocks' format with all settings that it depends on; the first word names a folder."""

    @abstractmethod
    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[B]:
        """Yield blocks of stored videos with at least one frame each."""

    @abstractmethod
    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> B:
        """Return a block with these arrays."""

    @abstractmethod
    def sketch(self, block: B, rows: Int[np.ndarray, " K"]) -> Mapping[str, tuple[Float[np.ndarray, "R D"], Any]]:
        """Return the vectors of some videos by branch, video after video, and the number of vectors of each video.

        A video's score is at most the sum, over a query's vectors, of the best product with the video's vectors.
        """

    def context(self, block: B) -> str:
        """Return what the codes of a block depend on besides its arrays."""
        return ""

    def extent(self) -> Any:
        """Return what other shards of a library need to know about this one."""
        return None

    def beside(self: C, others: Sequence[Any]) -> C:
        """Return the corpus as one shard of a library, given the extents of the others."""
        return self

    def __len__(self) -> int:
        return len(self.blocks)

    def update(self: C, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> C:
        """Return the corpus with added videos, which replace those with the same ids, and without removed ones.

        The result is equivalent to a new corpus, and shares unchanged blocks with this one.
        """
        return self.with_blocks(self.new_blocks(added), removed)

    def with_blocks(self: C, added: Iterable[B], removed: Iterable[str] = ()) -> C:
        """Return what `update` does, from blocks."""
        return self._with(self.blocks.update(added, removed))

    def arrays(self) -> Sequence[Mapping[str, np.ndarray]]:
        """Return the arrays of each block."""
        return [part.block.arrays for part in self.blocks.parts]

    def restored(self: C, cached: Iterable[CachedBlock]) -> C:
        """Return a corpus of cached blocks.

        Raises: DamagedError if a file is damaged, now or in later searches.
        """
        parts = []
        files = []
        for arrays, present, codes in cached:
            parts.append(PartialBlock(self.cached_block(arrays), present))
            files.append(codes)
        corpus = self._with(self.blocks.of(parts))
        for part, codes in zip(corpus.blocks.parts, files, strict=True):
            self.coder.add_files(part.block, codes, self.context(part.block))
        return corpus

    def missing_codes(self) -> Iterator[tuple[B, Arrays, Arrays]]:
        """Yield each block without codes on disk, with the arrays of its new codes and of the axes."""
        if self._size >= self.least_coded:
            yield from self.coder.missing([part.block for part in self.blocks.parts], self.coded)

    def coded(self, block: B) -> dict[str, CodedVideos]:
        """Build the codes of a block by branch."""
        parts: dict[str, list[CodedVideos]] = {}
        step = max(1, self.coded_together * len(block.ids) // max(1, int(block.sizes.sum())))
        for start in range(0, len(block.ids), step):
            rows = np.arange(start, min(start + step, len(block.ids)))
            for branch, (vectors, counts) in self.sketch(block, rows).items():
                axes = self.coder.axes(branch, vectors)
                parts.setdefault(branch, []).append(CodedVideos.of(axes, vectors, counts))
        return {branch: CodedVideos.joined(videos) for branch, videos in parts.items()}

    def codes_are_ready(self, num_videos: int) -> bool:
        """Return whether a search of `num_videos` videos can use codes; counts as a search, see `Coder.ready`."""
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
    """A query that ranks videos by exact scores of the candidates that approximate scores or upper bounds leave."""

    rounding: ClassVar[float]  # rounding tolerance of approximate scores up to 1, and of upper bounds

    def __init__(self, corpus: LocalCorpus[B]):
        self.corpus = corpus
        self.blocks = corpus.blocks
        self.uses_codes = False  # in this search
        self.num_scored = 0  # videos with exact scores in this search
        self.known: Callable[[], Float32[np.ndarray, " V"]] | None = None  # upper bounds of all videos, if computed

    @property
    @abstractmethod
    def vectors(self) -> Mapping[str, Float32[np.ndarray, "M D"]]:
        """The query's vectors by branch."""

    @abstractmethod
    def rough(self, split: Split[B]) -> Float[np.ndarray, " N"]:
        """Return approximate scores, with errors below `rounding`."""

    @abstractmethod
    def exact(self, split: Split[B]) -> Float[np.ndarray, " N"]:
        """Return exact scores, which do not depend on other videos."""

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """See `PreparedQuery.rank`."""
        return answered(self.ranking(limit=limit, among=among), self.exact)

    def ranking(self, *, limit: int, among: Collection[str] | None = None) -> Requests[B, list[RankedVideo]]:
        """Rank videos, and request exact scores from the caller, which may batch those of several queries."""
        videos = self.blocks.among(among)
        self.num_scored = 0
        can_prune = 4 * limit <= len(videos) and self.has_finite_vectors
        self.uses_codes = can_prune and self.corpus.codes_are_ready(len(videos))
        if not self.uses_codes:
            return (yield from ranked_by_rough_scores(videos, self.rough, limit, rounding=self.rounding))
        bounds = UpperBounds[B](self.coded, self.probes, margin=2 * self.rounding, known=self.known)
        ranked = yield from ranked_by_bounds(videos, bounds.bounds, limit)
        self.corpus.coder.learn(self.num_scored / max(1, len(videos)))
        return ranked

    @property
    def coded(self) -> dict[str, CodedBlocks]:
        """Codes of all blocks by branch, once they are ready."""
        return self.corpus.coder.together(self.blocks)

    @cached_property
    def probes(self) -> list[tuple[str, Probe]]:
        """The query's vectors on the axes of the codes, each with its branch, once codes are ready."""
        return [
            (branch, coded.axes.probe(vector))
            for branch, coded in self.coded.items()
            for vector in self.vectors[branch]
        ]

    @property
    def has_finite_vectors(self) -> bool:
        """Whether the query can use codes: it has vectors, and all are finite."""
        return any(map(len, self.vectors.values())) and all(np.isfinite(rows).all() for rows in self.vectors.values())
