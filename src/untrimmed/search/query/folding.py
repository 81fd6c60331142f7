"""Moments that look the same count as one: the best of them stays, with the names of videos that had no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.corpora.engine import View
from untrimmed.search.query.hits import Hit
from untrimmed.types import FrameFeatures, Moment

_SAME_SPAN = 0.5  # IoU from which moments of two copies of one file are one moment


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
