"""Rank videos by exact scores, which are computed only for few candidates.

The upper bound of a video's score is a sum over the query's vectors. Each vector contributes its largest product with a
row (vector) of the video.

1. The 4-bit codes of all rows give a first upper bound, unless bounds were computed for many queries together.
2. The 8-bit rows of the remaining candidates give a closer bound. They are multiplied with one query vector after
   another, the longest first, until the video cannot reach the required score.
3. Exact scores are computed for the remaining candidates.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from untrimmed.search.cache.blocks import Block, Selection
from untrimmed.search.pruning.codes import CodedBlocks, Probe, RowProducts
from untrimmed.search.pruning.threads import share_work

_KEPT_PRODUCTS = 2**24  # largest number of products with codes that a search keeps for the second stage: 64 MB
_LIKELY_FACTOR = 2  # each stage selects this many times as many likely videos as the next stage

B = TypeVar("B", bound=Block)
T = TypeVar("T")


@dataclass(frozen=True)
class RankedVideo:
    """A video and its score."""

    video_id: str
    score: float


ScoreFunction = Callable[[Selection[B]], Float[np.ndarray, " _"]]
# A generator that yields videos, receives their exact scores, and finally returns a result.
RankingSteps = Generator[Selection[B], Float[np.ndarray, " _"], T]
Indices = Int[np.ndarray, " _"]  # positions of videos in the ranked selection
# estimates of the scores of N videos, and upper bounds of the scores
EstimatesAndBounds = tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]
# a function of videos, their indices, and the score that a hit must reach
BoundStage = Callable[[Selection[B], Indices, float], EstimatesAndBounds]


def run_ranking(ranking: RankingSteps[B, T], exact: ScoreFunction[B]) -> T:
    """Run a ranking and return its result. `exact` computes the scores that the ranking requests."""
    try:
        videos = next(ranking)
        while True:
            videos = ranking.send(exact(videos))
    except StopIteration as end:
        result: T = end.value
        return result


def ranked_by_bounds(
    videos: Selection[B], stages: Sequence[BoundStage[B]], limit: int
) -> RankingSteps[B, list[RankedVideo]]:
    """Return the `limit` best videos, best first, plus any others that tie with the last of them.

    The first stage computes bounds for all videos. Then exact scores of a few likely videos are computed. Each further
    stage computes closer bounds for the videos that can still reach these scores.
    """
    if not len(videos) or limit < 1:
        return []
    first, *closer = stages
    likely = np.arange(len(videos))
    estimate, upper = first(videos, likely, -np.inf)
    for remaining_stages, stage in zip(range(len(closer), 0, -1), closer, strict=True):
        if 2 * (count := limit * _LIKELY_FACTOR**remaining_stages) > len(likely):
            break  # this stage would exclude hardly any videos
        likely = likely[_largest(estimate, count)]
        estimate, _ = stage(videos.at(likely), likely, -np.inf)
    # if there is no further stage, score a few more videos exactly
    likely = likely[_largest(estimate, limit if closer else limit * 5 // 4)]
    scores = yield from _scored(videos.at(likely))
    least = float(np.partition(scores, -limit)[-limit]) if len(scores) >= limit else -np.inf
    is_candidate = upper >= least
    is_candidate[likely] = False
    candidates = np.flatnonzero(is_candidate)
    for stage in closer:
        if len(candidates):
            _, upper = stage(videos.at(candidates), candidates, least)
            candidates = candidates[upper >= least]
    candidate_scores = yield from _scored(videos.at(candidates))
    return _best(videos, np.concatenate([likely, candidates]), np.concatenate([scores, candidate_scores]), limit)


def ranked_by_rough_scores(
    videos: Selection[B], rough: ScoreFunction[B], limit: int, *, rounding: float
) -> RankingSteps[B, list[RankedVideo]]:
    """Return the `limit` best videos, best first, plus any others that tie with the last of them.

    `rounding` is the largest error of approximate scores that are at most 1. If the largest absolute score is above 1,
    the error is multiplied by that score.
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
    indices = np.flatnonzero(scores >= least)
    return _best(videos, indices, (yield from _scored(videos.at(indices))), limit)


class BoundStages(Generic[B]):
    """The stages of upper bounds of one search, the cheapest first."""

    def __init__(
        self,
        coded: Mapping[str, CodedBlocks],
        probes: Sequence[tuple[str, Probe]],
        *,
        margin: float,
        shared_bounds: Callable[[], Float32[np.ndarray, " V"]] | None = None,
    ):
        """Create the stages of a search.

        Args:
            coded: The codes of all blocks, by branch.
            probes: The query's vectors, each with its branch.
            margin: The largest error of exact scores.
            shared_bounds: Returns upper bounds of all videos of the corpus, which replace the bounds by codes.
        """
        self._coded = coded
        self._margin = margin
        self._shared_bounds = shared_bounds
        order = sorted(range(len(probes)), key=lambda number: -probes[number][1].length)
        self._probes = [probes[number] for number in order]
        self._upper = np.empty((len(probes), 0), dtype=np.float32)  # upper bounds by probe and video
        self._products: list[list[RowProducts]] = []  # products with codes by probe and block

    @property
    def stages(self) -> Sequence[BoundStage[B]]:
        """The stages in order, see `ranked_by_bounds`."""
        if self._shared_bounds is not None:
            return (self._from_shared_bounds,)
        return (self._by_codes, self._by_rows)

    @cached_property
    def _at_a_time(self) -> int:
        """The number of videos that a thread scans at a time, so that their codes stay in the processor's cache."""
        branches = [branch for branch, _ in self._probes]
        return min(max(1, self._coded[branch].at_a_time // branches.count(branch)) for branch in branches)

    def _from_shared_bounds(self, videos: Selection[B], indices: Indices, _: float) -> EstimatesAndBounds:
        assert self._shared_bounds is not None
        upper = self._shared_bounds()
        if len(videos) < len(upper):
            upper = upper[next(iter(self._coded.values())).first_video[videos.block_index] + videos.row_index]
        return upper, upper + np.float32(self._margin)

    def _by_codes(self, videos: Selection[B], indices: Indices, _: float) -> EstimatesAndBounds:
        self._upper = np.empty((len(self._probes), len(indices)), dtype=np.float32)
        best = np.empty(len(indices), dtype=np.float32)
        most = _KEPT_PRODUCTS // len(self._probes)
        self._products = [self._coded[name].empty_products(most) for name, _ in self._probes]

        def scan(start: int, stop: int) -> None:
            bounds = [
                self._coded[name].bounds_by_codes(probe, videos, start, stop, products)
                for (name, probe), products in zip(self._probes, self._products, strict=True)
            ]
            best[start:stop] = sum(estimate for estimate, _ in bounds)
            self._upper[:, start:stop] = [upper for _, upper in bounds]

        share_work(len(videos), self._at_a_time, scan)
        return best, self._upper.sum(axis=0) + np.float32(self._margin)

    def _by_rows(self, videos: Selection[B], indices: Indices, least: float) -> EstimatesAndBounds:
        by_probe = self._upper[:, indices]
        total = by_probe.sum(axis=0, dtype=np.float64)
        candidates = np.flatnonzero(np.isfinite(total))
        for (branch, probe), products, upper in zip(self._probes, self._products, by_probe, strict=True):
            rest = total[candidates] - upper[candidates]
            needed = least - self._margin - rest
            closer = self._coded[branch].bounds_by_rows(probe, videos.at(candidates), products, needed)
            total[candidates] = rest + closer
            candidates = candidates[total[candidates] + self._margin >= least]
        return total, total + self._margin


def _best(
    videos: Selection[B], indices: Int[np.ndarray, " K"], scores: Float[np.ndarray, " K"], limit: int
) -> list[RankedVideo]:
    limit = min(limit, int(np.isfinite(scores).sum()))
    if limit <= 0:
        return []
    order = np.lexsort((indices, -scores))
    order = order[: np.searchsorted(-scores[order], -scores[order[limit - 1]], side="right")]
    ids = videos.at(indices[order]).ids
    return [RankedVideo(*pair) for pair in zip(ids, scores[order].tolist(), strict=True)]


def _scored(videos: Selection[B]) -> RankingSteps[B, Float[np.ndarray, " _"]]:
    """Request exact scores and return them. Scores that are not finite become minus infinity."""
    if not len(videos):
        return np.empty(0)
    scores = yield videos
    return np.where(np.isfinite(scores), scores, -np.inf)


def _largest(values: Float[np.ndarray, " N"], count: int) -> Bool[np.ndarray, " N"]:
    """Return a mask of the `count` largest finite numbers, and of all numbers equal to the smallest of these.

    If fewer than `count` numbers are finite, all are selected.
    """
    if count >= len(values):
        return np.ones(len(values), dtype=bool)
    finite = np.where(np.isfinite(values), values, -np.inf)
    return np.asarray(finite >= np.partition(finite, -count)[-count])
