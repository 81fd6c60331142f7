"""Training-free moments: Gaussian windows over frame vectors, the best window scores the video.

The proposals are those of JSG (ACM MM 2023, Section 3.3): centres x widths, Gaussian weighted pooling. Two things
differ, because a folder holds videos from seconds to hours: centres and widths are in seconds, not fractions of the
video, and pooled vectors are not normalised. Pooling is then linear, q . sum_j w_j f_j = sum_j w_j (q . f_j), so no
proposal is ever built: the query meets every frame once, and windows are filters over that one curve of relevance.

Which video: its best window of one short width. Which span: the window that stands out most, its mean above the
background times a power of its width (a matched filter has power 1/2), then non-maximum suppression. The background
lies between the video's own mean and the mean of the whole corpus, so that a sentence about all of a video finds all
of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from untrimmed.scores.suppression import suppress
from untrimmed.types import FrameFeatures, Moment

_BLOCK = 32  # videos looked at closely between two checks of the bound
_HALF_ROUNDING = 2e-3  # more than a dot product of unit vectors in float16 can be off

Curve = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class RankedVideo:
    """A video by its row in the corpus, and its score."""

    row: int
    score: float


class GaussianWindows:
    """Lays videos out for search by windows of many widths; it has no weights."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Chosen on one half of the real clips and reported on the other: docs/quality.md."""

        widths_s: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
        sharpness: float = 3.0  # window width over the standard deviation of its Gaussian; JSG has 9
        rank_width_s: float = 3.0
        width_exponent: float = 0.5
        own_background: float = 0.5  # share of the video's own mean in the background; the corpus has the rest
        max_iou: float = 0.3

    name = "gaussian_windows"

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()

    def corpus(self, videos: Sequence[FrameFeatures]) -> WindowCorpus:
        """The videos packed for search; they need at least one frame each."""
        return WindowCorpus(videos, self.config)


class WindowCorpus:
    """Frame vectors of all videos in one float16 block, searched exactly."""

    def __init__(self, videos: Sequence[FrameFeatures], config: GaussianWindows.Config):
        self.config = config
        lengths = [len(video.times_s) for video in videos]
        self._offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        dim = videos[0].vectors.shape[1] if videos else 0
        block = np.empty((int(self._offsets[-1]), dim), dtype=np.float16)
        for video, start, end in zip(videos, self._offsets, self._offsets[1:], strict=False):
            block[start:end] = video.vectors
        self._frames = torch.from_numpy(block)
        self._times_s = [video.times_s for video in videos]
        self._durations_s = [video.duration_s for video in videos]
        self._mean = self._frames.mean(dim=0, dtype=torch.float32) if len(videos) else torch.zeros(0)

    def __len__(self) -> int:
        return len(self._durations_s)

    def rank(
        self, query: Float[np.ndarray, " D"], *, limit: int, allowed: Bool[np.ndarray, " V"] | None = None
    ) -> list[RankedVideo]:
        """The best videos by their best window, best first; ties are decided by the row.

        A window is a weighted mean, so no window of a video beats its best frame: frames are scored in float16 in one
        product, then windows in float32 only for videos whose best frame reaches the worst score kept. The result is
        that of looking at every window.
        """
        if len(self) == 0 or limit <= 0:
            return []
        coarse = (self._frames @ torch.from_numpy(query).half()).float().numpy()
        bound = np.maximum.reduceat(coarse, self._offsets[:-1]) + _HALF_ROUNDING
        if allowed is not None:
            bound = np.where(allowed, bound, -np.inf)
        order = np.argsort(-bound, kind="stable")
        order = order[np.isfinite(bound[order])]
        kept: list[RankedVideo] = []
        for start in range(0, len(order), _BLOCK):
            if len(kept) == limit and bound[order[start]] < kept[-1].score:
                break
            block = [RankedVideo(int(row), self._best_window(query, int(row))) for row in order[start : start + _BLOCK]]
            kept = sorted(kept + block, key=lambda video: (-video.score, video.row))[:limit]
        return kept

    def moments(self, query: Float[np.ndarray, " D"], row: int, *, limit: int) -> list[Moment]:
        """Spans of one video in seconds, the one that stands out most first; each carries its mean relevance."""
        config, duration_s = self.config, self._durations_s[row]
        times_s, curve = self._curve(query, row)
        corpus_mean = float(query @ self._mean.numpy())
        background = config.own_background * float(curve.mean()) + (1 - config.own_background) * corpus_mean
        moments = [Moment(0.0, duration_s, float(curve.mean()))]
        for width_s in (width for width in config.widths_s if width < duration_s):
            relevance = _gaussian_filter(times_s, curve, width_s / config.sharpness)
            for i in _peaks(relevance):
                start_s, end_s = max(0.0, times_s[i] - width_s / 2), min(duration_s, times_s[i] + width_s / 2)
                moments.append(Moment(float(start_s), float(end_s), float(relevance[i])))
        standing_out = [(m.score - background) * (m.end_s - m.start_s) ** config.width_exponent for m in moments]
        return suppress(moments, standing_out, limit=limit, max_iou=config.max_iou)

    def relevance(self, query: Float[np.ndarray, " D"], row: int) -> tuple[Curve, Curve]:
        """Times in seconds and the relevance there, through the window that ranks: what a plot shows."""
        times_s, curve = self._curve(query, row)
        return times_s, _gaussian_filter(times_s, curve, self.config.rank_width_s / self.config.sharpness)

    def _best_window(self, query: Float[np.ndarray, " D"], row: int) -> float:
        return float(self.relevance(query, row)[1].max())

    def _curve(self, query: Float[np.ndarray, " D"], row: int) -> tuple[Curve, Curve]:
        """The cosine of every frame, on equally spaced times (key frames and variable rates are not)."""
        frames = self._frames[self._offsets[row] : self._offsets[row + 1]].float().numpy()
        cosines, times_s = frames @ query.astype(np.float32), self._times_s[row]
        if len(times_s) < 3:
            return times_s, cosines
        step_s = float(np.median(np.diff(times_s)))
        regular_s = np.arange(times_s[0], times_s[-1] + step_s / 2, step_s)
        return regular_s, np.interp(regular_s, times_s, cosines)


def _gaussian_filter(times_s: Curve, curve: Curve, deviation_s: float) -> Curve:
    """The curve under a Gaussian at each time; weights outside the video are left out of the mean."""
    if len(curve) < 2:
        return curve
    step_s = times_s[1] - times_s[0]
    reach = min(len(curve) - 1, max(1, math.ceil(3 * deviation_s / step_s)))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step_s / deviation_s) ** 2)
    inside = np.convolve(np.ones_like(curve), weights)[reach : reach + len(curve)]
    return np.convolve(curve, weights)[reach : reach + len(curve)] / inside


def _peaks(curve: Curve) -> Int[np.ndarray, " N"]:
    """Where the curve is not below its neighbours: every maximum, and at least one position."""
    padded = np.concatenate([[-np.inf], curve, [-np.inf]])
    return np.flatnonzero((curve >= padded[:-2]) & (curve > padded[2:]))
