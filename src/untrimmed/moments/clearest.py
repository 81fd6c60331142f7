"""Which scenes of one video a query is about, without training: those whose relevance stands out most."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Float64, Int

from untrimmed.moments.suppression import suppress
from untrimmed.types import Moment

_LEAST_S = 1e-6

Numbers = TypeVar("Numbers", float, Float64[np.ndarray, "*N"])  # of one query, or of several


@dataclass(frozen=True, kw_only=True)
class SpanSettings:
    """What spans have to stand out from; chosen on one half of the real clips (docs/quality.md)."""

    own_background: float = 0.8  # share of a long video's own mean in the background; the other videos have the rest
    own_background_s: float = 20.0  # of such a length half of that: one moment is much of a short video's mean
    length_exponent: float = 0.15

    def background(self, own: Numbers, others: Numbers, duration_s: float) -> Numbers:
        """The relevance above which a span stands out, between the video's own mean and that of all videos."""
        share = self.own_background * duration_s / (duration_s + self.own_background_s)
        return share * own + (1 - share) * others


def standing_out(
    relevance: Float[np.ndarray, " T"],
    times_s: Float[np.ndarray, " T"],
    duration_s: float,
    scenes: Int[np.ndarray, "N 2"],
    *,
    others: float,
    settings: SpanSettings,
    limit: int,
) -> list[Moment]:
    """The `clearest_scenes` of a video with frames at these times, `others` being the mean relevance of all videos."""
    # A frame stands for the time up to half way to its neighbours: that is where a change between two is expected.
    edges_s = np.clip(np.concatenate([[0.0], (times_s[1:] + times_s[:-1]) / 2, [duration_s]]), 0.0, duration_s)
    return clearest_scenes(
        relevance,
        edges_s,
        scenes,
        background=settings.background(float(np.average(relevance, weights=_durations_s(edges_s))), others, duration_s),
        length_exponent=settings.length_exponent,
        limit=limit,
    )


def clearest_scenes(
    relevance: Float[np.ndarray, " T"],
    edges_s: Float[np.ndarray, " E"],
    scenes: Int[np.ndarray, "N 2"],
    *,
    background: float,
    length_exponent: float,
    limit: int,
) -> list[Moment]:
    """At most `limit` separate moments, the clearest first; each carries its mean relevance over time.

    Clearest is what has the largest (mean relevance - background) x length in seconds to the power `length_exponent`:
    of two that are as relevant, the longer one comes first. Then follows the clearest of those that share no time with
    it, and so on, as long as they are above the background. Hence no two overlap, though they may adjoin. A
    query that fits all of a video alike is answered by one moment, the whole; one that fits some parts better may be by
    several. There is always a first; equal ones are decided by the earlier start, then the end.

    Args:
        relevance: One number a frame.
        edges_s: Where frames begin in seconds, and where the last one ends: E = T + 1.
        scenes: First frame and one past the last of each candidate (`scene_tree`).

    >>> scenes = np.array([[0, 2], [2, 3], [3, 4], [2, 4], [0, 4]])
    >>> curve, edges = np.array([0.0, 0.2, 0.9, 0.7]), np.array([0.0, 2.0, 4.0, 6.0, 8.0])
    >>> found = clearest_scenes(curve, edges, scenes, background=0.0, length_exponent=0.2, limit=3)
    >>> [(moment.start_s, moment.end_s, round(moment.score, 2)) for moment in found]
    [(4.0, 8.0, 0.8), (0.0, 4.0, 0.1)]
    """
    first, stop = scenes.T
    durations_s = _durations_s(edges_s)
    total, until_s = (np.concatenate([[0.0], np.cumsum(each)]) for each in (relevance * durations_s, durations_s))
    mean = (total[stop] - total[first]) / (until_s[stop] - until_s[first])
    spans = np.stack([edges_s[first], edges_s[stop]], axis=1)
    clearness = clearness_of(mean - background, spans[:, 1] - spans[:, 0], length_exponent)
    order = np.lexsort((spans[:, 1], spans[:, 0], -clearness))
    order = order[: max(1, np.count_nonzero(clearness > 0))]
    kept = suppress(spans[order][None], np.ones((1, len(order)), dtype=bool), max_iou=0.0, limit=limit)[0]
    return [Moment(float(spans[i, 0]), float(spans[i, 1]), float(mean[i])) for i in order[kept]]


def _durations_s(edges_s: Float[np.ndarray, " E"]) -> Float64[np.ndarray, " T"]:
    """How long each frame is on screen; hardly, but not 0, for frames at one time."""
    return np.maximum(np.diff(edges_s), _LEAST_S)


def clearness_of(
    above: Float[np.ndarray, "*Q N"], length_s: Float[np.ndarray, " N"], length_exponent: float
) -> Float[np.ndarray, "*Q N"]:
    """How clear spans are: by how much they are above the background, times their lengths to that power."""
    return above * length_s**length_exponent
