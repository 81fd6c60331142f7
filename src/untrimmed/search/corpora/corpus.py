"""Base classes of search models, corpora and prepared queries.

A `SearchModel` encodes videos when they are indexed. Its `Corpus` holds the encoded videos of one version of the
library in memory and prepares queries. A `PreparedQuery` ranks these videos and finds moments in them.
"""

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
from untrimmed.search.cache.blocks import Block, Blocks, PartialBlock, Selection
from untrimmed.search.pruning.coder import Coder
from untrimmed.search.pruning.codes import CodedBlocks, CodedVideos, Probe
from untrimmed.search.pruning.ranking import (
    BoundStages,
    RankedVideo,
    RankingSteps,
    ranked_by_bounds,
    ranked_by_rough_scores,
    run_ranking,
)
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo


class Uncertainty(NamedTuple):
    """The standard deviation that a model predicts for a sentence, and the largest usual deviation."""

    deviation: float
    usual: float  # nine of ten validation captions have at most this deviation


class PreparedQuery(ABC):
    """A query for one version of a corpus. Later changes of the library do not affect the results."""

    @abstractmethod
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the `limit` best videos, best first, plus any others that tie with the last of them.

        Videos with the same score are in no particular order. If `among` is given, only videos with these ids are
        ranked; unknown ids are ignored.
        """

    @abstractmethod
    def moments(self, video_id: str, *, limit: int | None, min_s: float = 0.0, nested: bool = False) -> list[Moment]:
        """Return spans of one video in seconds, best first, at least one. Each has its most relevant time (peak).

        Args:
            limit: Maximum number of spans. None returns all relevant spans.
            min_s: Shorter spans are left out or widened. If the whole video is shorter than `min_s`, so is the best
                span.
            nested: Whether a long span may be followed by a much shorter one around its peak. Otherwise spans never
                overlap.
        """

    @abstractmethod
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the relevance at each time."""

    def shot_starts_s(self, video_id: str) -> Float[np.ndarray, " S"] | None:
        """Return the start times of a video's shots (the first is 0), or None if the model does not detect shots."""
        return None

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Return the weights of the first N encoded words, or None if the model does not weight words."""
        return None

    def uncertainty(self) -> Uncertainty | None:
        """Return the predicted ambiguity of the sentence, or None if the model does not predict it."""
        return None

    @property
    def missing(self) -> str:
        """A warning if videos are missing because a shard did not answer, otherwise an empty text."""
        return ""


class Corpus(ABC):
    """The videos of a library, encoded by one model. A corpus never changes, so any number of threads may use it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def prepare(self, query: TextFeatures) -> PreparedQuery:
        """Return a query, encoded by the corpus's model."""

    def rank_all(
        self, queries: Sequence[TextFeatures], *, limit: int, among: Collection[str] | None = None
    ) -> tuple[list[list[RankedVideo]], str]:
        """Return the ranking for each query, and a warning if results are incomplete (see `PreparedQuery.missing`)."""
        prepared = [self.prepare(query) for query in queries]
        ranked = [query.rank(limit=limit, among=among) for query in prepared]
        return ranked, next((query.missing for query in prepared if query.missing), "")


@runtime_checkable
class SearchModel(Protocol):
    """A way to search, trained or training-free: it encodes stored frames and creates a corpus."""

    @property
    def identity(self) -> str:
        """A text that identifies the model and its weights. Encodings with different identities are not comparable."""

    @property
    def folder(self) -> Path | None:
        """The folder of the model's weights, or None for a training-free model."""

    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return the encoding of a video as bytes, which the table stores."""

    def corpus(self) -> LocalCorpus[Any]:
        """Return a corpus without videos; `LocalCorpus.update` adds them."""


B = TypeVar("B", bound=Block)
C = TypeVar("C", bound="LocalCorpus[Any]")


class LocalCorpus(Corpus, Generic[B]):
    """A corpus in this process. Videos are in blocks of plain arrays. Blocks of large corpora get quantized codes.

    A subclass defines how blocks are built from stored videos, and which vectors are compared with a query's vectors.
    """

    # The following sizes count vectors or videos, as `Block.sizes` does.
    min_size_for_codes: ClassVar[int]  # smaller searches never use codes
    # smaller searches use codes only after a few earlier searches
    min_size_for_codes_at_once: ClassVar[int]
    coding_batch_size: ClassVar[int]  # size of the batches that are quantized, which limits memory

    def __init__(self, join: Callable[[Sequence[PartialBlock[B]]], B], max_size: int):
        """Create a corpus without videos. The arguments are those of `Blocks`."""
        self.blocks: Blocks[B] = Blocks(join, max_size)
        self.coder: Coder[B] = Coder()  # shared by all corpora that `update` returns

    @property
    @abstractmethod
    def block_format(self) -> str:
        """A text with the format of the blocks and all settings that affect their content.

        Its first word is the name of the folder in the cache.
        """

    @abstractmethod
    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[B]:
        """Yield blocks of these stored videos, each of which has at least one frame."""

    @abstractmethod
    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> B:
        """Return a block of arrays that were read from the cache."""

    @abstractmethod
    def sketch(self, block: B, rows: Int[np.ndarray, " K"]) -> Mapping[str, tuple[Float[np.ndarray, "R D"], Any]]:
        """Return, for each branch of the model, the vectors of these videos and the number of vectors of each video.

        These vectors must give an upper bound of a video's score: the sum, over the query's vectors, of the largest
        product with a vector of the video.
        """

    def context(self, block: B) -> str:
        """Return a text with everything that affects the codes of a block except its arrays.

        If the text changes, the codes are built again.
        """
        return ""

    def shard_summary(self) -> Any:
        """Return what other shards need to know about this shard's videos to compute scores, or None."""
        return None

    def as_shard(self: C, other_summaries: Sequence[Any]) -> C:
        """Return this shard's corpus. Its scores equal those that a single corpus of all shards' videos would give.

        `other_summaries` contains the `shard_summary` of each other shard.
        """
        return self

    def __len__(self) -> int:
        return len(self.blocks)

    def update(self: C, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> C:
        """Return the corpus with the added videos and without the removed ones.

        An added video replaces the video with the same id. The result gives the same scores as a new corpus of the same
        videos, and shares unchanged blocks with this corpus.
        """
        return self.update_blocks(self.new_blocks(added), removed)

    def update_blocks(self: C, added: Iterable[B], removed: Iterable[str] = ()) -> C:
        """Return the result of `update` for added videos that are already in blocks."""
        return self._with_blocks(self.blocks.update(added, removed))

    def from_cache(self: C, cached: Iterable[CachedBlock]) -> C:
        """Return a corpus of cached blocks.

        Raises:
            DamagedError: A file is damaged. Searches can raise this error too, because pages are verified when they are
                read.
        """
        parts = []
        files = []
        for arrays, present, codes in cached:
            parts.append(PartialBlock(self.cached_block(arrays), present))
            files.append(codes)
        corpus = self._with_blocks(self.blocks.of(parts))
        for part, codes in zip(corpus.blocks.parts, files, strict=True):
            self.coder.add_files(part.block, codes, self.context(part.block))
        return corpus

    def missing_codes(self) -> Iterator[tuple[B, Arrays, Arrays]]:
        """Build and yield the codes of each block that has none on disk, see `Coder.build_missing`."""
        if self._size >= self.min_size_for_codes:
            yield from self.coder.build_missing([part.block for part in self.blocks.parts], self.build_codes)

    def build_codes(self, block: B) -> dict[str, CodedVideos]:
        """Build and return the codes of a block, by branch."""
        parts: dict[str, list[CodedVideos]] = {}
        step = max(1, self.coding_batch_size * len(block.ids) // max(1, int(block.sizes.sum())))
        for start in range(0, len(block.ids), step):
            rows = np.arange(start, min(start + step, len(block.ids)))
            for branch, (vectors, counts) in self.sketch(block, rows).items():
                axes = self.coder.axes(branch, vectors)
                parts.setdefault(branch, []).append(CodedVideos.of(axes, vectors, counts))
        return {branch: CodedVideos.joined(videos) for branch, videos in parts.items()}

    def request_codes(self, num_videos: int) -> bool:
        """Record a search of `num_videos` videos, and return whether it should use codes. See `Coder.request`."""
        size = self._size * min(num_videos, len(self)) // max(1, len(self))
        if size < self.min_size_for_codes:
            return False
        blocks = [part.block for part in self.blocks.parts]
        return self.coder.request(blocks, self.build_codes, many=size >= self.min_size_for_codes_at_once)

    @property
    def _size(self) -> int:
        return sum(part.size for part in self.blocks.parts)

    def _with_blocks(self: C, blocks: Blocks[Any]) -> C:
        corpus = copy.copy(self)
        corpus.blocks = blocks
        return corpus.as_shard([])


class LocalQuery(PreparedQuery, Generic[B]):
    """A query for a `LocalCorpus`.

    Approximate scores or upper bounds exclude most videos. Exact scores are computed for the rest.
    """

    rounding: ClassVar[float]  # largest rounding error of upper bounds, and of approximate scores that are at most 1

    def __init__(self, corpus: LocalCorpus[B]):
        self.corpus = corpus
        self.blocks = corpus.blocks
        self.uses_codes = False  # whether the current search uses codes
        self.num_scored = 0  # number of videos that got exact scores in the current search
        self.shared_bounds: Callable[[], Float32[np.ndarray, " V"]] | None = None  # upper bounds, see `rank_together`

    @property
    @abstractmethod
    def vectors(self) -> Mapping[str, Float32[np.ndarray, "M D"]]:
        """The query's vectors by branch."""

    @abstractmethod
    def rough(self, videos: Selection[B]) -> Float[np.ndarray, " N"]:
        """Return approximate scores, whose rounding errors are at most `rounding`."""

    @abstractmethod
    def exact(self, videos: Selection[B]) -> Float[np.ndarray, " N"]:
        """Return exact scores. The score of a video does not depend on the other videos."""

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the `limit` best videos, best first, plus any others that tie with the last of them."""
        return run_ranking(self.ranking_steps(limit=limit, among=among), self.exact)

    def ranking_steps(self, *, limit: int, among: Collection[str] | None = None) -> RankingSteps[B, list[RankedVideo]]:
        """Return a generator that ranks videos. It yields videos that need exact scores and receives these scores.

        The caller can therefore compute exact scores for several queries together.
        """
        videos = self.blocks.select(among)
        self.num_scored = 0
        can_prune = 4 * limit <= len(videos) and self.has_finite_vectors
        self.uses_codes = can_prune and self.corpus.request_codes(len(videos))
        if not self.uses_codes:
            return (yield from ranked_by_rough_scores(videos, self.rough, limit, rounding=self.rounding))
        bounds = BoundStages[B](self.codes, self.probes, margin=2 * self.rounding, shared_bounds=self.shared_bounds)
        ranked = yield from ranked_by_bounds(videos, bounds.stages, limit)
        self.corpus.coder.record_candidates(self.num_scored / max(1, len(videos)))
        return ranked

    @property
    def codes(self) -> dict[str, CodedBlocks]:
        """The codes of all blocks, by branch. They must have been built."""
        return self.corpus.coder.coded_blocks(self.blocks)

    @cached_property
    def probes(self) -> list[tuple[str, Probe]]:
        """The query's vectors, projected on the axes of the codes, each with its branch. The axes must exist."""
        return [
            (branch, coded.axes.probe(vector))
            for branch, coded in self.codes.items()
            for vector in self.vectors[branch]
        ]

    @property
    def has_finite_vectors(self) -> bool:
        """Whether the query has vectors and all are finite, so that it can use codes."""
        return any(map(len, self.vectors.values())) and all(np.isfinite(rows).all() for rows in self.vectors.values())
