"""Training-free corpora: a video is as relevant as its best vector, its moments are spans that stand out.

Spans are ranked by how far their mean relevance is above a background (`untrimmed.moments.clearest`). It lies between
the mean of the video and that of the whole library, so that a sentence about all of a video finds all of it.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float, Float32, Float64, Int

from untrimmed.moments.clearest import SpanSettings, standing_out
from untrimmed.search.cache.blocks import Split, gathered
from untrimmed.search.corpora.local import LocalCorpus, LocalQuery
from untrimmed.search.corpora.row_block import RowBlock, RowVideo
from untrimmed.search.pruning.products import ROUNDING, exact_products, halves
from untrimmed.search.pruning.threads import share
from untrimmed.types import Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

BRANCH = "rows"
_ROWS_OF_BLOCK = 2**16  # about 10 h of frames: threads are worth it, and an update copies no more at once
C = TypeVar("C", bound="RowCorpus")

Totals = tuple[Float64[np.ndarray, " D"] | float, int]  # the sum of the vectors of frames, and their number


class RowCorpus(LocalCorpus[RowBlock]):
    """Videos as float16 vectors, searched exactly by the best vector of each."""

    least_coded: ClassVar[int] = 2**17
    least_coded_at_once: ClassVar[int] = 2**20
    coded_together: ClassVar[int] = 2**14
    smoothing_s: ClassVar[float] = 0.0  # standard deviation of the Gaussian under which curves are shown; 0: none

    def __init__(self, spans: SpanSettings):
        super().__init__(RowBlock.joined, _ROWS_OF_BLOCK)
        self.span_settings = spans
        self._others: tuple[Totals, ...] = ()

    @abstractmethod
    def row_video(self, stored: StoredVideo) -> RowVideo:
        """Return the vectors of a stored video."""

    @abstractmethod
    def spans(self, video: RowVideo) -> Int[np.ndarray, "N 2"]:
        """Return spans that may be moments: first frame, and one past the last."""

    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[RowBlock]:
        """Yield blocks of about the usual size; one at a time is in memory beside the videos that it is made of."""
        videos = map(self.row_video, added)
        return map(RowBlock.of, gathered(videos, lambda video: len(video.vectors), _ROWS_OF_BLOCK))

    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> RowBlock:
        """See `LocalCorpus`."""
        return RowBlock(arrays)

    def sketch(
        self, block: RowBlock, rows: Int[np.ndarray, " K"]
    ) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " K"]]]:
        """See `LocalCorpus`."""
        vectors = np.concatenate([block.video(row).vectors[:, : block.dim] for row in rows.tolist()])
        return {BRANCH: (vectors.astype(np.float32), block.sizes[rows])}

    def prepare(self, query: TextFeatures) -> RowQuery:
        """Return the query as the vector of its sentence."""
        return RowQuery(self, query.sentence)

    def video(self, video_id: str) -> RowVideo:
        """One video.

        Raises: KeyError if the corpus does not have it.
        """
        block, row = self.blocks.find(video_id)
        return block.video(row)

    def spans_of(self, video_id: str) -> Int[np.ndarray, "N 2"]:
        """The spans of one video, found when it is first a hit: that costs as much as some searches."""
        block, row = self.blocks.find(video_id)
        if row not in block.spans:
            block.spans[row] = self.spans(block.video(row))
        return block.spans[row]

    @cached_property
    def _total(self) -> Totals:
        return _added([part.block.total(np.flatnonzero(part.present)) for part in self.blocks.parts])

    def extent(self) -> Totals:
        """Sum and number of all frames, see `LocalCorpus.extent`."""
        return self._total

    def beside(self: C, others: Sequence[Totals]) -> C:
        """See `LocalCorpus.beside`."""
        corpus = copy.copy(self)
        corpus.__dict__.pop("_total", None)
        corpus._others = tuple(others)
        return corpus

    def background(self, sentence: Float[np.ndarray, " D"]) -> float:
        """Return the mean relevance of all frames of the library, those of other shards included."""
        total, num_frames = _added([self._total, *self._others])
        return float(sentence @ np.float32(total / max(1, num_frames)))


class RowQuery(LocalQuery[RowBlock]):
    """A sentence's vector and the videos of a corpus."""

    rounding: ClassVar[float] = ROUNDING

    def __init__(self, corpus: RowCorpus, sentence: Float[np.ndarray, " D"]):
        super().__init__(corpus)
        self._rows_corpus, self._sentence = corpus, sentence
        self._halves = halves(sentence)

    @property
    def vectors(self) -> dict[str, Float32[np.ndarray, "1 D"]]:
        """The sentence's."""
        return {BRANCH: self._sentence.astype(np.float32)[None]}

    def rough(self, split: Split[RowBlock]) -> Float[np.ndarray, " N"]:
        """From float16 products."""
        scores = [np.empty(0)]
        for block, rows in split:
            is_most = 4 * len(rows) > len(block.ids)
            scores.append(
                block.rough_scores(self._halves[:1])[rows] if is_most else self.exact(Split.of([(block, rows)]))
            )
        return np.concatenate(scores)

    def exact(self, split: Split[RowBlock]) -> Float64[np.ndarray, " N"]:
        """From products as exact as in float32."""
        self.num_scored += len(split)
        places = [(block, row) for block, rows in split for row in rows.tolist()]
        scores = np.empty(len(places))

        def score(start: int, stop: int) -> None:
            for place in range(start, stop):
                block, row = places[place]
                scores[place] = exact_products(block.video(row).vectors, self._halves).max()

        share(len(places), 1, score)
        return scores

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Return separate spans of one video in seconds, the clearest first, with their mean relevance."""
        video = self._rows_corpus.video(video_id)
        return standing_out(
            self._curve(video),
            video.times_s,
            video.duration_s,
            self._rows_corpus.spans_of(video_id),
            others=self._rows_corpus.background(self._sentence),
            settings=self._rows_corpus.span_settings,
            limit=limit,
        )

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return the times of frames in seconds and the relevance there, smoothed as far as the corpus wants it."""
        video, deviation_s = self._rows_corpus.video(video_id), self._rows_corpus.smoothing_s
        curve = self._curve(video)
        return video.times_s, smoothed(curve, deviation_s / spacing_s(video.times_s)) if deviation_s else curve

    def _curve(self, video: RowVideo) -> Float64[np.ndarray, " T"]:
        return np.repeat(exact_products(video.vectors, self._halves), video.frames_per_row)


def spacing_s(times_s: Float[np.ndarray, " T"]) -> float:
    """Return the usual time between two frames in seconds; 1 if that is unknown."""
    gaps_s = np.diff(times_s)
    gaps_s = gaps_s[gaps_s > 0]
    return float(np.median(gaps_s)) if len(gaps_s) else 1.0


def smoothed(curve: Float[np.ndarray, " T"], deviation: float) -> Float64[np.ndarray, " T"]:
    """Return a curve under a Gaussian, whose standard deviation is in steps; at the ends its weight is rescaled.

    >>> smoothed(np.array([0.0, 0.0, 1.0, 0.0]), 1.0).round(2).tolist()
    [0.1, 0.26, 0.4, 0.3]
    """
    reach = max(1, int(np.ceil(3 * deviation)))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    inside = slice(reach, reach + len(curve))
    return np.convolve(curve, weights)[inside] / np.convolve(np.ones(len(curve)), weights)[inside]


def _added(totals: Sequence[Totals]) -> Totals:
    return sum((total for total, _ in totals), 0.0), sum(number for _, number in totals)
