"""A sentence before the videos of a trained model: they are ranked by its own score, and its windows are moments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Int

from untrimmed.batches import EncodedQueries
from untrimmed.moments.localise import LocateSettings
from untrimmed.search.cache.blocks import Split
from untrimmed.search.corpora.corpus import Doubt, LocalCorpus, LocalQuery
from untrimmed.search.corpora.encoded_block import EncodedBlock, Places
from untrimmed.search.corpora.exact_scores import Scorer, exact_scores, exact_scores_of_rows
from untrimmed.search.pruning.codes import CodedBlocks, Probe
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.types import Moment

DOUBT = "query_uncertainty"  # what the model calls it


class TrainedQuery(LocalQuery[EncodedBlock]):
    """An encoded query before the videos of a corpus."""

    rounding: ClassVar[float] = 1e-5

    def __init__(self, corpus: LocalCorpus[EncodedBlock], scorer: Scorer, encoded: EncodedQueries):
        super().__init__(corpus)
        self.scorer = scorer
        self.encoded = encoded
        self._model = scorer.model

    @torch.inference_mode()
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Rank videos by the model's own score."""
        return super().rank(limit=limit, among=among)

    def exact(self, split: Split[EncodedBlock]) -> Float32[np.ndarray, " N"]:
        """See `LocalQuery`."""
        return exact_of([(self, split)])[0]

    @torch.inference_mode()
    def rough(self, split: Split[EncodedBlock]) -> Float[np.ndarray, " N"]:
        """Return the model's scores in single precision."""
        return np.concatenate([self._scores(block, rows) for block, rows in split])

    def places(self, split: Split[EncodedBlock]) -> Places:
        """Which rows of videos may count, by codes."""
        return self.scorer.best_rows.places(self.coded, self.probes, split)

    def _scores(self, block: EncodedBlock, rows: Int[np.ndarray, " K"]) -> Float32[np.ndarray, " K"]:
        if 2 * len(rows) > len(block.ids):
            return self._model.score(self.encoded, block.videos).fused[0].numpy()[rows]
        return self._model.score(self.encoded, block.select(rows)).fused[0].numpy()

    @cached_property
    @torch.inference_mode()
    def vectors(self) -> dict[str, Float32[np.ndarray, "M D"]]:
        """What the query looks for in each branch, without what has no weight."""
        branches = {branch: rows[0].numpy() for branch, rows in self._model.probe(self.encoded).items()}
        return {branch: rows[(rows != 0).any(axis=1)] for branch, rows in branches.items()}

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Those of the model (RAL, Fig. 8), see `Explained`."""
        weights = self._model.word_weights(self.encoded)
        return None if weights is None else weights[0].numpy()

    def doubt(self) -> Doubt | None:
        """The predicted deviation (RAL, Fig. 3) of a model whose run tells what is usual, see `Explained`."""
        deviation = self._model.watched_queries(self.encoded).get(DOUBT)
        usual = self.scorer.usual_doubt
        return None if deviation is None or usual is None else Doubt(deviation.item(), usual)

    @torch.inference_mode()
    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, best first: the best window, then the best that does not meet it."""
        block, row = self.blocks.find(video_id)
        duration_s = torch.tensor([block.durations_s[row]], dtype=torch.float32)
        settings = LocateSettings(limit=limit, per_video=1000, max_overlap=0.0)
        ranked = self._model.locate(self.encoded, block.video(row), duration_s, settings)
        spans = zip(ranked.span_s[0].tolist(), ranked.score[0].tolist(), ranked.video_index[0], strict=True)
        return [Moment(start_s, end_s, score) for (start_s, end_s), score, video in spans if video >= 0]

    @torch.inference_mode()
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times in seconds and how the model's own vectors there fit the query, by its own similarity."""
        block, row = self.blocks.find(video_id)
        units, mask = self._model.timeline(block.video(row))
        fits = self._model.similarity(self.encoded, units if mask is None else units[:, mask[0]])[0, 0].numpy()
        return (np.arange(len(fits)) + 0.5) * (block.durations_s[row] / len(fits)), fits.astype(np.float64)


def exact_of(requests: Sequence[tuple[TrainedQuery, Split[EncodedBlock]]]) -> list[Float32[np.ndarray, " N"]]:
    """Return the model's own scores for queries of one corpus, each of its own videos."""
    if not requests:
        return []
    scorer = requests[0][0].scorer
    by_rows = [number for number, (query, _) in enumerate(requests) if query.uses_codes and scorer.best_rows.are_few]
    read = [(query.encoded, split, query.places) for query, split in (requests[number] for number in by_rows)]
    found = dict(zip(by_rows, exact_scores_of_rows(scorer.in_float64, read), strict=True))
    for number, (query, split) in enumerate(requests):
        query.num_scored += len(split)
        if number not in found:
            found[number] = exact_scores(scorer.in_float64, query.encoded, split)
    return [found[number] for number in range(len(requests))]


_FEWEST = 3  # queries: two cost as much as one after the other
_MOST = 64
_KEPT_BYTES = 2**29  # of what queries find and of their bounds, until the last of them is ranked


class Together:
    """Queries that are asked together; all blocks are looked at for all of them when the first of them asks."""

    def __init__(
        self,
        coded: Callable[[], Mapping[str, CodedBlocks]],
        queries: Callable[[], Iterable[Sequence[tuple[str, Probe]]]],
    ):
        """Once blocks have codes, both give something: `queries` the probes of each, with the branches they look at."""
        self._coded, self._queries = coded, queries
        self._places: list[list[tuple[str, int]]] = []
        self._found: dict[str, Float32[np.ndarray, "P V"]] = {}

    def most(self, number: int) -> Float32[np.ndarray, " V"]:
        """What all probes of a query find at most in each video of all blocks."""
        if not self._places:
            self._look()
        total, *others = (self._found[branch][place] for branch, place in self._places[number])
        for other in others:
            total = total + other
        return total

    def _look(self) -> None:
        probes: dict[str, list[Probe]] = {}
        places: list[list[tuple[str, int]]] = []
        for own in self._queries():
            places.append([])
            for branch, probe in own:
                among = probes.setdefault(branch, [])
                places[-1].append((branch, len(among)))
                among.append(probe)
        coded = self._coded()
        self._found = {branch: coded[branch].by_rows_of_many(some) for branch, some in probes.items()}
        self._places = places


def rank_together(
    queries: Sequence[TrainedQuery], *, limit: int, among: Collection[str] | None = None
) -> list[list[RankedVideo]]:
    """As each of some queries of one corpus ranks; where it pays, the first looks at all videos for the others, too."""
    if len(queries) < 2:
        return [query.rank(limit=limit, among=among) for query in queries]
    num_videos = len(queries[0].blocks)
    kept = 4 * num_videos * (2 + max(query.num_vectors for query in queries))
    number = min(_MOST, max(1, _KEPT_BYTES // max(1, kept)))
    are_most = among is None or 2 * len(among) > num_videos
    ranked: list[list[RankedVideo]] = []
    for start in range(0, len(queries), number):
        some = queries[start : start + number]
        ranked += _rank_some(some, limit, among, share=are_most and len(some) >= _FEWEST)
    return ranked


@torch.inference_mode()
def _rank_some(
    queries: Sequence[TrainedQuery], limit: int, among: Collection[str] | None, *, share: bool
) -> list[list[RankedVideo]]:
    """Each goes on until it asks for exact scores; then all are answered together."""
    probes = partial(map, lambda query: query.probes if query.has_finite_vectors else [], queries)
    together = Together(lambda: queries[0].coded, probes)
    rankings = dict(enumerate(query.ranking(limit=limit, among=among) for query in queries))
    scores: dict[int, Float32[np.ndarray, " _"] | None] = dict.fromkeys(rankings)
    ranked: dict[int, list[RankedVideo]] = {}
    try:
        for number, query in enumerate(queries):
            query.known = partial(together.most, number) if share else None
        while scores:
            asked: dict[int, Split[EncodedBlock]] = {}
            for number, answer in scores.items():
                try:
                    # A generator that has not begun takes nothing but None.
                    asked[number] = rankings[number].send(answer)  # type: ignore[arg-type]
                except StopIteration as end:
                    ranked[number] = end.value
            answers = exact_of([(queries[number], split) for number, split in asked.items()])
            scores = dict(zip(asked, answers, strict=True))
    finally:
        for query in queries:
            query.known = None
    return [ranked[number] for number in rankings]
