"""Rank videos by exact scores, which are computed only for those that cheaper scores or upper bounds leave.

A score is the sum of what each of a query's vectors finds best in a video. All vectors are compared with the codes of
all rows, unless upper bounds are known already (`Together`). Of the videos that remain whole rows are
read, by one vector after the other, the longest first, while a video can still reach the score that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from untrimmed.search.cache.blocks import Block, Split
from untrimmed.search.pruning.codes import CodedBlocks, Probe
from untrimmed.search.pruning.threads import share

_SCOUTS = 2  # times `limit`: how many likely videos are scored early, for each bound that remains

B = TypeVar("B", bound=Block)
T = TypeVar("T")


@dataclass(frozen=True)
class RankedVideo:
    """A video and its score."""

    video_id: str
    score: float


Scorer = Callable[[Split[B]], Float[np.ndarray, " _"]]
# Yields videos whose exact scores it needs, receives these scores, and returns a result.
Requests = Generator[Split[B], Float[np.ndarray, " _"], T]
Places = Int[np.ndarray, " _"]  # of some videos among all that are ranked
Bounds = tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]  # an estimate of each video's score, and a bound
Bound = Callable[[Split[B], Places, float], Bounds]  # given the score that videos have to reach


def answered(requests: Requests[B, T], exact: Scorer[B]) -> T:
    """Return the result of requests that `exact` answers."""
    try:
        split = next(requests)
        while True:
            split = requests.send(exact(split))
    except StopIteration as end:
        result: T = end.value
        return result


def ranked_by_bounds(videos: Split[B], bounds: Sequence[Bound[B]], limit: int) -> Requests[B, list[RankedVideo]]:
    """Return the `limit` best videos and all that tie with the last of them, best first.

    The first bound sees all videos. A few likely videos are scored first; after that, each further bound sees only
    the videos that can still reach the scores of these.
    """
    if not len(videos) or limit < 1:
        return []
    first, *others = bounds
    likely = np.arange(len(videos))
    estimate, upper = first(videos, likely, -np.inf)
    for stage, bound in zip(range(len(others), 0, -1), others, strict=True):
        if 2 * (count := limit * _SCOUTS**stage) > len(likely):
            break  # so many cost as much as all of them
        likely = likely[_largest(estimate, count)]
        estimate, _ = bound(videos.at(likely), likely, -np.inf)
    likely = likely[_largest(estimate, limit if others else limit * 5 // 4)]  # a close bound leaves few others
    scores = yield from _scored(videos.at(likely))
    least = float(np.partition(scores, -limit)[-limit]) if len(scores) >= limit else -np.inf
    remaining = upper >= least
    remaining[likely] = False
    places = np.flatnonzero(remaining)
    for bound in others:
        if len(places):
            _, upper = bound(videos.at(places), places, least)
            places = places[upper >= least]
    other_scores = yield from _scored(videos.at(places))
    return _best(videos, np.concatenate([likely, places]), np.concatenate([scores, other_scores]), limit)


def ranked_by_rough_scores(
    videos: Split[B], rough: Scorer[B], limit: int, *, rounding: float
) -> Requests[B, list[RankedVideo]]:
    """Return the `limit` best videos and all that tie with the last of them, best first.

    `rounding` is more than a rough score up to 1 can be off; for larger scores it grows with them.
    """
    if not len(videos) or limit < 1:
        return []
    scores = rough(videos)
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return []
    kept = min(limit, len(finite))
    margin = 2 * rounding * max(1.0, float(np.abs(finite).max()))
    least = float(np.partition(finite, len(finite) - kept)[len(finite) - kept]) - margin
    places = np.flatnonzero(scores >= least)
    return _best(videos, places, (yield from _scored(videos.at(places))), limit)


class UpperBounds(Generic[B]):
    """Upper bounds of the scores of videos for one search, the cheap ones first."""

    def __init__(
        self,
        coded: Mapping[str, CodedBlocks],
        probes: Sequence[tuple[str, Probe]],
        *,
        fuzz: float,
        known: Callable[[], Float32[np.ndarray, " V"]] | None = None,
    ):
        """`coded` by branch, of all blocks; `probes` with the branches they look at; an exact score is off by `fuzz`.

        With what is `known`, which all probes find at most in every video of all blocks, no rows are looked at.
        """
        self._coded = coded
        self._fuzz = fuzz
        self._known = known
        order = sorted(range(len(probes)), key=lambda number: -probes[number][1].length)
        self._probes = [probes[number] for number in order]
        self._most = np.empty((len(probes), 0), dtype=np.float32)  # what each finds at most in each video

    @property
    def bounds(self) -> Sequence[Bound[B]]:
        """The first sees all videos."""
        if self._known is not None:
            return (self._as_known,)
        return (self._by_codes, self._by_rows)

    @cached_property
    def _at_a_time(self) -> int:
        """Videos of which one thread looks at codes at once: so few that they stay in its cache from probe to probe."""
        branches = [branch for branch, _ in self._probes]
        return min(max(1, self._coded[branch].at_a_time // branches.count(branch)) for branch in branches)

    def _as_known(self, split: Split[B], places: Places, _: float) -> Bounds:
        assert self._known is not None
        before, total = next(iter(self._coded.values())).before, self._known()
        if len(split) < len(total):
            total = total[before[split.number] + split.row]
        return total, total + np.float32(self._fuzz)

    def _by_codes(self, split: Split[B], places: Places, _: float) -> Bounds:
        self._most = np.empty((len(self._probes), len(places)), dtype=np.float32)
        best = np.empty(len(places), dtype=np.float32)

        def scan(start: int, stop: int) -> None:
            found = [self._coded[branch].by_codes(probe, split, start, stop) for branch, probe in self._probes]
            best[start:stop] = sum(own for own, _ in found)
            self._most[:, start:stop] = [most for _, most in found]

        share(len(split), self._at_a_time, scan)
        return best, self._most.sum(axis=0) + np.float32(self._fuzz)

    def _by_rows(self, split: Split[B], places: Places, least: float) -> Bounds:
        most = self._most[:, places]
        total = most.sum(axis=0, dtype=np.float64)
        left = np.flatnonzero(np.isfinite(total))
        for (branch, probe), allowed in zip(self._probes, most, strict=True):
            others = total[left] - allowed[left]
            found = self._coded[branch].by_rows(probe, split.at(left), least - self._fuzz - others)
            total[left] = others + found
            left = left[total[left] + self._fuzz >= least]
        return total, total + self._fuzz


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
    """Request exact scores; those that are not finite count as minus infinity."""
    if not len(videos):
        return np.empty(0)
    scores = yield videos
    return np.where(np.isfinite(scores), scores, -np.inf)


def _largest(values: Float[np.ndarray, " N"], count: int) -> Bool[np.ndarray, " N"]:
    """Mark the `count` largest finite numbers; more where numbers tie, or where too few are finite."""
    if count >= len(values):
        return np.ones(len(values), dtype=bool)
    finite = np.where(np.isfinite(values), values, -np.inf)
    return np.asarray(finite >= np.partition(finite, -count)[-count])
