"""Training-free search: Gaussian windows over frame vectors, the best window scores the video; moments are scenes.

The windows are those of JSG (ACM MM 2023, Section 3.3): Gaussian weighted pooling around every centre. Two things
differ, because a folder holds videos from seconds to hours: widths are in seconds, not fractions of the video, and
pooled vectors are not normalised. Pooling is then linear, q . sum_j w_j f_j = sum_j w_j (q . f_j), so no pooled vector
is ever built: the query meets every frame once, and windows are filters over that one curve of relevance.

Which video: its best window of one short width. Which spans: scenes, which begin and end where the content changes
(`untrimmed.moments.scenes`), by how far their mean relevance is above the background (`untrimmed.moments.clearest`).
The background lies between the video's own mean and the mean of the whole corpus, so that a sentence about all of a
video finds all of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numkong
import numpy as np
from jaxtyping import Bool, Float, Float16, Float32, Float64, Int

from untrimmed.moments.clearest import clearest_scenes
from untrimmed.moments.scenes import scene_tree
from untrimmed.types import FrameFeatures, Moment, TextFeatures

_ROUNDING = 2e-3  # more than a score from float16 products of unit vectors can be off
_LANES = 16  # rows of a block are as wide as a multiple of this, so that none ends within a register
_LOW = 2.0**11  # the low half of a number is stored this many times larger: float16 holds 11 bits of each half
_WORTH_THREADS = 20_000  # frames
_MOST_ROWS = 8  # of the block for each frame of a video
_REACH = 3.0  # standard deviations after which a Gaussian is cut off

Curve = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class RankedVideo:
    """A video by its row in the corpus, and its score."""

    row: int
    score: float


class WindowCorpus:
    """Frame vectors of all videos in one float16 block, searched exactly by windows and scenes; it has no weights.

    Every video lies on a regular grid of times (`_regular_grid`), videos of one step side by side, with rows of zeros
    between them as wide as the ranking window reaches: then one filter runs over all curves and mixes no two videos.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Chosen on one half of the real clips and reported on the other: docs/quality.md."""

        rank_width_s: float = 4.0
        sharpness: float = 4.0  # width of the ranking window over the standard deviation of its Gaussian; JSG has 9
        change_s: float = 0.5  # squared distance times seconds that a change of scene has to explain
        own_background: float = 0.8  # share of a long video's own mean in the background; the corpus has the rest
        own_background_s: float = 20.0  # of such a length half of that: one moment is much of a short video's mean
        length_exponent: float = 0.15

    name = "gaussian_windows"

    def __init__(self, videos: Sequence[FrameFeatures], config: Config | None = None):
        """Videos need at least one frame each."""
        self.config = config = config or self.Config()
        self._deviation_s = config.rank_width_s / config.sharpness
        self._durations_s = [video.duration_s for video in videos]
        grids = [_regular_grid(video.times_s) for video in videos]
        self._times_s = [times_s for times_s, _ in grids]
        self._spacing_s = np.array([spacing_s for _, spacing_s in grids])
        # Filters take whole milliseconds, so that videos of nearly one step share them. Times of moments must not: at 3
        # frames a second the rounding adds up to 3.6 s in an hour.
        self._step_s = np.maximum(self._spacing_s.round(3), 0.001)
        self._length = np.array([len(times_s) for times_s in self._times_s], dtype=np.int64)
        self._start = np.zeros(len(videos), dtype=np.int64)
        self._groups: list[_Group] = []
        self._lay_out()
        dim = videos[0].vectors.shape[1] if videos else 0
        self._dim = -(-dim // _LANES) * _LANES
        block = np.zeros((self._groups[-1].stop if videos else 0, self._dim), dtype=np.float16)
        total = np.zeros(dim, dtype=np.float64)
        for video, grid, start in zip(videos, self._times_s, self._start, strict=True):
            vectors = video.vectors if _is_steady(grid, video.times_s) else _at(grid, video)
            block[start : start + len(grid), :dim] = vectors
            total += vectors.sum(axis=0, dtype=np.float64)
        self.frames = block
        self._known_scenes: dict[int, Int[np.ndarray, "N 2"]] = {}
        self._mean = (total / max(1, self._length.sum())).astype(np.float32)

    def __len__(self) -> int:
        return len(self._durations_s)

    def rank(
        self, query: TextFeatures, *, limit: int, allowed: Bool[np.ndarray, " V"] | None = None
    ) -> list[RankedVideo]:
        """The best videos by their best window, best first; ties are decided by the row.

        All windows are scored from float16 products, then those videos that rounding leaves in doubt in float32: the
        result is that of float32 throughout.
        """
        if len(self) == 0 or limit <= 0:
            return []
        scores = self._rough_scores(query.sentence)
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        limit = min(limit, int(np.isfinite(scores).sum()))
        if limit == 0:
            return []
        worst_kept = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        doubtful = np.flatnonzero(scores >= worst_kept - 2 * _ROUNDING)
        exact = [RankedVideo(int(row), float(self.relevance(query, int(row))[1].max())) for row in doubtful]
        return sorted(exact, key=lambda video: (-video.score, video.row))[:limit]

    def moments(self, query: TextFeatures, row: int, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, the clearest first (`clearest_scenes`), with their mean relevance."""
        times_s, curve = self._curve(query.sentence, row)
        own, corpus = float(curve.mean()), float(query.sentence @ self._mean)
        duration_s = self._durations_s[row]
        share = self.config.own_background * duration_s / (duration_s + self.config.own_background_s)
        # A frame stands for the time up to half way to its neighbours: that is where a change between two is expected.
        edges_s = np.clip(np.concatenate([[0.0], (times_s[1:] + times_s[:-1]) / 2, [duration_s]]), 0.0, duration_s)
        return clearest_scenes(
            curve,
            edges_s,
            self._scenes(row),
            background=share * own + (1 - share) * corpus,
            length_exponent=self.config.length_exponent,
            limit=limit,
        )

    def relevance(self, query: TextFeatures, row: int) -> tuple[Curve, Curve]:
        """Times in seconds and the relevance there, through the window that ranks: what a plot shows."""
        times_s, curve = self._curve(query.sentence, row)
        return times_s, _gaussian_filter(curve, self._deviation_s / self._step_s[row])

    def _scenes(self, row: int) -> Int[np.ndarray, "N 2"]:
        """The scenes of a video; found when it is first among the hits, since that costs as much as some searches."""
        if row not in self._known_scenes:
            vectors = self.frames[self._start[row] : self._start[row] + self._length[row]]
            self._known_scenes[row] = scene_tree(vectors, self.config.change_s / float(self._spacing_s[row]))
        return self._known_scenes[row]

    def _curve(self, query: Float[np.ndarray, " D"], row: int) -> tuple[Curve, Curve]:
        """The cosine at every time of the video's grid, as exact as in float32: the query is the sum of two halves."""
        start, length = self._start[row], self._length[row]
        high = self._half(query)
        halves = np.stack([high, self._half((query - high[: len(query)].astype(np.float32)) * _LOW)])
        both = products(self.frames[start : start + length], halves)
        return self._times_s[row], both[:, 0] + both[:, 1] / _LOW

    def _half(self, query: Float[np.ndarray, " D"]) -> Float16[np.ndarray, " E"]:
        return np.pad(query, (0, self._dim - len(query))).astype(np.float16)

    # -- all videos at once

    def _lay_out(self) -> None:
        position = 0
        for step_s in np.unique(self._step_s):
            rows = np.flatnonzero(self._step_s == step_s)
            deviation = self._deviation_s / step_s
            gap = len(_gaussian(deviation)) // 2
            first = position
            for row in rows:
                self._start[row] = position
                position += int(self._length[row]) + gap
            bounds = np.stack([self._start[rows], self._start[rows] + self._length[rows]], axis=1) - first
            inside = np.ones(position - first, dtype=np.float32)  # between videos any number but zero
            for (start, end), length in zip(bounds, self._length[rows], strict=True):
                inside[start:end] = _weight_inside(int(length), deviation)
            self._groups.append(_Group(rows, first, position, bounds.ravel(), deviation, inside))

    def _rough_scores(self, query: Float[np.ndarray, " D"]) -> Float[np.ndarray, " V"]:
        relevance = products(self.frames, self._half(query)[None])[:, 0].astype(np.float32)
        scores = np.empty(len(self), dtype=np.float32)
        for group in self._groups:
            filtered = _filter_long(relevance[group.start : group.stop], _gaussian(group.deviation)) / group.inside
            scores[group.rows] = np.maximum.reduceat(filtered, group.bounds)[::2]  # between two videos lies a gap
        return scores


@dataclass(frozen=True)
class _Group:
    """The videos of one step: rows `start` to `stop` of the block; `bounds` are the videos' starts and ends in it."""

    rows: Int[np.ndarray, " V"]
    start: int
    stop: int
    bounds: Int[np.ndarray, " B"]
    deviation: float  # of the ranking window, in steps
    inside: Float[np.ndarray, " T"]  # the weight of a window that falls inside the video


def _regular_grid(times_s: Curve) -> tuple[Float[np.ndarray, " G"], float]:
    """Equally spaced times for the frames of a video, and their distance in seconds.

    Frames a constant time apart (within a quarter) keep their times; else the grid is the next power of two below the
    usual distance, so that videos of variable rate or with uneven key frames share few steps. Where that would be
    many more times than frames (bursts of frames, hours apart), it has few in each long gap: bursts keep their frames.
    """
    gaps_s = np.diff(times_s)
    if not (gaps_s > 0).any():  # one frame, or all at one time
        return times_s[:1], 1.0
    usual_s = float(np.median(gaps_s[gaps_s > 0]))
    steady = times_s[0] + usual_s * np.arange(len(times_s))
    if _is_steady(steady, times_s):
        return steady, usual_s
    step_s = 2.0 ** math.floor(math.log2(usual_s))
    passed_s = times_s - times_s[0]
    if passed_s[-1] > _MOST_ROWS * len(times_s) * step_s:
        passed_s = np.concatenate([[0.0], np.minimum(gaps_s, _MOST_ROWS / 2 * usual_s).cumsum()])
    return np.interp(step_s * np.arange(int(passed_s[-1] / step_s) + 1), passed_s, times_s), step_s


def _is_steady(grid: Float[np.ndarray, " G"], times_s: Curve) -> bool:
    """Whether each frame lies within a quarter step of its place in the grid."""
    if len(grid) != len(times_s):
        return False
    return len(grid) < 2 or bool(np.abs(times_s - grid).max() <= (grid[1] - grid[0]) / 4)


def _at(grid: Float[np.ndarray, " G"], video: FrameFeatures) -> Float[np.ndarray, "G D"]:
    """The frame vectors at the times of a grid; between two frames in proportion."""
    position = np.interp(grid, video.times_s, np.arange(len(video.times_s)))
    before = np.floor(position).astype(np.int64)
    after = np.minimum(before + 1, len(video.times_s) - 1)
    share = (position - before)[:, None].astype(np.float32)
    return video.vectors[before] * (1 - share) + video.vectors[after] * share


def _gaussian(deviation: float) -> Float[np.ndarray, " K"]:
    """Weights at whole steps up to the reach."""
    reach = max(1, math.ceil(_REACH * deviation))  # at least one, so that a gap follows every video of the block
    return np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)


def _weight_inside(length: int, deviation: float) -> Float[np.ndarray, " T"]:
    """For each position of a sequence, how much of a Gaussian's weight falls inside it."""
    weights = _gaussian(deviation)
    reach = len(weights) // 2
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    position = np.arange(length)
    return cumulative[np.minimum(reach + length - position, len(weights))] - cumulative[np.maximum(reach - position, 0)]


def _gaussian_filter(curve: Curve, deviation: float) -> Curve:
    """The curve under a Gaussian; weight outside the video is left out of the mean."""
    weights = _gaussian(deviation)
    reach = len(weights) // 2
    return np.convolve(curve, weights)[reach : reach + len(curve)] / _weight_inside(len(curve), deviation)


def products(frames: Float16[np.ndarray, "T E"], queries: Float16[np.ndarray, "Q E"]) -> Float64[np.ndarray, "T Q"]:
    """Every frame times every query, added up in float32; each product is one thread's, however many there are."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = threads if len(frames) >= _WORTH_THREADS else 1
    return np.asarray(numkong.cdist(frames, queries, "dot", threads=threads))


def _filter_long(
    values: Float32[np.ndarray, " T"], weights: Float[np.ndarray, " K"], piece: int = 32
) -> Float32[np.ndarray, " T"]:
    """A sequence of millions under a short symmetric filter: each piece of it, with its surroundings, times a band.

    As a matrix product it takes a tenth of the time that a convolution of one channel does.
    """
    reach, num_pieces = len(weights) // 2, -(-len(values) // piece)
    band = np.zeros((piece + 2 * reach, piece), dtype=np.float32)
    for position in range(piece):
        band[position : position + len(weights), position] = weights
    surrounded = np.pad(values, (reach, reach + num_pieces * piece - len(values)))
    pieces = np.lib.stride_tricks.sliding_window_view(surrounded, len(band))[::piece]
    return (np.ascontiguousarray(pieces) @ band).ravel()[: len(values)]
