"""A sentence before the videos of a trained model: they are ranked by its own score, and its windows are moments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float32, Int

from untrimmed.batches import EncodedQueries
from untrimmed.moments.localise import LocateSettings
from untrimmed.search.cache.blocks import Asking, Split, answered
from untrimmed.search.cache.encoded_block import EncodedBlock, Places
from untrimmed.search.corpora.corpus import Doubt, RankedVideo
from untrimmed.search.corpora.exact_scores import exact_scores, exact_scores_of_rows
from untrimmed.search.pruning.candidates import Candidates
from untrimmed.search.pruning.coded_blocks import CodedVideoBlocks
from untrimmed.search.pruning.codes import Probe
from untrimmed.types import Moment

if TYPE_CHECKING:
    from untrimmed.search.corpora.trained import TrainedCorpus

DOUBT = "query_uncertainty"  # what the model calls it
_ROUNDING = 1e-5  # more than a video's score among others can be off from its score alone


class TrainedQuery:
    """An encoded query before the videos of a corpus."""

    def __init__(self, corpus: TrainedCorpus, encoded: EncodedQueries, recall: float = 1.0):
        self._corpus, self._model, self._encoded, self._recall = corpus, corpus.model.model, encoded, recall
        self.blocks, self.coder = corpus.blocks, corpus.coder
        self._looked_at = 0  # videos that the method's own score was taken of
        self._by_rows = False  # and whether by those rows alone that codes leave open
        self.known: Callable[[], Float32[np.ndarray, " V"]] | None = None  # see `Together.most`

    @torch.inference_mode()
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos by the model's own score, see `PreparedQuery.rank`."""
        return answered(self.ranking(limit=limit, among=among), lambda split: exact_of([(self, split)])[0])

    def ranking(self, *, limit: int, among: Collection[str] | None = None) -> Asking[EncodedBlock, list[RankedVideo]]:
        """The same for who answers what it asks by `exact_of`.

        Where many videos have been searched some times, codes tell which can be among the best.
        """
        many = len(self.blocks) if among is None else len(among)
        candidates, self._looked_at = self._candidates() if self._codes_are_ready(many, limit) else None, 0
        self._by_rows = candidates is not None and self._corpus.model.best_rows.are_few
        bounds = candidates.bounds if candidates else ()
        ranked = yield from self.blocks.ranking(
            self._rough, rounding=_ROUNDING, limit=limit, among=among, bounds=bounds
        )
        if candidates:
            self.coder.learn(self._looked_at / many)
            if self._recall < 1 and candidates.allowance is None and not self.known and ranked:
                split = self.blocks.split([video.video_id for video in ranked])
                scores = np.array([video.score for video in ranked])
                self._corpus.shortfalls.learn(candidates.shortfalls(split, scores))
        return ranked

    def _codes_are_ready(self, many: int, limit: int) -> bool:
        return 4 * limit <= many and self.num_vectors > 0 and self.is_finite and self._corpus.codes_are_ready(many)

    def _candidates(self) -> Candidates[EncodedBlock]:
        coded, allowance = self.coded, None
        if self._recall < 1 and not self.known:
            allowance = self._corpus.shortfalls.allowance((1 + self._recall) / 2)
        return Candidates(
            coded,
            lambda branch, probe, split, needed: coded[branch].by_rows(probe, split, needed),
            self.probes,
            fuzz=2 * _ROUNDING,
            allowance=allowance,
            known=self.known,
        )

    @property
    def coded(self) -> dict[str, CodedVideoBlocks]:
        """Once there are codes: those of all blocks by branch."""
        return self.coder.together(self.blocks, CodedVideoBlocks)

    @cached_property
    def probes(self) -> list[tuple[str, Probe]]:
        """Once there are codes: what the query looks for in each branch."""
        return [
            (branch, coded.axes.probe(row, self._recall))
            for branch, coded in self.coded.items()
            for row in self.vectors[branch]
        ]

    @torch.inference_mode()
    def _rough(self, split: Split[EncodedBlock]) -> Float[np.ndarray, " N"]:
        return np.concatenate([self._scores(block, rows) for block, rows in split])

    def _places(self, split: Split[EncodedBlock]) -> Places:
        return self._corpus.model.best_rows.places(self.coded, self.probes, split)

    def _scores(self, block: EncodedBlock, rows: Int[np.ndarray, " K"]) -> Float32[np.ndarray, " K"]:
        if 2 * len(rows) > len(block.ids):
            return self._model.score(self._encoded, block.videos).fused[0].numpy()[rows]
        return self._model.score(self._encoded, block.select(rows)).fused[0].numpy()

    @cached_property
    @torch.inference_mode()
    def vectors(self) -> dict[str, Float32[np.ndarray, "M D"]]:
        """What the query looks for in each branch, without what has no weight."""
        branches = {branch: rows[0].numpy() for branch, rows in self._model.probe(self._encoded).items()}
        return {branch: rows[(rows != 0).any(axis=1)] for branch, rows in branches.items()}

    @property
    def num_vectors(self) -> int:
        """Of all branches together."""
        return sum(map(len, self.vectors.values()))

    @property
    def is_finite(self) -> bool:
        """Whether codes say anything of it."""
        return all(np.isfinite(rows).all() for rows in self.vectors.values())

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Those of the model (RAL, Fig. 8), see `Explained`."""
        weights = self._model.word_weights(self._encoded)
        return None if weights is None else weights[0].numpy()

    def doubt(self) -> Doubt | None:
        """The predicted deviation (RAL, Fig. 3) of a model whose run tells what is usual, see `Explained`."""
        deviation = self._model.watched_queries(self._encoded).get(DOUBT)
        usual = self._corpus.model.usual_doubt
        return None if deviation is None or usual is None else Doubt(deviation.item(), usual)

    @torch.inference_mode()
    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, best first: the best window, then the best that does not meet it."""
        block, row = self.blocks.find(video_id)
        duration_s = torch.tensor([block.durations_s[row]], dtype=torch.float32)
        settings = LocateSettings(limit=limit, per_video=1000, max_overlap=0.0)
        ranked = self._model.locate(self._encoded, block.video(row), duration_s, settings)
        spans = zip(ranked.span_s[0].tolist(), ranked.score[0].tolist(), ranked.video_index[0], strict=True)
        return [Moment(start_s, end_s, score) for (start_s, end_s), score, video in spans if video >= 0]

    @torch.inference_mode()
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times in seconds and how the model's own vectors there fit the query, by its own similarity."""
        block, row = self.blocks.find(video_id)
        units, mask = self._model.timeline(block.video(row))
        fits = self._model.similarity(self._encoded, units if mask is None else units[:, mask[0]])[0, 0].numpy()
        return (np.arange(len(fits)) + 0.5) * (block.durations_s[row] / len(fits)), fits.astype(np.float64)


def exact_of(asked: Sequence[tuple[TrainedQuery, Split[EncodedBlock]]]) -> list[Float32[np.ndarray, " N"]]:
    """The model's own scores for queries of one corpus, which each asks for videos of its own."""
    if not asked:
        return []
    model = asked[0][0]._corpus.model.in_float64
    by_rows = [number for number, (query, _) in enumerate(asked) if query._by_rows]
    read = [(query._encoded, split, query._places) for query, split in (asked[number] for number in by_rows)]
    found = dict(zip(by_rows, exact_scores_of_rows(model, read), strict=True))
    for number, (query, split) in enumerate(asked):
        query._looked_at += len(split)
        if number not in found:
            found[number] = exact_scores(model, query._encoded, split)
    return [found[number] for number in range(len(asked))]
