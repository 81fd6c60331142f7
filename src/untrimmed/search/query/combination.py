"""Combine several prepared queries into one: terms to find, a following moment (`then`), and exclusions.

This works for all models, because it only needs the score of a video and its relevance over time (the curve). A curve
is shifted so that its maximum is the score of the video.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.errors import UntrimmedError
from untrimmed.moments.peaks import span_around, widened
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.types import Moment

# number of best videos of each term with which `rank` starts; it is increased until no other video can be a hit
_FIRST_TAKE = 32
_ROUNDING = 1e-9
_CLOSE_S = 1e-6  # times with a smaller difference count as equal

Curve = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class Term:
    """A query and its weight in the sum."""

    query: PreparedQuery
    weight: float = 1.0


@dataclass(frozen=True)
class Exclusion:
    """A query to avoid. Times whose relevance for this query exceeds `usual` get a lower score."""

    query: PreparedQuery
    usual: float  # a usual score for this query, e.g. the median in the library


@dataclass(frozen=True)
class _Curves:
    """The relevance of one video over time, for the first and for the second moment (`then`) of a pair.

    Without `then`, both curves are equal.
    """

    times_s: Curve
    first: Curve
    then: Curve


class CombinedQuery(PreparedQuery):
    """Several prepared queries as one. With `then`, the query finds pairs of moments.

    The score of a time is the weighted mean of the terms minus a penalty. The penalty is the weight `without` times the
    largest amount by which an exclusion's curve exceeds the exclusion's usual score. This maximum is taken over the
    shot that contains the time, or over the whole video if `nowhere` is set. The score of a video is the score of its
    best time.

    With `then`, the score of a video is the score of its best pair of times. The second time is at most `within_s`
    seconds after the first. The score of a pair is the weighted mean of the scores of both times.
    """

    def __init__(
        self,
        terms: Sequence[Term],
        *,
        duration_s: Callable[[str], float],
        then: Term | None = None,
        within_s: float = 60.0,
        exclusions: Sequence[Exclusion] = (),
        without: float = 1.0,
        nowhere: bool = False,
    ):
        """Combine prepared queries. `duration_s` returns the duration of a video by its id.

        `then.weight` is the weight of the second time's score in the score of a pair. It must be below 1.
        """
        self._duration_s = duration_s
        self._within_s = within_s
        self._exclusions = tuple(exclusions)
        self._without = without
        self._nowhere = nowhere
        self._then_share = share = then.weight if then else 0.0
        total = sum(term.weight for term in terms)
        self._first = [Term(term.query, (1 - share) * term.weight / total) for term in terms]
        self._then = then
        self._terms = [*self._first, *([then] if then else [])]
        self._queries = [*(term.query for term in self._terms), *(exclusion.query for exclusion in exclusions)]
        self._scores: list[dict[str, float]] = [{} for _ in self._queries]
        self._combined: dict[str, float] = {}
        self._curves_of: dict[str, _Curves] = {}

    @property
    def missing(self) -> str:
        """The warning of the first part with incomplete results, or an empty text."""
        return next((query.missing for query in self._queries if query.missing), "")

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the best videos, see `PreparedQuery.rank`.

        Only videos that rank high for some term are scored. The result is still exact, because a video's score is at
        most the weighted sum of its scores for the terms.
        """
        take = max(_FIRST_TAKE, 4 * limit)
        while True:
            ranked = [term.query.rank(limit=take, among=among) for term in self._terms]
            for scores, videos in zip(self._scores, ranked, strict=False):
                scores.update((video.video_id, video.score) for video in videos)
            candidates = dict.fromkeys(video.video_id for videos in ranked for video in videos)
            combined = sorted(self._combine(candidates), key=lambda video: -video.score)
            last = combined[min(limit, len(combined)) - 1].score if combined else -np.inf
            bound = sum(t.weight * videos[-1].score for t, videos in zip(self._terms, ranked, strict=True) if videos)
            if any(len(videos) < take for videos in ranked) or (len(combined) >= limit and last > bound + _ROUNDING):
                return [video for video in combined if video.score >= last]
            take *= 4

    def moments(self, video_id: str, *, limit: int | None, min_s: float = 0.0, nested: bool = False) -> list[Moment]:
        """Return disjoint spans of one video, best first. With `then`, return the first span of each pair."""
        return [first for first, _ in self.pairs(video_id, limit=limit, min_s=min_s)]

    def pairs(self, video_id: str, *, limit: int | None, min_s: float = 0.0) -> list[tuple[Moment, Moment | None]]:
        """Return spans of one video, best first. With `then`, each is paired with the span that follows it.

        The score of a span is the value of the curve at the span's best time. The span extends to both sides for as
        long as the curve does not fall below a threshold: the midpoint between this score and the curve's mean. The
        first spans of pairs do not overlap. In every pair but the best, the best time of the first span must be a peak
        of the curve. Without this rule, the slope beside one moment could be returned as another moment.

        If `limit` is None, only pairs whose first span scores at least the midpoint between the best first span's score
        and the curve's mean are returned. Spans shorter than `min_s` are widened. If there is no space to widen a span,
        its pair is left out, unless it is the best pair.
        """
        curves = self._curves(video_id)
        duration_s = self._duration_s(video_id)
        taken = np.zeros(len(curves.times_s), dtype=bool)
        free = ~taken
        pairs: list[tuple[Moment, Moment | None]] = []
        while len(pairs) != limit and (best := self._best(curves, free)) is not None:
            index, then_index = best
            if limit is None and pairs and curves.first[index] < (pairs[0][0].score + curves.first.mean()) / 2:
                taken[index] = True
                free &= ~taken
                continue
            start, stop = span_around(curves.first, index, ~taken, curves.first.mean())
            second = None
            if self._then is not None:
                after, end = span_around(curves.then, then_index, np.arange(len(taken)) > index, curves.then.mean())
                if after < stop:
                    after = stop = max(index + 1, (index + then_index + 1) // 2)
                second = self._moment(video_id, curves.then, after, end, then_index)
            first = self._moment(video_id, curves.first, start, stop, index)
            peak_s = curves.times_s[index]
            others = [moment for moment, _ in pairs]
            after_s = max((other.end_s for other in others if other.end_s <= peak_s), default=0.0)
            before_s = min((other.start_s for other in others if peak_s <= other.start_s), default=duration_s)
            before_s = before_s if second is None else min(before_s, second.start_s)
            first = _widened(first, min_s, after_s, before_s)
            second = second and _widened(second, min_s, first.end_s, duration_s)
            is_long = all(moment.end_s - moment.start_s >= min_s - _CLOSE_S for moment in (first, second) if moment)
            if is_long or not pairs:
                pairs.append((first, second))
            taken[start:stop] = True
            taken |= (curves.times_s >= first.start_s) & (curves.times_s <= first.end_s)
            free = _peaks(curves.first) & ~taken
        return pairs

    def pair_score(self, first: Moment, second: Moment | None) -> float:
        """Return the score of a pair of moments."""
        return first.score if second is None else (1 - self._then_share) * first.score + self._then_share * second.score

    def relevance(self, video_id: str) -> tuple[Curve, Curve]:
        """Return times of one video in seconds, and the relevance at each time.

        With `then`, this is the relevance for the first moment.
        """
        curves = self._curves(video_id)
        return curves.times_s, curves.first

    def _combine(self, video_ids: Collection[str]) -> list[RankedVideo]:
        """Return videos with combined scores, without those that have no pair or whose shard does not answer."""
        new = [video_id for video_id in video_ids if video_id not in self._combined]
        self._score_all(new)
        self._combined.update((video_id, self._score_of(video_id)) for video_id in new)
        return [RankedVideo(v, self._combined[v]) for v in video_ids if self._combined[v] > -np.inf]

    def _score_of(self, video_id: str) -> float:
        try:
            curves = self._curves(video_id)
        except (UntrimmedError, KeyError):
            if not self.missing:
                raise
            return -np.inf
        best = self._best(curves, np.ones(len(curves.times_s), dtype=bool))
        if best is None:
            return -np.inf
        return float((1 - self._then_share) * curves.first[best[0]] + self._then_share * curves.then[best[1]])

    def _score_all(self, video_ids: Collection[str]) -> None:
        """Compute the scores of these videos for each part of the query, unless they are known."""
        for query, scores in zip(self._queries, self._scores, strict=True):
            if missing_ids := [video_id for video_id in video_ids if video_id not in scores]:
                try:
                    ranked = query.rank(limit=len(missing_ids), among=missing_ids)
                except UntrimmedError:
                    if not self.missing:
                        raise
                    continue  # the shard does not answer, so its videos are skipped
                scores.update((video.video_id, video.score) for video in ranked)

    def _curves(self, video_id: str) -> _Curves:
        if video_id not in self._curves_of:
            self._score_all([video_id])
            curves = [
                _with_best_score(query.relevance(video_id), scores[video_id])
                for query, scores in zip(self._queries, self._scores, strict=True)
            ]
            times_s = curves[0][0]
            values = [v if times is times_s else np.interp(times_s, times, v) for times, v in curves]
            weighted = [term.weight * v for term, v in zip(self._first, values, strict=False)]
            first = np.sum(weighted, axis=0) / sum(term.weight for term in self._first)
            then = values[len(self._first)] if self._then else first
            excluded = zip(values[len(self._terms) :], self._exclusions, strict=True)
            excess = [np.maximum(0.0, v - exclusion.usual) for v, exclusion in excluded]
            largest = self._largest_of_shot(video_id, times_s, np.max(excess, axis=0)) if excess else 0.0
            penalty = self._without * largest
            self._curves_of[video_id] = _Curves(times_s, first - penalty, then - penalty)
        return self._curves_of[video_id]

    def _largest_of_shot(self, video_id: str, times_s: Curve, values: Curve) -> Curve:
        """Return, for each time, the largest value in the same shot, or in the whole video if `nowhere` is set."""
        if self._nowhere:
            return np.full(len(values), values.max())
        starts_s = self._exclusions[0].query.shot_starts_s(video_id)
        if starts_s is None:
            return values
        shot = np.searchsorted(starts_s, times_s, side="right") - 1
        largest = np.full(len(starts_s), -np.inf)
        np.maximum.at(largest, shot, values)
        return largest[shot]

    def _moment(self, video_id: str, values: Curve, start: int, stop: int, best: int) -> Moment:
        """Return the moment of the times `start` to `stop - 1`. It extends halfway to the times before and after."""
        times_s = self._curves(video_id).times_s
        edges_s = np.concatenate([[0.0], (times_s[1:] + times_s[:-1]) / 2, [self._duration_s(video_id)]])
        span_s = float(edges_s[start]), float(max(edges_s[start : stop + 1]))
        return Moment(*span_s, float(values[best]), float(times_s[best]))

    def _best(self, curves: _Curves, free: Bool[np.ndarray, " T"]) -> tuple[int, int] | None:
        """Return the indices of the best pair of times whose first time is `free`, or None if there is none."""
        first = np.where(free, curves.first, -np.inf)
        if self._then is None:
            best = int(first.argmax())
            return (best, best) if free.any() else None
        indices, values = best_earlier_times(first, curves.times_s, self._within_s)
        sums = (1 - self._then_share) * values + self._then_share * curves.then
        best = int(sums.argmax())
        return (int(indices[best]), best) if sums[best] > -np.inf else None


def best_earlier_times(
    values: Curve, times_s: Curve, within_s: float
) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Return the index and value of the best time in the `within_s` seconds before each time.

    If there is no such time, the value is minus infinity. Of equal values, the earliest is chosen.

    >>> index, value = best_earlier_times(np.array([3.0, 1.0, 2.0, 0.0]), np.array([0.0, 1.0, 2.0, 3.0]), 2.0)
    >>> index[1:].tolist(), value.tolist()
    ([0, 0, 2], [-inf, 3.0, 3.0, 2.0])
    """
    stop = np.searchsorted(times_s, times_s - _CLOSE_S)
    start = np.minimum(np.searchsorted(times_s, times_s - within_s - _CLOSE_S), stop)
    index = np.zeros(len(values), dtype=np.int64)
    value = np.full(len(values), -np.inf)
    best = np.arange(len(values))  # for each index, the index of the best of the next `width` values
    width = 1
    while True:
        times = np.flatnonzero((stop - start >= width) & (stop - start < 2 * width))
        left = best[start[times]]
        right = best[stop[times] - width]
        index[times] = np.where(values[left] >= values[right], left, right)
        value[times] = values[index[times]]
        if 2 * width > len(values):
            break
        left = best[: len(best) - width]
        right = best[width:]
        best = np.where(values[left] >= values[right], left, right)
        width *= 2
    return index, value


def _with_best_score(curve: tuple[Curve, Curve], score: float) -> tuple[Curve, Curve]:
    times_s, values = curve
    return times_s, values + (score - values.max())


def _peaks(values: Curve) -> Bool[np.ndarray, " T"]:
    """Return a mask of the peaks: the times whose value is at least as high as the values before and after."""
    around = np.concatenate([[-np.inf], values, [-np.inf]])
    return np.asarray((values >= around[:-2]) & (values >= around[2:]))


def _widened(moment: Moment, min_s: float, after_s: float, before_s: float) -> Moment:
    """Return a moment, clipped to the time from `after_s` to `before_s`, and widened to `min_s` if there is space."""
    start_s = max(moment.start_s, after_s)
    end_s = min(moment.end_s, before_s)
    start_s, end_s = widened(start_s, end_s, min_s, after_s=after_s, before_s=before_s)
    return replace(moment, start_s=start_s, end_s=end_s)
