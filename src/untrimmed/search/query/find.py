"""From what ranks videos to hits: how many, grouped how, and what looks the same only once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from untrimmed.errors import ConfigError, UntrimmedError
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.corpora.engine import View
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.query.combination import CombinedQuery
from untrimmed.search.query.folding import fold_hits
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.types import Moment

_MORE = 4  # times as many videos, where those that were looked at leave too few hits


@dataclass(frozen=True, kw_only=True)
class Cutoff:
    """How many hits at most, with how many moments each, and how good they have to be.

    Raises:
        ConfigError: That makes no sense.
    """

    limit: int = 10
    moments: int = 3
    min_score: float | None = None
    min_confidence: float | None = None

    def __post_init__(self) -> None:
        if self.limit < 1 or self.moments < 1:
            raise ConfigError(f"limit is {self.limit} and moments {self.moments}; both must be at least 1")
        if self.min_score is not None and not math.isfinite(self.min_score):
            raise ConfigError(f"min_score is {self.min_score}, must be a finite number")
        if self.min_confidence is not None and not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence is {self.min_confidence}, must be from 0 to 1")

    def at_least(self, score: float) -> Cutoff:
        """With no hits that score less, either."""
        return replace(self, min_score=score if self.min_score is None else max(score, self.min_score))

    def admits(self, score: float) -> bool:
        """Whether it is good enough."""
        return self.min_score is None or score >= self.min_score


def find(
    view: View,
    prepared: PreparedQuery,
    cutoff: Cutoff,
    *,
    among: Collection[str] | None = None,
    group_by: Literal["video", "moment"] = "video",
    fold: float | None = None,
    on_hit: Callable[[Hit], None] | None = None,
) -> Hits:
    """The best hits among the videos of these ids. Of those that score alike the first by path comes first.

    Where hits are videos and nothing is folded, `on_hit` is told each when its moments are known: ranking all videos
    takes as long for one as for many, moments take their time for each.

    Moments are a list of their own with `group_by="moment"`: each scores what its best time does, so that none is above
    its video. With `fold`, what looks like something before it is left out, and others move up.
    """
    take, made = cutoff.limit, dict[str, list[Hit]]()
    while True:
        ranked = in_order(prepared.rank(limit=take, among=among), view)[:take]
        is_all = len(ranked) < take
        kept = [video for video in ranked if cutoff.admits(video.score)]
        for video in kept:
            if video.video_id not in made:
                made[video.video_id] = _hits_of(view, prepared, video, cutoff.moments, group_by)
                if on_hit is not None and group_by == "video" and fold is None:
                    for hit in made[video.video_id]:
                        on_hit(hit)
        hits = [hit for video in kept for hit in made[video.video_id] if cutoff.admits(hit.score)]
        if group_by == "moment":
            hits.sort(key=lambda hit: (-hit.score, str(hit.video), hit.start_s))
        hits = fold_hits(view, hits, fold) if fold is not None else hits
        is_sure = group_by == "video" or (
            len(hits) >= cutoff.limit and hits[cutoff.limit - 1].score >= ranked[-1].score
        )
        if is_all or len(kept) < len(ranked) or (is_sure and (fold is None or len(hits) >= cutoff.limit)):
            break
        take *= _MORE
    missing = [prepared.missing] if prepared.missing else []
    return Hits(hits[: cutoff.limit], missing, partial=bool(missing))


def in_order(ranked: Iterable[RankedVideo], view: View) -> list[RankedVideo]:
    """Best first; of those that score alike the first by path."""
    return sorted(ranked, key=lambda video: (-video.score, view.records.of(video.video_id).path))


def _hits_of(
    view: View, prepared: PreparedQuery, ranked: RankedVideo, limit: int, group_by: Literal["video", "moment"]
) -> list[Hit]:
    """One hit of a video, or one for each of its moments; none where its shard has died since it was ranked."""
    pairs: Sequence[tuple[Moment, Moment | None]]
    if isinstance(prepared, CombinedQuery):
        pairs = prepared.pairs(ranked.video_id, limit=limit)
    else:
        pairs = [(moment, None) for moment in prepared.moments(ranked.video_id, limit=limit)]
    if not pairs:
        return []
    if group_by == "video":
        return [_hit(view, ranked.video_id, ranked.score, pairs)]
    if isinstance(prepared, CombinedQuery):
        return [_hit(view, ranked.video_id, prepared.pair_score(*pair), [pair]) for pair in pairs]
    try:
        times_s, values = prepared.relevance(ranked.video_id)
    except UntrimmedError:
        if not prepared.missing:
            raise
        return []
    values = values + (ranked.score - values.max())
    return [_hit(view, ranked.video_id, _best_in(pair[0], times_s, values), [pair]) for pair in pairs]


def _hit(view: View, video_id: str, score: float, pairs: Sequence[tuple[Moment, Moment | None]]) -> Hit:
    record, moments = view.records.of(video_id), tuple(first for first, _ in pairs)
    then = tuple(second for _, second in pairs if second is not None)
    return Hit(
        Path(record.path), video_id, moments[0].start_s, moments[0].end_s, score, record.duration_s, moments, then=then
    )


def _best_in(moment: Moment, times_s: np.ndarray, values: np.ndarray) -> float:
    """The best relevance of a moment's times, or of the time nearest to its middle."""
    inside = (times_s >= moment.start_s) & (times_s <= moment.end_s)
    if inside.any():
        return float(values[inside].max())
    return float(values[np.abs(times_s - (moment.start_s + moment.end_s) / 2).argmin()])
