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

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float64, Int

from untrimmed.moments.clearest import SpanSettings, standing_out
from untrimmed.moments.scenes import scene_tree
from untrimmed.search.cache.blocks import Blocks, Part, Split
from untrimmed.search.corpora.corpus import KeptBlock, RankedVideo
from untrimmed.search.corpora.frame_corpus import FrameCorpus, changed_ids
from untrimmed.search.corpora.gaussian import gaussian_filter
from untrimmed.search.corpora.window_block import BRANCH, Curve, WindowBlock, WindowVideo
from untrimmed.search.pruning.candidates import Candidates
from untrimmed.search.pruning.coded_blocks import CodedBlocks
from untrimmed.search.pruning.coded_videos import Arrays, Coder
from untrimmed.search.pruning.coded_windows import CodedWindows
from untrimmed.search.pruning.codes import Probe
from untrimmed.search.pruning.products import ROUNDING, exact_products, halves
from untrimmed.search.pruning.shortfalls import Shortfalls
from untrimmed.search.pruning.threads import share
from untrimmed.types import Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_ROWS_OF_BLOCK = 2**16  # about 10 h: threads are worth it, and an update copies no more at once
LEAST_CODED = 2**17  # rows: fewer are read in less time than their codes would save
LEAST_CODED_AT_ONCE = 2**20  # rows: fewer are read before the loops over codes are loaded


class WindowCorpus(FrameCorpus["WindowBlock", "WindowVideo"]):
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
        super().__init__(Blocks(self._join, _ROWS_OF_BLOCK), WindowBlock)
        self._known_scenes: dict[str, Int[np.ndarray, "N 2"]] = {}
        self.coder: Coder[WindowBlock, CodedWindows] = Coder(CodedWindows)  # all that `update` gives share it
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

    def lacking_codes(self) -> Iterator[tuple[WindowBlock, Arrays, Arrays]]:
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

    def _laid_out(self, added: Iterable[StoredVideo]) -> Iterator[WindowBlock]:
        """Videos in blocks of about the usual size, a block at a time in memory beside what it is made of."""
        gathered: list[WindowVideo] = []
        num_rows = 0
        for stored in added:
            gathered.append(WindowVideo.of(stored.record.video_id, stored.features))
            num_rows += len(gathered[-1].frames)
            if num_rows >= _ROWS_OF_BLOCK:
                yield WindowBlock.of(gathered, self.config.deviation_s)
                gathered, num_rows = [], 0
        if gathered:
            yield WindowBlock.of(gathered, self.config.deviation_s)

    def _join(self, parts: Sequence[Part[WindowBlock]]) -> WindowBlock:
        videos = [part.block.video(row) for part in parts for row in np.flatnonzero(part.present).tolist()]
        return WindowBlock.of(videos, self.config.deviation_s)


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

    def _candidates(self) -> Candidates[WindowBlock]:
        corpus = self._corpus
        coded = corpus.coder.together(corpus.blocks, CodedBlocks)

        def by_rows(_: str, probe: Probe, split: Split[WindowBlock], needed: Float[np.ndarray, " N"]) -> np.ndarray:
            found, ends = [np.empty(0, np.float32)], np.cumsum([0, *(len(rows) for _, rows in split)])
            for (block, rows), start, stop in zip(split, ends, ends[1:], strict=False):
                windows = block.windows(corpus.coder.of(block)[BRANCH], self._read)
                found.append(windows.by_rows(probe, rows, needed[start:stop]))
            return np.concatenate(found)

        each = (1 + self._recall) / 2  # means and codes may both pass a video over
        probe = coded[BRANCH].axes.probe(self._sentence, each)
        allowance = corpus.shortfalls.allowance(each) if self._recall < 1 else None
        return Candidates(
            coded,
            by_rows,
            [(BRANCH, probe)],
            fuzz=max(some.rounding(probe) for some in coded[BRANCH].each),
            allowance=allowance,
        )

    def _rough(self, split: Split[WindowBlock]) -> Float[np.ndarray, " N"]:
        groups = [*split]
        scores = [np.empty(0)] * len(groups)

        def score(start: int, stop: int) -> None:
            for place, (block, rows) in enumerate(groups[start:stop], start):
                all_of_them = 4 * len(rows) > len(block.ids)
                few = Split.of([(block, rows)])
                scores[place] = block.rough_scores(self._halves[:1])[rows] if all_of_them else self._exact(few)

        share(len(groups), 1, score)
        return np.concatenate(scores)

    def _exact(self, split: Split[WindowBlock]) -> Float64[np.ndarray, " N"]:
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

    def _filtered(self, video: WindowVideo) -> Curve:
        return gaussian_filter(self._curve(video), self._corpus.config.deviation_s / video.step_s)

    def _curve(self, video: WindowVideo) -> Curve:
        """The cosine at every time of the video's grid."""
        return exact_products(video.frames, self._halves)
