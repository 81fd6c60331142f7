"""Rank videos by exact scores, which are computed only for those that cheaper scores or upper bounds leave."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.search.cache.blocks import Block, Split

_SCOUTS = 2  # times `limit`: how many likely videos are scored early, for each bound that remains

B = TypeVar("B", bound=Block)
T = TypeVar("T")


@dataclass(frozen=True)
class RankedVideo:
    """A video and its score."""

    video_id: str
    score: float


Scored = tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]  # positions in the split that is ranked, and scores
Scorer = Callable[[Split[B]], Float[np.ndarray, " _"]]
# Yields videos whose exact scores it needs, receives these scores, and returns a result.
Requests = Generator[Split[B], Float[np.ndarray, " _"], T]
# Given videos, their positions among all that are ranked, and the score they have to reach: an estimate of each
# video's score, and an upper bound of it.
Bound = Callable[[Split[B], Int[np.ndarray, " _"], float], tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]]


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
