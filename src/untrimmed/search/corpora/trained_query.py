"""Queries for a trained model. It ranks videos by its own score and finds moments by its own method."""

import itertools
from collections.abc import Collection, Sequence
from functools import cache, cached_property, partial
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32

from untrimmed.batches import EncodedQueries
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.peaks import best_index, widened
from untrimmed.search.cache.blocks import Selection
from untrimmed.search.corpora.corpus import LocalCorpus, LocalQuery, Uncertainty
from untrimmed.search.corpora.encoded_block import EncodedBlock, Units
from untrimmed.search.corpora.exact_scores import ScoreRequest, ScoringModel, exact_scores, exact_scores_of_best_units
from untrimmed.search.pruning.codes import Probe
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.types import Moment

UNCERTAINTY = "query_uncertainty"  # name of the deviation in `watched_queries`
_MIN_QUERIES = 3  # smallest number of queries that share a scan; for two queries, two scans take no longer
_MAX_QUERIES = 64
_MAX_BYTES = 2**29  # memory for the upper bounds of a batch of queries


class TrainedQuery(LocalQuery[EncodedBlock]):
    """A query that a trained model has encoded, for a corpus of encoded videos."""

    rounding: ClassVar[float] = 1e-5

    def __init__(self, corpus: LocalCorpus[EncodedBlock], scorer: ScoringModel, encoded: EncodedQueries):
        super().__init__(corpus)
        self.scorer = scorer
        self.encoded = encoded
        self._model = scorer.model

    @torch.inference_mode()
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the best videos by the model's own score, see `PreparedQuery.rank`."""
        return super().rank(limit=limit, among=among)

    def exact(self, selection: Selection[EncodedBlock]) -> Float32[np.ndarray, " N"]:
        """Return exact scores, which do not depend on the other videos."""
        return score_exactly([(self, selection)])[0]

    @torch.inference_mode()
    def rough(self, selection: Selection[EncodedBlock]) -> Float[np.ndarray, " N"]:
        """Return the model's scores in single precision."""
        scores = []
        for block, rows in selection:
            has_most = 2 * len(rows) > len(block.ids)
            values = self._model.score(self.encoded, block.videos if has_most else block.select(rows)).fused[0].numpy()
            scores.append(values[rows] if has_most else values)
        return np.concatenate(scores)

    def find_units(self, selection: Selection[EncodedBlock]) -> Units:
        """Return the units of videos that, according to the codes, may have the best score."""
        return self.scorer.best_units.find(self.codes, self.probes, selection)

    @cached_property
    @torch.inference_mode()
    def vectors(self) -> dict[str, Float32[np.ndarray, "M D"]]:
        """The query's vectors by branch, without zero vectors."""
        branches = {branch: rows[0].numpy() for branch, rows in self._model.probe(self.encoded).items()}
        return {branch: rows[(rows != 0).any(axis=1)] for branch, rows in branches.items()}

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Return the weights that the model gives the encoded words (RAL, Fig. 8), or None if it gives none."""
        weights = self._model.word_weights(self.encoded)
        return None if weights is None else weights[0].numpy()

    def uncertainty(self) -> Uncertainty | None:
        """Return the predicted deviation (RAL, Fig. 3), or None if there is none or its usual value is unknown."""
        deviation = self._model.watched_queries(self.encoded).get(UNCERTAINTY)
        usual = self.scorer.usual_uncertainty
        return None if deviation is None or usual is None else Uncertainty(deviation.item(), usual)

    @torch.inference_mode()
    def moments(self, video_id: str, *, limit: int | None, min_s: float = 0.0, nested: bool = False) -> list[Moment]:
        """Return spans of one video in seconds, best first. They do not overlap, and short spans are widened.

        If `limit` is None, a span is returned only if its score is at least the midpoint between the best score and the
        video's mean relevance.
        """
        block, row = self.blocks.find(video_id)
        duration_s = torch.tensor([block.durations_s[row]], dtype=torch.float32)
        settings = LocateSettings(limit=1000, per_video=1000, max_overlap=0.0)
        ranked = self._model.locate(self.encoded, block.video(row), duration_s, settings)
        times_s, values = self.relevance(video_id)
        video_s = float(block.durations_s[row])
        moments: list[Moment] = []
        ranked_spans = zip(ranked.span_s[0].tolist(), ranked.score[0].tolist(), strict=True)
        for (start_s, end_s), score in itertools.islice(ranked_spans, int(ranked.count[0])):
            best_s = times_s[best_index(start_s, end_s, times_s, values)]
            peak_s = float(np.clip(best_s, start_s, end_s))  # a span may be between two times of the curve
            start_s, end_s = widened(start_s, end_s, min_s, after_s=0.0, before_s=video_s)
            if all(end_s <= other.start_s or other.end_s <= start_s for other in moments):
                moments.append(Moment(start_s, end_s, score, peak_s))
            if len(moments) == limit:
                break
        if limit is None:
            least = (moments[0].score + values.mean()) / 2
            moments = [moment for moment in moments if moment is moments[0] or moment.score >= least]
        return moments

    @torch.inference_mode()
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the model's similarity of the query and the video at each time."""
        block, row = self.blocks.find(video_id)
        units, mask = self._model.timeline(block.video(row))
        values = self._model.similarity(self.encoded, units if mask is None else units[:, mask[0]])[0, 0].numpy()
        return (np.arange(len(values)) + 0.5) * (block.durations_s[row] / len(values)), values.astype(np.float64)


def score_exactly(requests: Sequence[tuple[TrainedQuery, Selection[EncodedBlock]]]) -> list[Float32[np.ndarray, " N"]]:
    """Return the exact scores for several queries of one corpus, each with its own videos."""
    if not requests:
        return []
    scorer = requests[0][0].scorer
    batch = {
        number: ScoreRequest(query.encoded, selection, query.find_units)
        for number, (query, selection) in enumerate(requests)
        if query.uses_codes and scorer.best_units.are_enough
    }
    scores = dict(zip(batch, exact_scores_of_best_units(scorer.in_float64, [*batch.values()]), strict=True))
    for number, (query, selection) in enumerate(requests):
        query.num_scored += len(selection)
        if number not in scores:
            scores[number] = exact_scores(scorer.in_float64, query.encoded, selection)
    return [scores[number] for number in range(len(requests))]


def rank_together(
    queries: Sequence[TrainedQuery], *, limit: int, among: Collection[str] | None = None
) -> list[list[RankedVideo]]:
    """Return the ranking for each of several queries of one corpus. If this saves time, all queries share one scan."""
    if len(queries) < 2:
        return [query.rank(limit=limit, among=among) for query in queries]
    num_videos = len(queries[0].blocks)
    num_vectors = max(sum(map(len, query.vectors.values())) for query in queries)
    step = min(_MAX_QUERIES, max(1, _MAX_BYTES // max(1, 4 * num_videos * (2 + num_vectors))))
    has_most_videos = among is None or 2 * len(among) > num_videos
    ranked: list[list[RankedVideo]] = []
    for start in range(0, len(queries), step):
        batch = queries[start : start + step]
        ranked += _rank_batch(batch, limit, among, share_bounds=has_most_videos and len(batch) >= _MIN_QUERIES)
    return ranked


@torch.inference_mode()
def _rank_batch(
    queries: Sequence[TrainedQuery], limit: int, among: Collection[str] | None, *, share_bounds: bool
) -> list[list[RankedVideo]]:
    """Return the ranking for each query.

    Exact scores are computed together. With `share_bounds`, the bounds are computed together too.
    """
    bounds_of_queries = cache(lambda: _bounds_of_queries(queries))  # computed when the first query needs them

    def upper_bounds(number: int) -> Float32[np.ndarray, " V"]:
        first, *others = bounds_of_queries()[number]
        return sum(others, first)

    rankings = dict(enumerate(query.ranking_steps(limit=limit, among=among) for query in queries))
    scores: dict[int, Float32[np.ndarray, " _"] | None] = dict.fromkeys(rankings)
    ranked: dict[int, list[RankedVideo]] = {}
    try:
        for number, query in enumerate(queries):
            query.shared_bounds = partial(upper_bounds, number) if share_bounds else None
        while scores:
            requests: dict[int, Selection[EncodedBlock]] = {}
            for number, values in scores.items():
                try:
                    # a new generator accepts only None
                    requests[number] = rankings[number].send(values)  # type: ignore[arg-type]
                except StopIteration as end:
                    ranked[number] = end.value
            answers = score_exactly([(queries[number], selection) for number, selection in requests.items()])
            scores = dict(zip(requests, answers, strict=True))
    finally:
        for query in queries:
            query.shared_bounds = None
    return [ranked[number] for number in rankings]


def _bounds_of_queries(queries: Sequence[TrainedQuery]) -> list[list[Float32[np.ndarray, " V"]]]:
    """Return, for each query and each of its probes, an upper bound per video. All blocks must have codes."""
    probes = [query.probes if query.has_finite_vectors else [] for query in queries]
    by_branch: dict[str, list[Probe]] = {}
    for branch, probe in chain.from_iterable(probes):
        by_branch.setdefault(branch, []).append(probe)
    coded = queries[0].codes
    bounds = {branch: iter(coded[branch].bounds_of_many(batch)) for branch, batch in by_branch.items()}
    return [[next(bounds[branch]) for branch, _ in query_probes] for query_probes in probes]
