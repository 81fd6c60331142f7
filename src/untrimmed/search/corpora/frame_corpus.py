"""What corpora without training share: videos in blocks, and what is known of all their frames together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from untrimmed.search.cache.blocks import Block, Blocks, Part
from untrimmed.search.corpora.corpus import FrameSum, KeptBlock


@runtime_checkable
class SummedVideo(Protocol):
    """A video as it is laid out, with the sum of its frames."""

    @property
    def sum(self) -> FrameSum:
        """Of its frames."""
        ...


@runtime_checkable
class VideoBlock(Block, Protocol):
    """A block that gives its videos."""

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """All that it consists of."""
        ...

    def video(self, row: int) -> Any:
        """One of them."""
        ...

    @property
    def sum(self) -> FrameSum:
        """Of the frames of all of them."""
        ...


V = TypeVar("V", bound=SummedVideo)
B = TypeVar("B", bound=VideoBlock)
C = TypeVar("C", bound="FrameCorpus[Any, Any]")


class FrameCorpus(Generic[B, V]):
    """Videos in blocks, beside what other shards of the library have; it never changes."""

    def __init__(self, blocks: Blocks[B], restore: Callable[[Mapping[str, np.ndarray]], B]):
        """`restore`: the block that consists of these arrays."""
        self.blocks, self._restore = blocks, restore
        self._frames = FrameSum(0.0, 0)
        self._beside: tuple[FrameSum, ...] = ()  # of the other shards of the library

    def __len__(self) -> int:
        return len(self.blocks)

    def video(self, video_id: str) -> V:
        """One video as it is laid out.

        Raises: KeyError for one that is not there.
        """
        block, row = self.blocks.find(video_id)
        video: V = block.video(row)
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
        frames = _added([self._frames, *self._beside])
        return float(sentence @ np.float32(frames.total / max(1, frames.num_frames)))

    def arrays(self) -> Sequence[Mapping[str, np.ndarray]]:
        """See `Keepable`."""
        return [part.block.arrays for part in self.blocks.parts]

    def restored(self: C, kept: Iterable[KeptBlock]) -> C:
        """See `Keepable`."""
        parts = [Part(self._restore(arrays), present) for arrays, present, _ in kept]
        corpus = copy.copy(self)
        corpus.blocks = self.blocks.of(parts)
        corpus._frames = _added([_present(part) for part in parts])
        return corpus

    def _changed(self: C, new: Sequence[VideoBlock], changed: Collection[str]) -> C:
        """With new blocks, whose videos are among those that have changed, and without the others of these."""
        out = [self.video(video_id).sum for video_id in changed if video_id in self.blocks]
        kept = _without(self._frames, out) if len(out) < len(self) else FrameSum(0.0, 0)
        corpus = copy.copy(self)
        corpus.blocks = self.blocks.update(new, changed)
        corpus._frames = _added([kept, *(block.sum for block in new)])
        return corpus


def changed_ids(new: Sequence[Block], removed: Iterable[str]) -> set[str]:
    """The videos that an update brings, replaces or takes away."""
    return {*removed, *(video_id for block in new for video_id in block.ids)}


def _present(part: Part[Any]) -> FrameSum:
    """The sum of the frames of its videos, of as few of which as possible these are read."""
    block, there = part.block, part.present
    if 2 * there.sum() < len(there):
        return _added([block.video(row).sum for row in np.flatnonzero(there).tolist()])
    return _without(block.sum, [block.video(row).sum for row in np.flatnonzero(~there).tolist()])


def _added(sums: Sequence[FrameSum]) -> FrameSum:
    return FrameSum(sum((some.total for some in sums), 0.0), sum(some.num_frames for some in sums))


def _without(frames: FrameSum, gone: Sequence[FrameSum]) -> FrameSum:
    out = _added(gone)
    return FrameSum(frames.total - out.total, frames.num_frames - out.num_frames)
