"""Several prepared queries as one: what is to be seen, what is to follow it, and what must not be seen.

It uses what any corpus gives, a score and a curve of relevance for each video, so that training-free and trained models
are combined in the same way. A curve is shifted so that its best time has the score of its video.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.errors import UntrimmedError
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.types import Moment

_FIRST_TAKE = 32  # videos of each part; more where others might be among the best
_ROUNDING = 1e-9
_CLOSE_S = 1e-6  # times that differ by less are one time

Curve = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class Term:
    """A part of the sum, and what it weighs there."""

    query: PreparedQuery
    weight: float = 1.0


@dataclass(frozen=True)
class Unwanted:
    """What must not be seen: relevance above what is usual in the library counts against a time."""

    query: PreparedQuery
    usual: float


@dataclass(frozen=True)
class _Curves:
    """The two sides of the query over the time of one video; without `then` the second is the first."""

    times_s: Curve
    first: Curve
    then: Curve


class CombinedQuery(PreparedQuery):
    """Several prepared queries as one, which finds pairs of moments where something is to follow.

    At a time, what is wanted has the mean of its terms by their weights, less `without` times the most that anything
    unwanted is above what is usual. A video has the score of its best time; with `then`, of its best two times that
    follow each other within `within_s` seconds: the mean of both, by their weights.
    """

    def __init__(
        self,
        wanted: Sequence[Term],
        *,
        duration_s: Callable[[str], float],
        then: Term | None = None,
        within_s: float = 60.0,
        unwanted: Sequence[Unwanted] = (),
        without: float = 1.0,
    ):
        """`then.weight` is its share of a pair's score, below 1; `duration_s` gives the length of a video by its id."""
        self._duration_s, self._within_s = duration_s, within_s
        self._unwanted, self._without = tuple(unwanted), without
        self._share = share = then.weight if then else 0.0
        total = sum(term.weight for term in wanted)
        self._wanted = [Term(term.query, (1 - share) * term.weight / total) for term in wanted]
        self._then = then
        self._terms = [*self._wanted, *([then] if then else [])]
        self._queries = [*(term.query for term in self._terms), *(one.query for one in self._unwanted)]
        self._scores: list[dict[str, float]] = [{} for _ in self._queries]
        self._known: dict[str, float] = {}
        self._curves_of: dict[str, _Curves] = {}

    @property
    def missing(self) -> str:
        """What the answers of any part lack so far."""
        return next((query.missing for query in self._queries if query.missing), "")

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos, see `PreparedQuery.rank`: exact, since no video is above the sum of its terms' scores."""
        take = max(_FIRST_TAKE, 4 * limit)
        while True:
            ranked = [term.query.rank(limit=take, among=among) for term in self._terms]
            for scores, some in zip(self._scores, ranked, strict=False):
                scores.update((video.video_id, video.score) for video in some)
            seen = dict.fromkeys(video.video_id for some in ranked for video in some)
            found = sorted(self._rate(seen), key=lambda video: -video.score)
            last = found[min(limit, len(found)) - 1].score if found else -np.inf
            bound = sum(t.weight * some[-1].score for t, some in zip(self._terms, ranked, strict=True) if some)
            if any(len(some) < take for some in ranked) or (len(found) >= limit and last > bound + _ROUNDING):
                return [video for video in found if video.score >= last]
            take *= 4

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Spans of one video, best first, that share no time; what follows them is in `pairs`."""
        return [first for first, _ in self.pairs(video_id, limit=limit)]

    def pairs(self, video_id: str, *, limit: int) -> list[tuple[Moment, Moment | None]]:
        """Spans of one video with the one that follows each, best pair first; no two first ones share time.

        After the best pair, a first one is about a peak of the curve: the slopes of one moment are no others.

        A span is the time around the best one in which the curve stays at least half way from its mean to there; its
        score is that of the best one.
        """
        curves = self._curves(video_id)
        taken = np.zeros(len(curves.times_s), dtype=bool)
        free = ~taken
        found: list[tuple[Moment, Moment | None]] = []
        while len(found) < limit and (best := self._best(curves, free)) is not None:
            one, other = best
            start, stop = _around(curves.first, one, ~taken)
            second = None
            if self._then is not None:
                after, end = _around(curves.then, other, np.arange(len(taken)) > one)
                if after < stop:
                    after = stop = max(one + 1, (one + other + 1) // 2)
                second = self._moment(video_id, curves.then, after, end, other)
            found.append((self._moment(video_id, curves.first, start, stop, one), second))
            taken[start:stop] = True
            free = _peaks(curves.first) & ~taken
        return found

    def pair_score(self, first: Moment, second: Moment | None) -> float:
        """What a pair of moments scores, from what each of both does."""
        return first.score if second is None else (1 - self._share) * first.score + self._share * second.score

    def relevance(self, video_id: str) -> tuple[Curve, Curve]:
        """Times in seconds and how well each fits; with `then`, as the first of the two."""
        curves = self._curves(video_id)
        return curves.times_s, curves.first

    def _rate(self, video_ids: Iterable[str]) -> list[RankedVideo]:
        """The scores of videos, without those in which nothing can follow anything, or whose shard does not answer."""
        wanted = list(video_ids)
        self._score_all([video_id for video_id in wanted if video_id not in self._known])
        for video_id in wanted:
            if video_id not in self._known:
                self._known[video_id] = self._score_of(video_id)
        return [RankedVideo(v, self._known[v]) for v in wanted if self._known[v] > -np.inf]

    def _score_of(self, video_id: str) -> float:
        try:
            curves = self._curves(video_id)
        except (UntrimmedError, KeyError):
            if not self.missing:
                raise
            return -np.inf
        best = self._best(curves, np.ones(len(curves.times_s), dtype=bool))
        return -np.inf if best is None else self._pair_score(curves, *best)

    def _score_all(self, video_ids: Collection[str]) -> None:
        """Have every part's own score of these videos."""
        for query, scores in zip(self._queries, self._scores, strict=True):
            if lacking := [video_id for video_id in video_ids if video_id not in scores]:
                try:
                    ranked = query.rank(limit=len(lacking), among=lacking)
                except UntrimmedError:
                    if not self.missing:
                        raise
                    continue  # videos of a shard that has died: they are left out
                scores.update((video.video_id, video.score) for video in ranked)

    def _curves(self, video_id: str) -> _Curves:
        if video_id not in self._curves_of:
            self._score_all([video_id])
            curves = [
                _shifted(query.relevance(video_id), scores[video_id])
                for query, scores in zip(self._queries, self._scores, strict=True)
            ]
            times_s = curves[0][0]
            own = [values if times is times_s else np.interp(times_s, times, values) for times, values in curves]
            wanted, unwanted = own[: len(self._wanted)], own[len(self._terms) :]
            weighed = [term.weight * values for term, values in zip(self._wanted, wanted, strict=True)]
            first = np.sum(weighed, axis=0) / sum(term.weight for term in self._wanted)
            then = own[len(self._wanted)] if self._then else first
            above = [np.maximum(0.0, v - u.usual) for v, u in zip(unwanted, self._unwanted, strict=True)]
            less = self._without * np.max(above, axis=0) if above else 0.0
            self._curves_of[video_id] = _Curves(times_s, first - less, then - less)
        return self._curves_of[video_id]

    def _pair_score(self, curves: _Curves, one: int, other: int) -> float:
        return float((1 - self._share) * curves.first[one] + self._share * curves.then[other])

    def _moment(self, video_id: str, values: Curve, start: int, stop: int, best: int) -> Moment:
        """From half way to the time before, to half way to the time after."""
        times_s = self._curves(video_id).times_s
        edges_s = np.concatenate([[0.0], (times_s[1:] + times_s[:-1]) / 2, [self._duration_s(video_id)]])
        return Moment(float(edges_s[start]), float(max(edges_s[start : stop + 1])), float(values[best]))

    def _best(self, curves: _Curves, free: Bool[np.ndarray, " T"]) -> tuple[int, int] | None:
        """The best time among the free ones, and the best that follows it; None where there is none."""
        first = np.where(free, curves.first, -np.inf)
        if self._then is None:
            best = int(first.argmax())
            return (best, best) if free.any() else None
        before, value = best_before(first, curves.times_s, self._within_s)
        sums = (1 - self._share) * value + self._share * curves.then
        other = int(sums.argmax())
        return (int(before[other]), other) if sums[other] > -np.inf else None


def best_before(
    values: Curve, times_s: Curve, within_s: float
) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """For each time the best of those before it by at most so many seconds, as its place and value.

    Where nothing comes before, the value is minus infinity. Of equal ones the first counts.

    >>> place, value = best_before(np.array([3.0, 1.0, 2.0, 0.0]), np.array([0.0, 1.0, 2.0, 3.0]), 2.0)
    >>> place[1:].tolist(), value.tolist()
    ([0, 0, 2], [-inf, 3.0, 3.0, 2.0])
    """
    stop = np.searchsorted(times_s, times_s - _CLOSE_S)
    start = np.minimum(np.searchsorted(times_s, times_s - within_s - _CLOSE_S), stop)
    place, value = np.zeros(len(values), dtype=np.int64), np.full(len(values), -np.inf)
    best, width = np.arange(len(values)), 1  # of the `width` values from each place on
    while True:
        some = np.flatnonzero((stop - start >= width) & (stop - start < 2 * width))
        left, right = best[start[some]], best[stop[some] - width]
        place[some] = np.where(values[left] >= values[right], left, right)
        value[some] = values[place[some]]
        if 2 * width > len(values):
            break
        left, right = best[: len(best) - width], best[width:]
        best, width = np.where(values[left] >= values[right], left, right), 2 * width
    return place, value


def _shifted(curve: tuple[Curve, Curve], score: float) -> tuple[Curve, Curve]:
    times_s, values = curve
    return times_s, values + (score - values.max())


def _peaks(values: Curve) -> Bool[np.ndarray, " T"]:
    """Times that are no worse than the ones before and after."""
    around = np.concatenate([[-np.inf], values, [-np.inf]])
    return np.asarray((values >= around[:-2]) & (values >= around[2:]))


def _around(values: Curve, place: int, free: Bool[np.ndarray, " T"]) -> tuple[int, int]:
    """The run of free times about a place whose values are at least half way from the mean to the one there."""
    low = (values < (values[place] + values.mean()) / 2) | ~free
    low[place] = False
    before, after = np.flatnonzero(low[:place]), np.flatnonzero(low[place:])
    return (int(before[-1]) + 1 if len(before) else 0), (place + int(after[0]) if len(after) else len(values))
