"""Select the scenes of a video that match a query: those whose relevance is farthest above a background value.

The selection needs no training.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Float64, Int

from untrimmed.moments.peaks import best_index, smoothed, spacing_s, span_around, widened
from untrimmed.moments.suppression import suppress
from untrimmed.types import Moment

_MIN_S = 1e-6
_FLAT = 1e-3  # smaller differences of relevance can be rounding errors of float16

Numbers = TypeVar("Numbers", float, Float64[np.ndarray, "*N"])  # one number, or an array of numbers for several queries


@dataclass(frozen=True, kw_only=True)
class SpanSettings:
    """Settings for choosing spans. The defaults were chosen on half of the real clips (docs/quality.md)."""

    # weight of the video's own mean in the background value of a long video; the library's mean gets the rest
    own_background: float = 0.8
    # For a video of this length, the weight is half of `own_background`. One moment dominates a short video's mean.
    own_background_s: float = 20.0
    length_exponent: float = 0.15
    peak_smoothing_s: float = 0.5  # standard deviation of the Gaussian that smooths the curve to find spans of peaks
    peak_share: float = 0.5  # the span around a peak is added if it is shorter than this share of the moment

    def background(self, video_mean: Numbers, library_mean: Numbers, duration_s: float) -> Numbers:
        """Return the background value: a weighted mean of the mean relevances of the video and of the library."""
        share = self.own_background * duration_s / (duration_s + self.own_background_s)
        return share * video_mean + (1 - share) * library_mean


def clearest_moments(
    relevance: Float[np.ndarray, " T"],
    times_s: Float[np.ndarray, " T"],
    duration_s: float,
    scenes: Int[np.ndarray, "N 2"],
    *,
    others: float,
    settings: SpanSettings,
    limit: int | None,
    min_s: float = 0.0,
    nested: bool = False,
) -> list[Moment]:
    """Return at most `limit` scenes that match the query, the clearest first, each with the time of its peak.

    `others` is the mean relevance of all videos. If `nested`, a moment may be followed by the shorter span around its
    peak. This helps if the video is a continuous take, so that the only scene is the whole video.
    """
    # a frame extends halfway to its neighbours, because the change between two frames is expected in the middle
    edges_s = np.clip(np.concatenate([[0.0], (times_s[1:] + times_s[:-1]) / 2, [duration_s]]), 0.0, duration_s)
    video_mean = float(np.average(relevance, weights=_durations_s(edges_s)))
    moments = clearest_scenes(
        relevance,
        edges_s,
        scenes,
        background=settings.background(video_mean, others, duration_s),
        length_exponent=settings.length_exponent,
        limit=limit,
        min_s=min_s,
    )
    if nested:
        smooth = smoothed(relevance, settings.peak_smoothing_s / spacing_s(times_s))
        offered: list[Moment] = []
        for moment in moments:
            around = _span_around_peak(moment, relevance, smooth, times_s, edges_s, min_s)
            is_much_shorter = _length_s(around) < settings.peak_share * _length_s(moment)
            offered += [moment, around] if is_much_shorter else [moment]
        moments = offered[:limit]
    peaks = (best_index(moment.start_s, moment.end_s, times_s, relevance) for moment in moments)
    return [replace(moment, peak_s=float(times_s[peak])) for moment, peak in zip(moments, peaks, strict=True)]


def _span_around_peak(
    moment: Moment,
    relevance: Float[np.ndarray, " T"],
    smooth: Float[np.ndarray, " T"],
    times_s: Float[np.ndarray, " T"],
    edges_s: Float[np.ndarray, " E"],
    min_s: float,
) -> Moment:
    """Return the part of a moment where the smoothed curve is closer to its peak than to its mean."""
    durations_s = _durations_s(edges_s)
    peak = best_index(moment.start_s, moment.end_s, times_s, smooth)
    inside = (times_s >= moment.start_s) & (times_s <= moment.end_s)
    first, stop = span_around(smooth, peak, inside, float(np.average(smooth, weights=durations_s)) - 2 * _FLAT)
    span_s = float(edges_s[first]), float(edges_s[stop])
    start_s, end_s = widened(*span_s, min_s, after_s=moment.start_s, before_s=moment.end_s)
    shares_s = np.maximum(np.minimum(edges_s[1:], end_s) - np.maximum(edges_s[:-1], start_s), 0.0)
    return Moment(start_s, end_s, float(np.average(relevance, weights=np.maximum(shares_s, _MIN_S * inside))))


def _length_s(moment: Moment) -> float:
    return moment.end_s - moment.start_s


def clearest_scenes(
    relevance: Float[np.ndarray, " T"],
    edges_s: Float[np.ndarray, " E"],
    scenes: Int[np.ndarray, "N 2"],
    *,
    background: float,
    length_exponent: float,
    limit: int | None,
    min_s: float = 0.0,
) -> list[Moment]:
    """Return at most `limit` moments that do not overlap, the clearest first. Their score is their mean relevance.

    The clearness of a scene is (mean relevance - background) x (length in seconds) ** `length_exponent`. So of two
    equally relevant scenes, the longer one is clearer. Each further moment is the clearest scene that overlaps no
    earlier moment and whose relevance is above the background. If the query matches the whole video equally well, the
    whole video is the only moment. Ties are broken by start, then by end. Scenes shorter than `min_s` seconds are left
    out. If all are shorter, the longest scene is the only candidate.

    Args:
        relevance: One number per frame.
        edges_s: The start of each frame in seconds, and the end of the last frame (E = T + 1).
        scenes: For each candidate, the index of its first frame and of the frame after its last (see `scene_tree`).

    >>> scenes = np.array([[0, 2], [2, 3], [3, 4], [2, 4], [0, 4]])
    >>> curve, edges = np.array([0.0, 0.2, 0.9, 0.7]), np.array([0.0, 2.0, 4.0, 6.0, 8.0])
    >>> moments = clearest_scenes(curve, edges, scenes, background=0.0, length_exponent=0.2, limit=3)
    >>> [(moment.start_s, moment.end_s, round(moment.score, 2)) for moment in moments]
    [(4.0, 8.0, 0.8), (0.0, 4.0, 0.1)]
    """
    lengths_s = edges_s[scenes[:, 1]] - edges_s[scenes[:, 0]]
    first, stop = scenes[lengths_s >= min(min_s - _MIN_S, lengths_s.max())].T
    durations_s = _durations_s(edges_s)
    total, until_s = (np.concatenate([[0.0], np.cumsum(x)]) for x in (relevance * durations_s, durations_s))
    mean = (total[stop] - total[first]) / (until_s[stop] - until_s[first])
    spans = np.stack([edges_s[first], edges_s[stop]], axis=1)
    clearness = clearness_of(mean - background, spans[:, 1] - spans[:, 0], length_exponent)
    order = np.lexsort((spans[:, 1], spans[:, 0], -clearness))
    order = order[: max(1, np.count_nonzero(clearness > 0))]
    keep = suppress(spans[order][None], np.ones((1, len(order)), dtype=bool), max_iou=0.0, limit=limit or len(order))[0]
    return [Moment(float(spans[i, 0]), float(spans[i, 1]), float(mean[i])) for i in order[keep]]


def _durations_s(edges_s: Float[np.ndarray, " E"]) -> Float64[np.ndarray, " T"]:
    """Return the duration of each frame, at least `_MIN_S` even for frames at the same time."""
    return np.maximum(np.diff(edges_s), _MIN_S)


def clearness_of(
    above: Float[np.ndarray, "*Q N"], length_s: Float[np.ndarray, " N"], length_exponent: float
) -> Float[np.ndarray, "*Q N"]:
    """Return the clearness of spans: (relevance above the background) x length ** `length_exponent`."""
    return above * length_s**length_exponent
