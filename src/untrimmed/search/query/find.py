"""From what ranks videos to hits: how many, grouped how, and what looks the same only once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.errors import UntrimmedError
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.corpora.engine import View
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.query.combination import CombinedQuery
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.query.query import Cutoff, GroupBy
from untrimmed.types import FrameFeatures, Moment

_SAME_SPAN = 0.5  # IoU from which moments of two copies of one file are one moment
_MORE = 4  # times as many videos, where those that were looked at leave too few hits


def find(
    view: View,
    prepared: PreparedQuery,
    cutoff: Cutoff,
    *,
    among: Collection[str] | None = None,
    group_by: GroupBy = "video",
    fold: float | None = None,
    on_hit: Callable[[Hit], None] | None = None,
) -> Hits:
    """The best hits among the videos of these ids. Of those that score alike the first by path comes first.

    Where hits are videos and nothing is folded, `on_hit` is told each when its moments are known: ranking all videos
    takes as long for one as for many, moments take their time for each.

    Moments are a list of their own with `group_by="moment"`: each scores what its best time does, so that none is above
    its video. With `fold`, what looks like something before it is left out, and others move up.
    """
    least = -math.inf if cutoff.min_score is None else cutoff.min_score
    take = cutoff.limit
    made: dict[str, list[Hit]] = {}
    while True:
        ranked = in_order(prepared.rank(limit=take, among=among), view)[:take]
        is_all = len(ranked) < take
        kept = [video for video in ranked if video.score >= least]
        for video in kept:
            if video.video_id not in made:
                made[video.video_id] = _hits_of(view, prepared, video, cutoff.moments, group_by)
                if on_hit is not None and group_by == "video" and fold is None:
                    for hit in made[video.video_id]:
                        on_hit(hit)
        hits = [hit for video in kept for hit in made[video.video_id] if hit.score >= least]
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


def _hits_of(view: View, prepared: PreparedQuery, ranked: RankedVideo, limit: int, group_by: GroupBy) -> list[Hit]:
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


@dataclass(frozen=True, eq=False)
class _Kept:
    """A moment that others may look like, and where its hit stands."""

    place: int
    content: str
    moment: Moment
    vector: Float[np.ndarray, " D"]


def fold_hits(view: View, hits: Sequence[Hit], threshold: float) -> list[Hit]:
    """Without moments that look like one before them, and without the hits that then have none.

    Two look the same where the mean vectors of their frames have at least that cosine, or where they are the same part
    of two files with the same content.
    """
    features = {
        video.record.video_id: video.features for video in view.index.read(list({hit.video_id for hit in hits}))
    }
    kept: list[_Kept] = []
    folded: list[Hit] = []
    for hit in hits:
        content, own, place = view.records.of(hit.video_id).content_hash, [], len(folded)
        like: _Kept | None = None
        for number, moment in enumerate(hit.moments):
            vector = span_vector(features[hit.video_id], moment.start_s, moment.end_s)
            one = _Kept(place, content, moment, vector)
            same = next((other for other in kept if _look_alike(one, other, threshold)), None)
            if same is None:
                kept.append(one)
                own.append(number)
            else:
                like = like or same
        if own:
            folded.append(_with_moments(hit, own))
        elif like is not None and hit.video not in (folded[like.place].video, *folded[like.place].folded):
            before = folded[like.place]
            folded[like.place] = replace(before, folded=(*before.folded, hit.video))
    return folded


def span_vector(features: FrameFeatures, start_s: float, end_s: float) -> Float[np.ndarray, " D"]:
    """The mean of the frames from one time to another, at unit length; where there is none, the nearest frame."""
    inside = (features.times_s >= start_s) & (features.times_s <= end_s)
    if not inside.any():
        inside[np.abs(features.times_s - (start_s + end_s) / 2).argmin()] = True
    return unit(features.vectors[inside].mean(axis=0, dtype=np.float32))


def unit(vector: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
    """At unit length; zeros stay zeros."""
    length = float(np.linalg.norm(vector))
    return (vector / length if length > 0 else vector).astype(np.float32)


def _look_alike(one: _Kept, other: _Kept, threshold: float) -> bool:
    if one.content == other.content and iou(spans_of([one.moment]), spans_of([other.moment]))[0] >= _SAME_SPAN:
        return True
    return float(one.vector @ other.vector) >= threshold


def _with_moments(hit: Hit, numbers: Sequence[int]) -> Hit:
    moments = tuple(hit.moments[i] for i in numbers)
    then = tuple(hit.then[i] for i in numbers) if hit.then else ()
    return replace(hit, start_s=moments[0].start_s, end_s=moments[0].end_s, moments=moments, then=then)
