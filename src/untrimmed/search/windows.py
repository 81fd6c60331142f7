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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float16, Float32, Float64, Int

from untrimmed.moments.clearest import SpanSettings, standing_out
from untrimmed.moments.scenes import scene_tree
from untrimmed.search.blocks import Blocks, Part, Split
from untrimmed.search.candidates import Candidates
from untrimmed.search.coded_blocks import CodedBlocks
from untrimmed.search.coded_videos import Arrays, Coder
from untrimmed.search.coded_windows import CodedWindows, Windows
from untrimmed.search.codes import Probe
from untrimmed.search.corpus import FrameSum, KeptBlock, RankedVideo
from untrimmed.search.frame_corpus import FrameCorpus, changed_ids
from untrimmed.search.gaussian import filter_long, filter_rows, gaussian, gaussian_filter, weight_inside
from untrimmed.search.grid import on_a_grid
from untrimmed.search.mapped import rows_of
from untrimmed.search.products import ROUNDING, exact_products, halves, padded_width, products
from untrimmed.search.shortfalls import Shortfalls
from untrimmed.search.threads import share
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.index import StoredVideo

_ROWS_OF_BLOCK = 2**16  # about 10 h: threads are worth it, and an update copies no more at once
LEAST_CODED = 2**17  # rows: fewer are read in less time than their codes would save
LEAST_CODED_AT_ONCE = 2**20  # rows: fewer are read before the loops over codes are loaded
_BRANCH = "windows"  # the only one

Curve = Float[np.ndarray, " T"]


class WindowCorpus(FrameCorpus["_Block", "_Video"]):
    """Frame vectors of all videos in float16 blocks, searched exactly by windows and scenes; it has no weights."""

    @dataclass(frozen=True, kw_only=True)
    class Config(SpanSettings):
        """Chosen on one half of the real clips and reported on the other: docs/quality.md."""

        rank_width_s: float = 4.0
        sharpness: float = 4.0  # width of the ranking window over the standard deviation of its Gaussian; JSG has 9
        change_s: float = 0.5  # squared distance times seconds that a change of scene has to explain

        @property
        def deviation_s(self) -> float:
            """Of the Gaussian that ranks."""
            return self.rank_width_s / self.sharpness

    name = "gaussian_windows"

    def __init__(self, config: Config | None = None):
        """Without videos: `update` gives a corpus that has some."""
        self.config = config or self.Config()
        super().__init__(Blocks(self._join, _ROWS_OF_BLOCK), _Block)
        self._known_scenes: dict[str, Int[np.ndarray, "N 2"]] = {}
        self.coder: Coder[_Block, CodedWindows] = Coder(CodedWindows)  # all that `update` gives share it
        self.shortfalls = Shortfalls()  # and this

    def prepare(self, query: TextFeatures, *, recall: float = 1.0) -> WindowQuery:
        """The sentence's vector as two halves of float16."""
        return WindowQuery(self, query.sentence, recall)

    def update(self, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> WindowCorpus:
        """`Corpus.update`; videos need at least one frame each."""
        new = list(self._laid_out(added))
        changed = changed_ids(new, removed)
        corpus = self._changed(new, changed)
        known = self._known_scenes.copy()  # searches may be filling it
        corpus._known_scenes = {video_id: scenes for video_id, scenes in known.items() if video_id not in changed}
        return corpus

    @property
    def layout(self) -> str:
        """See `Keepable`; the number changes with what blocks have in their arrays."""
        return f"{self.name} 1 {self.config.deviation_s!r}"

    def restored(self, kept: Iterable[KeptBlock]) -> WindowCorpus:
        """See `Keepable`."""
        corpus = super().restored(kept := list(kept))
        for part, (_, _, codes) in zip(corpus.blocks.parts, kept, strict=True):
            self.coder.keep(part.block, codes)
        return corpus

    def lacking_codes(self) -> Iterator[tuple[_Block, Arrays, Arrays]]:
        """See `Keepable`."""
        blocks = [part.block for part in self.blocks.parts]
        if sum(int(block.sizes.sum()) for block in blocks) >= LEAST_CODED:
            yield from self.coder.lacking(blocks, lambda block: block.coded(self.coder))

    def scenes(self, video_id: str) -> Int[np.ndarray, "N 2"]:
        """The scenes of a video; found when it is first among the hits, since that costs as much as some searches."""
        if (found := self._known_scenes.get(video_id)) is None:
            video = self.video(video_id)
            found = self._known_scenes[video_id] = scene_tree(video.frames, self.config.change_s / video.spacing_s)
        return found

    def _laid_out(self, added: Iterable[StoredVideo]) -> Iterator[_Block]:
        """Videos in blocks of about the usual size, a block at a time in memory beside what it is made of."""
        gathered: list[_Video] = []
        num_rows = 0
        for stored in added:
            gathered.append(_Video.of(stored.record.video_id, stored.features))
            num_rows += len(gathered[-1].frames)
            if num_rows >= _ROWS_OF_BLOCK:
                yield _Block.of(gathered, self.config.deviation_s)
                gathered, num_rows = [], 0
        if gathered:
            yield _Block.of(gathered, self.config.deviation_s)

    def _join(self, parts: Sequence[Part[_Block]]) -> _Block:
        videos = [part.block.video(row) for part in parts for row in np.flatnonzero(part.present).tolist()]
        return _Block.of(videos, self.config.deviation_s)


class WindowQuery:
    """A sentence before the videos of a corpus."""

    def __init__(self, corpus: WindowCorpus, sentence: Float[np.ndarray, " D"], recall: float = 1.0):
        self._corpus, self._sentence, self._recall = corpus, sentence, recall
        self._halves = halves(sentence)
        self._read: list[int] = []  # frames that were read, where codes were looked at first

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos by their best window, see `PreparedQuery.rank`.

        All windows are scored from float16 products, then those videos that rounding leaves in doubt in float32: the
        result is that of float32 throughout. Where many frames have been searched some times, codes tell which windows
        can be among the best.
        """
        blocks = self._corpus.blocks
        many = len(blocks) if among is None else len(among)
        candidates, self._read = self._candidates() if 4 * limit <= many and self._codes_are_ready() else None, []
        ranked = blocks.rank(
            self._rough,
            self._exact,
            rounding=ROUNDING,
            limit=limit,
            among=among,
            bounds=candidates.bounds if candidates else (),
        )
        if candidates:
            self._corpus.coder.learn(sum(self._read) / (self._num_rows * many / len(blocks)))
            if self._recall < 1 and candidates.allowance is None and ranked:
                split = blocks.split([video.video_id for video in ranked])
                scores = np.array([video.score for video in ranked])
                self._corpus.shortfalls.learn(candidates.shortfalls(split, scores))
        return ranked

    @property
    def _num_rows(self) -> int:
        return sum(int(part.block.sizes.sum()) for part in self._corpus.blocks.parts)

    def _codes_are_ready(self) -> bool:
        blocks, coder = [part.block for part in self._corpus.blocks.parts], self._corpus.coder
        if (num_rows := self._num_rows) < LEAST_CODED or not np.isfinite(self._sentence).all():
            return False
        return coder.ready(blocks, lambda block: block.coded(coder), many=num_rows >= LEAST_CODED_AT_ONCE)

    def _candidates(self) -> Candidates[_Block]:
        corpus = self._corpus
        coded = corpus.coder.together(corpus.blocks, CodedBlocks)

        def by_rows(_: str, probe: Probe, split: Split[_Block], needed: Float[np.ndarray, " N"]) -> np.ndarray:
            found, ends = [np.empty(0, np.float32)], np.cumsum([0, *(len(rows) for _, rows in split)])
            for (block, rows), start, stop in zip(split, ends, ends[1:], strict=False):
                windows = block.windows(corpus.coder.of(block)[_BRANCH], self._read)
                found.append(windows.by_rows(probe, rows, needed[start:stop]))
            return np.concatenate(found)

        each = (1 + self._recall) / 2  # means and codes may both pass a video over
        probe = coded[_BRANCH].axes.probe(self._sentence, each)
        allowance = corpus.shortfalls.allowance(each) if self._recall < 1 else None
        return Candidates(
            coded,
            by_rows,
            [(_BRANCH, probe)],
            fuzz=max(some.rounding(probe) for some in coded[_BRANCH].each),
            allowance=allowance,
        )

    def _rough(self, split: Split[_Block]) -> Float[np.ndarray, " N"]:
        groups = [*split]
        scores = [np.empty(0)] * len(groups)

        def score(start: int, stop: int) -> None:
            for place, (block, rows) in enumerate(groups[start:stop], start):
                all_of_them = 4 * len(rows) > len(block.ids)
                few = Split.of([(block, rows)])
                scores[place] = block.rough_scores(self._halves[:1])[rows] if all_of_them else self._exact(few)

        share(len(groups), 1, score)
        return np.concatenate(scores)

    def _exact(self, split: Split[_Block]) -> Float64[np.ndarray, " N"]:
        places = [(block, row) for block, rows in split for row in rows.tolist()]
        scores, lengths = np.empty(len(places)), np.empty(len(places), dtype=np.int64)

        def score(start: int, stop: int) -> None:
            for place in range(start, stop):
                block, row = places[place]
                video = block.video(row)
                scores[place], lengths[place] = self._filtered(video).max(), len(video.frames)

        share(len(places), 1, score)
        self._read.append(int(lengths.sum()))
        return scores

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, the clearest first (`standing_out`), with their mean relevance."""
        video = self._corpus.video(video_id)
        return standing_out(
            self._curve(video),
            video.times_s,
            video.duration_s,
            self._corpus.scenes(video_id),
            others=self._corpus.background(self._sentence),
            settings=self._corpus.config,
            limit=limit,
        )

    def relevance(self, video_id: str) -> tuple[Curve, Curve]:
        """Times in seconds and the relevance there, through the window that ranks: what a plot shows."""
        video = self._corpus.video(video_id)
        return video.times_s, self._filtered(video)

    def _filtered(self, video: _Video) -> Curve:
        return gaussian_filter(self._curve(video), self._corpus.config.deviation_s / video.step_s)

    def _curve(self, video: _Video) -> Curve:
        """The cosine at every time of the video's grid."""
        return exact_products(video.frames, self._halves)


@dataclass(frozen=True)
class _Video:
    """A video on a regular grid of times (`on_a_grid`)."""

    video_id: str
    frames: Float[np.ndarray, "T E"]  # of a block that holds it: a part of that
    times_s: Curve
    spacing_s: float
    duration_s: float
    dim: int  # of the encoder's vectors: rows of a block may be wider

    @classmethod
    def of(cls, video_id: str, features: FrameFeatures) -> _Video:
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


class _Block:
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
    def of(cls, videos: Sequence[_Video], deviation_s: float) -> _Block:
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

    def video(self, row: int) -> _Video:
        """One of the videos; its frames are a part of the block's."""
        start, time, length = int(self._starts[row]), int(self._times[row]), int(self._lengths[row])
        frames = rows_of(self.arrays, "frames", start, start + length)
        times_s = rows_of(self.arrays, "times_s", time, time + length)
        spacing_s, duration_s = (float(self.arrays[name][row]) for name in ("spacings_s", "durations_s"))
        return _Video(self.ids[row], frames, times_s, spacing_s, duration_s, len(self.arrays["total"]))

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

    def coded(self, coder: Coder[_Block, CodedWindows]) -> dict[str, CodedWindows]:
        """Codes of all windows."""
        frames = self.frames[:, : len(self.arrays["total"])]
        windows = np.concatenate([group.windows(frames) for group in self._groups])
        return {_BRANCH: CodedWindows.of(coder.axes(_BRANCH, windows), windows, self._lengths, frames)}

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
