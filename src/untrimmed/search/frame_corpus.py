"""What corpora without training share: videos in blocks, and what is known of all their frames together."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, Float64

from untrimmed.search.blocks import Block, Blocks
from untrimmed.search.corpus import FrameSum


@runtime_checkable
class SummedVideo(Protocol):
    """A video as it is laid out, with the sum of its frames."""

    @property
    def total(self) -> Float64[np.ndarray, " D"]:
        """The sum, in steps so coarse that those of several videos add up exactly."""
        ...

    @property
    def num_frames(self) -> int:
        """Of how many."""
        ...


@runtime_checkable
class VideoBlock(Block, Protocol):
    """A block that gives its videos."""

    @property
    def videos(self) -> Sequence[Any]:
        """By row."""
        ...


V = TypeVar("V", bound=SummedVideo)
B = TypeVar("B", bound=VideoBlock)
C = TypeVar("C", bound="FrameCorpus[Any, Any]")


class FrameCorpus(Generic[B, V]):
    """Videos in blocks, beside what other shards of the library have; it never changes."""

    def __init__(self, blocks: Blocks[B]):
        self.blocks = blocks
        self._frames = FrameSum(0.0, 0)
        self._beside: tuple[FrameSum, ...] = ()  # of the other shards of the library

    def __len__(self) -> int:
        return len(self.blocks)

    def video(self, video_id: str) -> V:
        """One video as it is laid out.

        Raises: KeyError for one that is not there.
        """
        block, row = self.blocks.find(video_id)
        video: V = block.videos[row]
        return video

    def extent(self) -> FrameSum:
        """What the other shards of a library need to know of this one, see `Shardable`."""
        return self._frames

    def beside(self: C, others: Sequence[FrameSum]) -> C:
        """The corpus as one shard: its background is that of all of them."""
        corpus = copy.copy(self)
        corpus._beside = tuple(others)
        return corpus

    def background(self, sentence: Float[np.ndarray, " D"]) -> float:
        """The mean relevance of all frames of the corpus, those of other shards included."""
        total = sum(some.total for some in (self._frames, *self._beside))
        num_frames = sum(some.num_frames for some in (self._frames, *self._beside))
        return float(sentence @ np.float32(total / max(1, num_frames)))

    def _changed(self: C, new: Sequence[VideoBlock], changed: Collection[str]) -> C:
        """With new blocks, whose videos are among those that have changed, and without the others of these."""
        out = [self.video(video_id) for video_id in changed if video_id in self.blocks]
        come = [video for block in new for video in block.videos]
        corpus = copy.copy(self)
        corpus.blocks = self.blocks.update(new, changed)
        kept = self._frames.total - _total(out) if len(out) < len(self) else 0.0
        num_frames = self._frames.num_frames + _num_frames(come) - _num_frames(out)
        corpus._frames = FrameSum(kept + _total(come), num_frames)
        return corpus


def changed_ids(new: Sequence[Block], removed: Iterable[str]) -> set[str]:
    """The videos that an update brings, replaces or takes away."""
    return {*removed, *(video_id for block in new for video_id in block.ids)}


def _total(videos: Iterable[SummedVideo]) -> Float64[np.ndarray, " D"] | float:
    return sum((video.total for video in videos), 0.0)


def _num_frames(videos: Iterable[SummedVideo]) -> int:
    return sum(video.num_frames for video in videos)
