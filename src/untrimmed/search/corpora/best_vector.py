"""Training-free corpora: a video's score is the score of its best vector, and its moments are the clearest matches.

Spans are ranked by how far their mean relevance is above a background value (see `untrimmed.moments.clearest`). The
background value is a weighted mean of the video's relevance and the library's relevance. So if a whole video matches,
the whole video is returned.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float, Float16, Float32, Float64, Int

from untrimmed.errors import ConfigError
from untrimmed.moments.clearest import SpanSettings, clearest_moments
from untrimmed.search.cache.blocks import Block, PartialBlock, Selection
from untrimmed.search.cache.mapped import row_range
from untrimmed.search.corpora.corpus import LocalCorpus, LocalQuery
from untrimmed.search.pruning.products import ROUNDING, exact_products, halves, padded_width, products
from untrimmed.search.pruning.threads import share_work
from untrimmed.search.store.records import batched_by_size
from untrimmed.types import Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

VECTORS = "vectors"
TIMES = "times_s"
EDGES = "edges"
BRANCH = "rows"
_ENDS = " ends"  # suffix of the names of some arrays, see `VectorBlock`
_SUMMED_AT_A_TIME = 2**13  # vectors that are converted to float64 at a time
_VECTORS_OF_BLOCK = 2**16  # about 10 h of frames: large enough for several threads, small enough to copy


@dataclass(frozen=True)
class VectorVideo:
    """One video: `arrays` contains its vectors, the times of its frames, and other arrays of the search model."""

    video_id: str
    duration_s: float
    dim: int  # width of the vectors without padding
    arrays: Mapping[str, np.ndarray]

    @property
    def vectors(self) -> Float[np.ndarray, "M E"]:
        """Vectors in temporal order."""
        return self.arrays[VECTORS]

    @property
    def times_s(self) -> Float[np.ndarray, " T"]:
        """Times of the frames."""
        return self.arrays[TIMES]

    @property
    def frames_per_row(self) -> Int[np.ndarray, " M"]:
        """The number of frames that each vector represents: 1 for a frame, more for a moment (see `EDGES`)."""
        edges = self.arrays.get(EDGES)
        return np.ones(len(self.vectors), dtype=np.int64) if edges is None else np.diff(edges)

    @property
    def total(self) -> Float64[np.ndarray, " D"]:
        """The sum of the vectors of all frames.

        In float64, sums of float16 values are exact, so they do not depend on the order of the videos.
        """
        counts = self.frames_per_row.astype(np.float64)
        starts = range(0, len(counts), _SUMMED_AT_A_TIME)
        parts = (slice(start, start + _SUMMED_AT_A_TIME) for start in starts)
        vectors = self.vectors[:, : self.dim]
        return sum((counts[part] @ vectors[part].astype(np.float64) for part in parts), np.zeros(self.dim))


class VectorBlock(Block):
    """The concatenated arrays of several videos.

    For each array NAME, the array `NAME ends` contains the index at which the entries of each video end.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        """Create a block from arrays made by `of` or read from the cache."""
        super().__init__(arrays)
        names = [name.removesuffix(_ENDS) for name in arrays if name.endswith(_ENDS)]
        self._bounds = {name: np.concatenate([[0], arrays[name + _ENDS]]) for name in names}
        # row of a video -> its candidate spans; see `BestVectorCorpus.spans_of`
        self.spans: dict[int, Int[np.ndarray, "N 2"]] = {}

    @classmethod
    def of(cls, videos: Sequence[VectorVideo]) -> VectorBlock:
        """Return a new block with copies of these videos."""
        dim = videos[0].dim
        entries = {name: [video.arrays[name] for video in videos] for name in videos[0].arrays}
        vectors = [rows[:, :dim] for rows in entries[VECTORS]]
        padded = np.zeros((sum(map(len, vectors)), padded_width(dim)), dtype=vectors[0].dtype)
        np.concatenate(vectors, out=padded[:, :dim])
        return cls(
            {
                "ids": np.array([video.video_id for video in videos]),
                "durations_s": np.array([video.duration_s for video in videos]),
                "total": np.sum([video.total for video in videos], axis=0),
                **{name + _ENDS: np.cumsum([len(rows) for rows in parts]) for name, parts in entries.items()},
                **{name: np.concatenate(parts) for name, parts in entries.items() if name != VECTORS},
                VECTORS: padded,
            }
        )

    @classmethod
    def joined(cls, parts: Sequence[PartialBlock[VectorBlock]]) -> VectorBlock:
        """Return a new block with copies of the present videos of several blocks."""
        return cls.of([part.block.video(row) for part in parts for row in np.flatnonzero(part.present).tolist()])

    @property
    def dim(self) -> int:
        """Width of the vectors without padding."""
        return len(self.arrays["total"])

    @cached_property
    def sizes(self) -> Int[np.ndarray, " V"]:
        """Number of vectors of each video."""
        return np.diff(self._bounds[VECTORS])

    def video(self, row: int) -> VectorVideo:
        """Return a video. Its arrays are views of the block's arrays."""
        arrays = {
            name: row_range(self.arrays, name, int(ends[row]), int(ends[row + 1]))
            for name, ends in self._bounds.items()
        }
        return VectorVideo(self.ids[row], float(self.arrays["durations_s"][row]), self.dim, arrays)

    def total(self, present: Int[np.ndarray, " K"]) -> tuple[Float64[np.ndarray, " D"], int]:
        """Return the sum of the vectors of all frames in these videos, and the number of frames."""
        absent = np.setdiff1d(np.arange(len(self.ids)), present)
        num_frames = int(np.diff(self._bounds[TIMES])[present].sum())
        if len(absent) < len(present):  # read the present or the absent videos, whichever are fewer
            return self.arrays["total"] - self._sum(absent), num_frames
        return self._sum(present), num_frames

    def _sum(self, rows: Int[np.ndarray, " K"]) -> Float64[np.ndarray, " D"]:
        return sum((self.video(row).total for row in rows.tolist()), np.zeros(self.dim))

    def rough_scores(self, query: Float16[np.ndarray, "1 E"]) -> Float64[np.ndarray, " V"]:
        """Return, for each video, the largest product (in float16) of the sentence with one of the video's vectors."""
        return np.maximum.reduceat(products(self.arrays[VECTORS], query)[:, 0], self._bounds[VECTORS][:-1])


C = TypeVar("C", bound="BestVectorCorpus")

Totals = tuple[Float64[np.ndarray, " D"] | float, int]  # sum of the vectors of all frames, and the number of frames


class BestVectorCorpus(LocalCorpus[VectorBlock]):
    """Videos as float16 vectors. A video's score is the largest product of the sentence with one of its vectors."""

    min_size_for_codes: ClassVar[int] = 2**17
    min_size_for_codes_at_once: ClassVar[int] = 2**20
    coding_batch_size: ClassVar[int] = 2**14

    def __init__(self, spans: SpanSettings):
        super().__init__(VectorBlock.joined, _VECTORS_OF_BLOCK)
        self.span_settings = spans
        self._other_totals: tuple[Totals, ...] = ()

    @abstractmethod
    def vector_video(self, stored: StoredVideo) -> VectorVideo:
        """Return the vectors of a stored video."""

    @abstractmethod
    def spans(self, video: VectorVideo) -> Int[np.ndarray, "N 2"]:
        """Return the candidate spans of a video as frame indices: the first frame, and the last frame plus 1."""

    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[VectorBlock]:
        """Yield blocks of stored videos. Only one block is in memory at a time."""
        videos = map(self.vector_video, added)
        return map(VectorBlock.of, batched_by_size(videos, lambda video: len(video.vectors), _VECTORS_OF_BLOCK))

    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> VectorBlock:
        """Return a block of arrays that were read from the cache."""
        return VectorBlock(arrays)

    def sketch(
        self, block: VectorBlock, rows: Int[np.ndarray, " K"]
    ) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " K"]]]:
        """Return the vectors of these videos, and the number of vectors of each video. See `LocalCorpus.sketch`."""
        vectors = np.concatenate([block.video(row).vectors[:, : block.dim] for row in rows.tolist()])
        return {BRANCH: (vectors.astype(np.float32), block.sizes[rows])}

    def prepare(self, query: TextFeatures) -> BestVectorQuery:
        """Return a query with the sentence's vector."""
        return BestVectorQuery(self, query.sentence)

    def video(self, video_id: str) -> VectorVideo:
        """Return the video with this id. Raises KeyError if the id is unknown."""
        block, row = self.blocks.find(video_id)
        return block.video(row)

    def spans_of(self, video_id: str) -> Int[np.ndarray, "N 2"]:
        """Return the candidate spans of a video. They are computed only for hits, because this takes long."""
        block, row = self.blocks.find(video_id)
        if row not in block.spans:
            block.spans[row] = self.spans(block.video(row))
        return block.spans[row]

    @cached_property
    def _total(self) -> Totals:
        return _sum_totals([part.block.total(np.flatnonzero(part.present)) for part in self.blocks.parts])

    def shard_summary(self) -> Totals:
        """Return what other shards need: the sum of all frame vectors of this shard, and their number."""
        return self._total

    def as_shard(self: C, other_summaries: Sequence[Totals]) -> C:
        """Return the corpus with a background value that includes the frames of other shards."""
        corpus = copy.copy(self)
        corpus.__dict__.pop("_total", None)
        corpus._other_totals = tuple(other_summaries)
        return corpus

    def mean_relevance(self, sentence: Float[np.ndarray, " D"]) -> float:
        """Return the mean relevance of all frames of the library, including those of other shards."""
        total, num_frames = _sum_totals([self._total, *self._other_totals])
        return float(sentence @ np.float32(total / max(1, num_frames)))


class BestVectorQuery(LocalQuery[VectorBlock]):
    """A query with the vector of a sentence, for a corpus of vectors."""

    rounding: ClassVar[float] = ROUNDING
    corpus: BestVectorCorpus

    def __init__(self, corpus: BestVectorCorpus, sentence: Float[np.ndarray, " D"]):
        """Raises: ConfigError if the encoder has no vectors of sentences (`encoders.encoder.ClipEncoder`)."""
        if len(sentence) == 0:
            raise ConfigError(
                "the library's encoder has no vectors of sentences to compare with frames, so searches need a trained "
                "model; train one on the library's features, then: untrimmed index --model RUN --library LIB"
            )
        super().__init__(corpus)
        self._sentence = sentence
        self._halves = halves(sentence)

    @property
    def vectors(self) -> dict[str, Float32[np.ndarray, "1 D"]]:
        """The sentence's vector."""
        return {BRANCH: self._sentence.astype(np.float32)[None]}

    def rough(self, videos: Selection[VectorBlock]) -> Float[np.ndarray, " N"]:
        """Return approximate scores (float16 products). In blocks with few selected videos, scores are exact."""
        scores = [np.empty(0)]
        for block, rows in videos:
            if 4 * len(rows) > len(block.ids):
                scores.append(block.rough_scores(self._halves[:1])[rows])
            else:
                scores.append(self.exact(Selection.of([(block, rows)])))
        return np.concatenate(scores)

    def exact(self, videos: Selection[VectorBlock]) -> Float64[np.ndarray, " N"]:
        """Return scores that are as precise as float32 products."""
        self.num_scored += len(videos)
        positions = [(block, row) for block, rows in videos for row in rows.tolist()]
        scores = np.empty(len(positions))

        def score(start: int, stop: int) -> None:
            for index, (block, row) in enumerate(positions[start:stop], start):
                scores[index] = exact_products(block.video(row).vectors, self._halves).max()

        share_work(len(positions), 1, score)
        return scores

    def moments(self, video_id: str, *, limit: int | None, min_s: float = 0.0, nested: bool = False) -> list[Moment]:
        """Return spans of one video with their mean relevance, the clearest match first."""
        video = self.corpus.video(video_id)
        return clearest_moments(
            self._frame_relevance(video),
            video.times_s,
            video.duration_s,
            self.corpus.spans_of(video_id),
            others=self.corpus.mean_relevance(self._sentence),
            settings=self.corpus.span_settings,
            limit=limit,
            min_s=min_s,
            nested=nested,
        )

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return the times of the frames in seconds, and the relevance of each frame."""
        video = self.corpus.video(video_id)
        return video.times_s, self._frame_relevance(video)

    def shot_starts_s(self, video_id: str) -> Float[np.ndarray, " S"]:
        """Return the times at which the candidate spans of a video begin. They are used as the starts of shots."""
        times_s = self.corpus.video(video_id).times_s
        starts = np.unique(self.corpus.spans_of(video_id)[:, 0])
        return np.concatenate([[0.0], (times_s[starts[1:]] + times_s[starts[1:] - 1]) / 2])

    def _frame_relevance(self, video: VectorVideo) -> Float64[np.ndarray, " T"]:
        return np.repeat(exact_products(video.vectors, self._halves), video.frames_per_row)


def _sum_totals(totals: Sequence[Totals]) -> Totals:
    return sum((total for total, _ in totals), 0.0), sum(number for _, number in totals)
