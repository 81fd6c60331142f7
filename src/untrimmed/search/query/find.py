"""Turn ranked videos into hits: apply limits, group by video or moment, and hide near-duplicates."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.errors import UntrimmedError
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.moments.peaks import best_index
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.corpora.engine import View
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.query.combination import CombinedQuery
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.query.query import Cutoff, GroupBy
from untrimmed.search.store.records import VideoRecord
from untrimmed.types import FrameFeatures, Moment

_SAME_SPAN = 0.5  # moments in two copies of a file are near-duplicates if their IoU is at least this
_GROWTH = 4  # if there are too few hits, the number of ranked videos is multiplied by this


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
    """Return the best hits. Ties are broken by path.

    Args:
        among: Search only videos with these ids.
        group_by: With "moment", each moment is a hit, with the score of its best time.
        fold: Hide near-duplicates of earlier hits: moments with this cosine or more.
        on_hit: Called with each hit as soon as its moments are known. Not called with `group_by="moment"` or `fold`.
    """
    least = -math.inf if cutoff.min_score is None else cutoff.min_score
    present = in_time_order if cutoff.moments == "all" else _unchanged
    take = cutoff.limit
    hits_of: dict[str, list[Hit]] = {}
    while True:
        ranked = in_order(prepared.rank(limit=take, among=among), view)[:take]
        videos = [video for video in ranked if video.score >= least]
        for video in videos:
            if video.video_id not in hits_of:
                hits_of[video.video_id] = _hits_of(view, prepared, video, cutoff, group_by)
                if on_hit is not None and group_by == "video" and fold is None:
                    for hit in hits_of[video.video_id]:
                        on_hit(present(hit))
        hits = [hit for video in videos for hit in hits_of[video.video_id] if hit.score >= least]
        if group_by == "moment":
            hits.sort(key=lambda hit: (-hit.score, str(hit.video), hit.start_s))
        hits = fold_hits(view, hits, fold) if fold is not None else hits
        is_last = len(ranked) < take or len(videos) < len(ranked)  # true if there are no more videos to rank
        has_enough = (group_by == "video" and fold is None) or len(hits) >= cutoff.limit
        # A moment's score is at most its video's score. So no moment of a further video is better than `ranked[-1]`.
        is_in_order = group_by == "video" or (has_enough and hits[cutoff.limit - 1].score >= ranked[-1].score)
        if is_last or (has_enough and is_in_order):
            break
        take *= _GROWTH
    missing = [prepared.missing] if prepared.missing else []
    return Hits(map(present, hits[: cutoff.limit]), missing, partial=bool(missing))


def _unchanged(hit: Hit) -> Hit:
    return hit


def in_time_order(hit: Hit) -> Hit:
    """Return the hit with its moments sorted by time. A long moment comes before moments that it contains.

    The hit's `start_s`, `end_s` and `peak_s` are still the times of its best moment.
    """
    order = sorted(range(len(hit.moments)), key=lambda i: (hit.moments[i].start_s, -hit.moments[i].end_s))
    then = tuple(hit.then[i] for i in order) if hit.then else ()
    return replace(hit, moments=tuple(hit.moments[i] for i in order), then=then)


def in_order(ranked: Iterable[RankedVideo], view: View) -> list[RankedVideo]:
    """Return the videos sorted by score, then by path."""
    return sorted(ranked, key=lambda video: (-video.score, view.records.of(video.video_id).path))


def _hits_of(view: View, prepared: PreparedQuery, ranked: RankedVideo, cutoff: Cutoff, group_by: GroupBy) -> list[Hit]:
    """Return one hit for a video, or for each of its moments, or no hit if the video's shard does not answer."""
    pairs: Sequence[tuple[Moment, Moment | None]]
    limit = None if cutoff.moments == "all" else cutoff.moments
    if isinstance(prepared, CombinedQuery):
        pairs = prepared.pairs(ranked.video_id, limit=limit, min_s=cutoff.min_moment_s)
    else:
        moments = prepared.moments(ranked.video_id, limit=limit, min_s=cutoff.min_moment_s, nested=group_by == "video")
        pairs = [(moment, None) for moment in moments]
    if not pairs:
        return []
    times_s = values = np.empty(0)
    if cutoff.curve_points or (group_by == "moment" and not isinstance(prepared, CombinedQuery)):
        try:
            times_s, values = prepared.relevance(ranked.video_id)
        except UntrimmedError:
            if not prepared.missing:
                raise
            return []
        values = values + (ranked.score - values.max())
    record = view.records.of(ranked.video_id)
    curve = coarse_curve(times_s, values, record.duration_s, cutoff.curve_points) if cutoff.curve_points else ()
    if group_by == "video":
        return [_hit(record, ranked.score, pairs, curve)]
    if isinstance(prepared, CombinedQuery):
        scores = [prepared.pair_score(*pair) for pair in pairs]
    else:
        scores = [float(values[best_index(moment.start_s, moment.end_s, times_s, values)]) for moment, _ in pairs]
    return [_hit(record, score, [pair], curve) for score, pair in zip(scores, pairs, strict=True)]


def coarse_curve(
    times_s: Float[np.ndarray, " T"], values: Float[np.ndarray, " T"], duration_s: float, points: int
) -> tuple[float, ...]:
    """Return the maximum of a curve in each of `points` equal parts of a video, rounded to 4 decimals.

    A part without a time gets the interpolated value at its middle.

    >>> coarse_curve(np.array([0.0, 1.0, 6.0]), np.array([0.1, 0.5, 0.3]), 8.0, 4)
    (0.5, 0.42, 0.34, 0.3)
    """
    part_s = max(duration_s, 1e-6) / points
    curve = np.interp((np.arange(points) + 0.5) * part_s, times_s, values)
    parts = np.clip((times_s / part_s).astype(int), 0, points - 1)
    curve[np.unique(parts)] = -np.inf
    np.maximum.at(curve, parts, values)
    return tuple(curve.round(4).tolist())


def _hit(
    record: VideoRecord,
    score: float,
    pairs: Sequence[tuple[Moment, Moment | None]],
    curve: tuple[float, ...],
) -> Hit:
    moments = tuple(first for first, _ in pairs)
    then = tuple(second for _, second in pairs if second is not None)
    best = moments[0]
    return Hit(
        Path(record.path),
        record.video_id,
        best.start_s,
        best.end_s,
        score,
        record.duration_s,
        moments,
        then=then,
        peak_s=best.peak_s,
        width=record.width,
        height=record.height,
        curve=curve,
    )


@dataclass(frozen=True, eq=False)
class _ShownMoment:
    """A moment in the result, with which later moments are compared. `index` is the index of its hit."""

    index: int
    content: str
    moment: Moment
    vector: Float[np.ndarray, " D"]


def fold_hits(view: View, hits: Sequence[Hit], threshold: float) -> list[Hit]:
    """Return the hits without moments that are near-duplicates of earlier moments.

    Hits without remaining moments are removed. Two moments are near-duplicates if the cosine of their mean vectors is
    at least `threshold`, or if they are similar spans of two files with the same content.
    """
    features = {
        video.record.video_id: video.features for video in view.index.read(list({hit.video_id for hit in hits}))
    }
    shown: list[_ShownMoment] = []
    folded: list[Hit] = []
    for hit in hits:
        content = view.records.of(hit.video_id).content_hash
        numbers: list[int] = []
        duplicates: list[_ShownMoment] = []
        for number, moment in enumerate(hit.moments):
            vector = span_vector(features[hit.video_id], moment.start_s, moment.end_s)
            candidate = _ShownMoment(len(folded), content, moment, vector)
            duplicate = next((other for other in shown if _look_alike(candidate, other, threshold)), None)
            if duplicate is None:
                shown.append(candidate)
                numbers.append(number)
            else:
                duplicates.append(duplicate)
        if numbers:
            folded.append(_with_moments(hit, numbers))
        elif duplicates:
            original = folded[duplicates[0].index]
            if hit.video not in (original.video, *original.folded):
                folded[duplicates[0].index] = replace(original, folded=(*original.folded, hit.video))
    return folded


def span_vector(features: FrameFeatures, start_s: float, end_s: float) -> Float[np.ndarray, " D"]:
    """Return the mean vector of the frames in a span (or the nearest frame if there are none), at unit length."""
    inside = (features.times_s >= start_s) & (features.times_s <= end_s)
    if not inside.any():
        inside[np.abs(features.times_s - (start_s + end_s) / 2).argmin()] = True
    return unit(features.vectors[inside].mean(axis=0, dtype=np.float32))


def unit(vector: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
    """Return the vector scaled to unit length. A zero vector is returned unchanged."""
    length = float(np.linalg.norm(vector))
    return (vector / length if length > 0 else vector).astype(np.float32)


def _look_alike(a: _ShownMoment, b: _ShownMoment, threshold: float) -> bool:
    if a.content == b.content and iou(spans_of([a.moment]), spans_of([b.moment]))[0] >= _SAME_SPAN:
        return True
    return float(a.vector @ b.vector) >= threshold


def _with_moments(hit: Hit, numbers: Sequence[int]) -> Hit:
    moments = tuple(hit.moments[i] for i in numbers)
    then = tuple(hit.then[i] for i in numbers) if hit.then else ()
    best = moments[0]
    return replace(hit, start_s=best.start_s, end_s=best.end_s, peak_s=best.peak_s, moments=moments, then=then)
