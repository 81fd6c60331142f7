"""Videos of the training-free windows side by side: their frames, on regular grids of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float16, Float32, Float64, Int

from untrimmed.search.cache.mapped import rows_of
from untrimmed.search.corpora.corpus import FrameSum
from untrimmed.search.corpora.gaussian import filter_long, filter_rows, gaussian, weight_inside
from untrimmed.search.corpora.grid import on_a_grid
from untrimmed.search.pruning.coded_videos import Coder
from untrimmed.search.pruning.coded_windows import CodedWindows, Windows
from untrimmed.search.pruning.products import padded_width, products
from untrimmed.types import FrameFeatures

BRANCH = "windows"  # of codes, the only one

Curve = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class WindowVideo:
    """A video on a regular grid of times (`on_a_grid`)."""

    video_id: str
    frames: Float[np.ndarray, "T E"]  # of a block that holds it: a part of that
    times_s: Curve
    spacing_s: float
    duration_s: float
    dim: int  # of the encoder's vectors: rows of a block may be wider

    @classmethod
    def of(cls, video_id: str, features: FrameFeatures) -> WindowVideo:
        """With frames of its own, of which those that a grid needs between others are in proportion."""
        times_s, spacing_s, frames = on_a_grid(features)
        return cls(video_id, frames, times_s, spacing_s, features.duration_s, frames.shape[1])

    @property
    def sum(self) -> FrameSum:
        """Of its frames, as a block has them."""
        return FrameSum(_total_of(self.frames[:, : self.dim]), len(self.frames))

    @property
    def step_s(self) -> float:
        """What filters take for the spacing: whole milliseconds, so that videos of nearly one step share them.

        Times of moments must not be rounded: at 3 frames a second that adds up to 3.6 s in an hour.
        """
        return max(float(np.round(self.spacing_s, 3)), 0.001)


class WindowBlock:
    """Videos side by side, those of one step together, as arrays in memory or in a file.

    Between them are rows of zeros as wide as a window reaches: one filter runs over all curves and mixes no two videos.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        """`arrays` as `of` makes them."""
        self.arrays = arrays
        self.ids: list[str] = arrays["ids"].tolist()
        self.sizes: Int[np.ndarray, " V"] = arrays["sizes"]
        self._lengths: Int[np.ndarray, " V"] = arrays["lengths"]
        self._starts, self._times = np.cumsum(self.sizes) - self.sizes, np.cumsum(self._lengths) - self._lengths
        self.sum = FrameSum(arrays["total"], int(self._lengths.sum()))

    @classmethod
    def of(cls, videos: Sequence[WindowVideo], deviation_s: float) -> WindowBlock:
        """Videos with copies of their frames."""
        videos = sorted(videos, key=lambda video: video.step_s)
        lengths = np.array([len(video.frames) for video in videos])
        steps_s, first = np.unique([video.step_s for video in videos], return_index=True)
        first = np.append(first, len(videos))
        deviations = deviation_s / steps_s
        gaps = np.repeat([len(gaussian(deviation)) // 2 for deviation in deviations], np.diff(first))
        sizes, dim = lengths + gaps, videos[0].dim
        frames = np.zeros((sizes.sum(), padded_width(dim)), dtype=np.float16)
        inside = np.ones(len(frames), dtype=np.float32)  # between videos any number but zero
        each = zip(videos, np.cumsum(sizes) - sizes, np.repeat(deviations, np.diff(first)), strict=True)
        for video, start, deviation in each:
            stop = start + len(video.frames)
            frames[start:stop, :dim] = video.frames[:, :dim]
            inside[start:stop] = weight_inside(len(video.frames), float(deviation))
        return cls(
            {
                "ids": np.array([video.video_id for video in videos]),
                "lengths": lengths,  # in frames
                "sizes": sizes,  # with the rows of zeros behind them
                "first": first,  # video of each step, and where the last ones end
                "deviations": deviations,  # of the ranking window in frames, for each step
                "spacings_s": np.array([video.spacing_s for video in videos]),
                "durations_s": np.array([video.duration_s for video in videos]),
                "times_s": np.concatenate([video.times_s for video in videos]),
                "inside": inside,  # how much of a window that ranks is inside the video, for each row
                "total": _total_of(frames[:, :dim]),
                "frames": frames,
            }
        )

    @property
    def frames(self) -> Float16[np.ndarray, "R E"]:
        """All rows."""
        return self.arrays["frames"]

    def video(self, row: int) -> WindowVideo:
        """One of the videos; its frames are a part of the block's."""
        start, time, length = int(self._starts[row]), int(self._times[row]), int(self._lengths[row])
        frames = rows_of(self.arrays, "frames", start, start + length)
        times_s = rows_of(self.arrays, "times_s", time, time + length)
        spacing_s, duration_s = (float(self.arrays[name][row]) for name in ("spacings_s", "durations_s"))
        return WindowVideo(self.ids[row], frames, times_s, spacing_s, duration_s, len(self.arrays["total"]))

    @cached_property
    def _groups(self) -> list[_Group]:
        """Of the videos of each step."""
        places = np.stack([self._starts, self._starts + self._lengths], axis=1)
        inside, groups, first = self.arrays["inside"], [], self.arrays["first"].tolist()
        for a, b, deviation in zip(first, first[1:], self.arrays["deviations"].tolist(), strict=False):
            start, stop = int(places[a, 0]), int(self._starts[b - 1] + self.sizes[b - 1])
            groups.append(_Group(start, stop, (places[a:b] - start).ravel(), deviation, inside[start:stop]))
        return groups

    def rough_scores(self, query: Float16[np.ndarray, "1 E"]) -> Float32[np.ndarray, " V"]:
        """Each video by its best window, from float16 products."""
        relevance = products(self.frames, query)[:, 0].astype(np.float32)
        return np.concatenate([group.best(relevance) for group in self._groups])

    def coded(self, coder: Coder[WindowBlock, CodedWindows]) -> dict[str, CodedWindows]:
        """Codes of all windows."""
        frames = self.frames[:, : len(self.arrays["total"])]
        windows = np.concatenate([group.windows(frames) for group in self._groups])
        return {BRANCH: CodedWindows.of(coder.axes(BRANCH, windows), windows, self._lengths, frames)}

    def windows(self, coded: CodedWindows, read: list[int]) -> Windows:
        """All windows by their codes; how many frames are read is noted."""
        return Windows(coded, self.arrays, (self._starts, self._lengths), self._filters, read)

    @cached_property
    def _filters(self) -> tuple[np.ndarray, ...]:
        """The weights of all windows, one after the other; where each begins; which one each video has."""
        weights = [gaussian(deviation).astype(np.float32) for deviation in self.arrays["deviations"].tolist()]
        own = np.repeat(np.arange(len(weights)), np.diff(self.arrays["first"]))
        return np.concatenate(weights), np.cumsum([0, *map(len, weights)]), own


@dataclass(frozen=True)
class _Group:
    """The videos of one step: rows `start` to `stop` of the block; `places` are the videos' starts and ends in it."""

    start: int
    stop: int
    places: Int[np.ndarray, " B"]
    deviation: float  # of the ranking window, in steps
    inside: Float[np.ndarray, " T"]  # the weight of a window that falls inside the video

    def best(self, relevance: Float32[np.ndarray, " R"]) -> Float32[np.ndarray, " V"]:
        """The best window of each video, from the relevance of all rows of the block."""
        filtered = filter_long(relevance[self.start : self.stop], gaussian(self.deviation)) / self.inside
        return np.maximum.reduceat(filtered, self.places)[::2]  # between two videos lies a gap

    def windows(self, frames: Float16[np.ndarray, "R D"]) -> Float32[np.ndarray, "N D"]:
        """The window around each frame of the videos, from all rows of the block."""
        filtered = filter_rows(frames[self.start : self.stop], gaussian(self.deviation))
        filtered /= self.inside[:, None]
        edges = np.zeros(len(filtered) + 1, dtype=np.int64)
        edges[self.places[::2]], edges[self.places[1::2]] = 1, -1
        return filtered[edges.cumsum()[:-1] > 0]


def _total_of(frames: Float16[np.ndarray, "T D"]) -> Float64[np.ndarray, " D"]:
    """The sum of frames whose numbers are whole multiples of float16's smallest step.

    Sums and differences of these are exact in float64: that of a corpus depends on its videos alone, not on their
    order.
    """
    total: Float64[np.ndarray, " D"] = frames.sum(axis=0, dtype=np.float64)
    return total
