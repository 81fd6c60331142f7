"""Rank videos by exact scores, computed only for the candidates that approximate scores or upper bounds leave.

A score is the sum, over a query's vectors, of the best product with a video's rows. The 4-bit codes of all rows give a
first upper bound, unless they are `known` (`rank_together`). For the remaining candidates the 8-bit rows give a closer
bound, one query vector after another, the longest first, while a video can still reach the needed score.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from untrimmed.search.cache.blocks import Block, Split
from untrimmed.search.pruning.codes import CodedBlocks, Probe
from untrimmed.search.pruning.threads import share

_SCOUTS = 2  # times `limit`, for each remaining bound: likely videos that are scored early

B = TypeVar("B", bound=Block)
T = TypeVar("T")


@dataclass(frozen=True)
class RankedVideo:
    """A video and its score."""

    video_id: str
    score: float


Scorer = Callable[[Split[B]], Float[np.ndarray, " _"]]
# A generator that yields videos, receives their exact scores, and returns a result.
Requests = Generator[Split[B], Float[np.ndarray, " _"], T]
Places = Int[np.ndarray, " _"]  # indices into the ranked videos
Bounds = tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]  # estimates and upper bounds of scores
Bound = Callable[[Split[B], Places, float], Bounds]  # the last argument is the score that videos must reach


def answered(requests: Requests[B, T], exact: Scorer[B]) -> T:
    """Return the result of a generator whose requests `exact` answers."""
    try:
        split = next(requests)
        while True:
            split = requests.send(exact(split))
    except StopIteration as end:
        result: T = end.value
        return result


def ranked_by_bounds(videos: Split[B], bounds: Sequence[Bound[B]], limit: int) -> Requests[B, list[RankedVideo]]:
    """Return the `limit` best videos, best first, and all ties with the last one.

    The first bound is computed for all videos. A few likely videos get exact scores first. Each further bound is
    computed only for candidates that can still reach those scores.
    """
    if not len(videos) or limit < 1:
        return []
    first, *closer = bounds
    likely = np.arange(len(videos))
    estimate, upper = first(videos, likely, -np.inf)
    for stage, bound in zip(range(len(closer), 0, -1), closer, strict=True):
        if 2 * (count := limit * _SCOUTS**stage) > len(likely):
            break  # no cheaper than the bounds of all videos
        likely = likely[_largest(estimate, count)]
        estimate, _ = bound(videos.at(likely), likely, -np.inf)
    likely = likely[_largest(estimate, limit if closer else limit * 5 // 4)]  # a close bound leaves few candidates
    scores = yield from _scored(videos.at(likely))
    least = float(np.partition(scores, -limit)[-limit]) if len(scores) >= limit else -np.inf
    remaining = upper >= least
    remaining[likely] = False
    places = np.flatnonzero(remaining)
    for bound in closer:
        if len(places):
            _, upper = bound(videos.at(places), places, least)
            places = places[upper >= least]
    candidate_scores = yield from _scored(videos.at(places))
    return _best(videos, np.concatenate([likely, places]), np.concatenate([scores, candidate_scores]), limit)


def ranked_by_rough_scores(
    videos: Split[B], rough: Scorer[B], limit: int, *, rounding: float
) -> Requests[B, list[RankedVideo]]:
    """Return the `limit` best videos, best first, and all ties with the last one.

    `rounding` bounds the error of approximate scores up to 1; it is scaled up for larger scores.
    """
    if not len(videos) or limit < 1:
        return []
    scores = rough(videos)
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return []
    count = min(limit, len(finite))
    margin = 2 * rounding * max(1.0, float(np.abs(finite).max()))
    least = float(np.partition(finite, len(finite) - count)[len(finite) - count]) - margin
    places = np.flatnonzero(scores >= least)
    return _best(videos, places, (yield from _scored(videos.at(places))), limit)


class UpperBounds(Generic[B]):
    """Upper bounds of scores for one search, the cheapest first."""

    def __init__(
        self,
        coded: Mapping[str, CodedBlocks],
        probes: Sequence[tuple[str, Probe]],
        *,
        margin: float,
        known: Callable[[], Float32[np.ndarray, " V"]] | None = None,
    ):
        """Take codes of all blocks by branch, probes with their branches, and the error of exact scores as `margin`.

        If upper bounds of all videos are already `known`, no codes are read.
        """
        self._coded = coded
        self._margin = margin
        self._known = known
        order = sorted(range(len(probes)), key=lambda number: -probes[number][1].length)
        self._probes = [probes[number] for number in order]
        self._upper = np.empty((len(probes), 0), dtype=np.float32)  # by probe and video

    @property
    def bounds(self) -> Sequence[Bound[B]]:
        """The bounds in order, see `ranked_by_bounds`."""
        if self._known is not None:
            return (self._from_known,)
        return (self._by_codes, self._by_rows)

    @cached_property
    def _at_a_time(self) -> int:
        """Videos that a thread scans at a time: their codes stay in the processor's cache between probes."""
        branches = [branch for branch, _ in self._probes]
        return min(max(1, self._coded[branch].at_a_time // branches.count(branch)) for branch in branches)

    def _from_known(self, split: Split[B], places: Places, _: float) -> Bounds:
        assert self._known is not None
        upper = self._known()
        if len(split) < len(upper):
            upper = upper[next(iter(self._coded.values())).first_video[split.number] + split.row]
        return upper, upper + np.float32(self._margin)

    def _by_codes(self, split: Split[B], places: Places, _: float) -> Bounds:
        self._upper = np.empty((len(self._probes), len(places)), dtype=np.float32)
        best = np.empty(len(places), dtype=np.float32)

        def scan(start: int, stop: int) -> None:
            bounds = [self._coded[branch].by_codes(probe, split, start, stop) for branch, probe in self._probes]
            best[start:stop] = sum(estimate for estimate, _ in bounds)
            self._upper[:, start:stop] = [upper for _, upper in bounds]

        share(len(split), self._at_a_time, scan)
        return best, self._upper.sum(axis=0) + np.float32(self._margin)

    def _by_rows(self, split: Split[B], places: Places, least: float) -> Bounds:
        by_probe = self._upper[:, places]
        total = by_probe.sum(axis=0, dtype=np.float64)
        candidates = np.flatnonzero(np.isfinite(total))
        for (branch, probe), upper in zip(self._probes, by_probe, strict=True):
            rest = total[candidates] - upper[candidates]
            closer = self._coded[branch].by_rows(probe, split.at(candidates), least - self._margin - rest)
            total[candidates] = rest + closer
            candidates = candidates[total[candidates] + self._margin >= least]
        return total, total + self._margin


def _best(
    videos: Split[B], places: Int[np.ndarray, " K"], scores: Float[np.ndarray, " K"], limit: int
) -> list[RankedVideo]:
    limit = min(limit, int(np.isfinite(scores).sum()))
    if limit <= 0:
        return []
    order = np.lexsort((places, -scores))
    order = order[: np.searchsorted(-scores[order], -scores[order[limit - 1]], side="right")]
    ids = videos.at(places[order]).ids
    return [RankedVideo(*pair) for pair in zip(ids, scores[order].tolist(), strict=True)]


def _scored(videos: Split[B]) -> Requests[B, Float[np.ndarray, " _"]]:
    """Request exact scores, and replace those that are not finite by minus infinity."""
    if not len(videos):
        return np.empty(0)
    scores = yield videos
    return np.where(np.isfinite(scores), scores, -np.inf)


def _largest(values: Float[np.ndarray, " N"], count: int) -> Bool[np.ndarray, " N"]:
    """Return a mask of the `count` largest finite numbers; more with ties, or if too few are finite."""
    if count >= len(values):
        return np.ones(len(values), dtype=bool)
    finite = np.where(np.isfinite(values), values, -np.inf)
    return np.asarray(finite >= np.partition(finite, -count)[-count])
