"""Encoded videos side by side: half precision in memory or in a file, single precision where they are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int
from torch import Tensor

from untrimmed.batches import EncodedVideos, with_second_axis
from untrimmed.scores.max_sim import Branches
from untrimmed.search.cache.blocks import Block, PartialBlock, Split
from untrimmed.search.cache.mapped import MappedArrays, picked

_TENSOR = "videos."  # before the name of what a method gives

Places = Mapping[str, Int[np.ndarray, "_ _"]]  # by the name of a tensor, which of its rows are read of each video


class EncodedBlock(Block):
    """Encoded videos, as arrays in memory or in a file, that count `longest` along second axes."""

    def __init__(self, arrays: Mapping[str, np.ndarray], template: EncodedVideos, longest: Sequence[int] | None = None):
        """`arrays` as `of` makes them; without `longest` as long as they are there."""
        super().__init__(arrays)
        self.template = template
        self.durations_s: Float[np.ndarray, " V"] = arrays["durations_s"]
        self.lengths: Int[np.ndarray, "V N"] = arrays["lengths"]  # each video's own, one for each of `long_tensors`
        self.longest = longest

    @classmethod
    def of(
        cls,
        ids: Sequence[str],
        durations_s: Float[np.ndarray, " V"],
        videos: EncodedVideos,
        lengths: Int[np.ndarray, "V N"],
    ) -> EncodedBlock:
        """Videos as the index keeps them."""
        tensors = {f"{_TENSOR}{name}": tensor.numpy() for name, tensor in videos.tensors().items()}
        return cls({"ids": np.array(ids), "durations_s": durations_s, "lengths": lengths, **tensors}, videos)

    @cached_property
    def videos(self) -> EncodedVideos:
        """All of them in single precision; see `forget`."""
        return self.select(np.arange(len(self.ids)))

    def forget(self) -> None:
        """Let go of `videos`, where few are wanted at a time from now on."""
        self.__dict__.pop("videos", None)

    def video(self, row: int) -> EncodedVideos:
        """One video by itself, in memory of its own: what is computed of it does not depend on where it lay."""
        return self.select(np.array([row]))

    def select(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Some videos in single precision, as long as they count."""
        return self.fitted(rows).to("cpu", torch.float32)

    def fitted(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Some videos in half precision, as long as they count."""
        found = self.stored(rows)
        if self.longest is None:
            return found
        long = zip(long_tensors(found), self.longest, strict=True)
        as_long = {name: with_second_axis(tensor, length) for (name, tensor), length in long}
        return found.with_tensors(found.tensors() | as_long)

    def fetch(self, rows: Int[np.ndarray, " K"]) -> None:
        """Have some videos read from where they lie, while others are, too."""
        if not isinstance(self.arrays, MappedArrays):
            return
        for name in self.template.tensors():
            self.arrays.fetch(f"{_TENSOR}{name}", rows)

    def stored(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Some videos as they are in the arrays."""
        names = self.template.tensors()
        arrays = {name: picked(self.arrays, f"{_TENSOR}{name}", rows) for name in names}
        return self.template.with_tensors({name: torch.from_numpy(array) for name, array in arrays.items()})

    def as_long_as(self, longest: Int[np.ndarray, " N"]) -> EncodedBlock:
        """With second axes of these lengths."""
        wanted = longest.tolist()
        return self if self.longest == wanted else EncodedBlock(self.arrays, self.template, wanted)


def with_rows(wanted: Sequence[tuple[Split[EncodedBlock], Places]]) -> list[EncodedVideos]:
    """Videos in half precision, of those tensors that are named with these rows alone: the same for all of one split.

    Splits are of the same blocks. What all of them want of a block is read at once.
    """
    whole, sizes = Split.joined([split for split, _ in wanted]), [len(split) for split, _ in wanted]
    found: list[dict[str, Tensor]] = [{} for _ in wanted]
    for name in whole.blocks[0].template.tensors():
        if name in wanted[0][1]:
            widths = [places[name].shape[1] for _, places in wanted]
            number = np.repeat(np.arange(len(whole)), np.repeat(widths, sizes))
            rows = _read(whole.at(number), name, np.concatenate([places[name].ravel() for _, places in wanted]))
            each = rows.split([size * width for size, width in zip(sizes, widths, strict=True)])
            parts = [part.unflatten(0, (-1, width)) for part, width in zip(each, widths, strict=True)]
        else:
            parts = [*_read(whole, name).split(sizes)]
        for own, part in zip(found, parts, strict=True):
            own[name] = part
    videos = [whole.blocks[0].template.with_tensors(own) for own in found]
    if "frame_mask" not in wanted[0][1]:
        return videos
    num_frames = _read(whole, "frame_mask").sum(dim=1).split(sizes)
    return [dataclasses.replace(own, num_frames=some) for own, some in zip(videos, num_frames, strict=True)]


def _read(split: Split[EncodedBlock], name: str, places: Int[np.ndarray, " N"] | None = None) -> Tensor:
    """A tensor of some videos, or one row of it of each; of different length they are padded with zeros (False)."""
    order = np.argsort(split.number, kind="stable")  # so that each block is read once
    ordered, arrays, start = split.at(order), [], 0
    for block, rows in ordered:
        here = order[start : start + len(rows)]
        arrays.append(picked(block.arrays, f"{_TENSOR}{name}", rows, None if places is None else places[here]))
        start += len(rows)
    if len({array.shape[1:] for array in arrays}) == 1:
        found = np.empty((len(split), *arrays[0].shape[1:]), arrays[0].dtype)
        found[order] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return torch.from_numpy(found)
    longest = max(array.shape[1] for array in arrays)
    padded = torch.cat([with_second_axis(torch.from_numpy(array), longest) for array in arrays])
    return padded[torch.from_numpy(np.argsort(order))]


def branches_of(sketch: Branches) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " V"]]]:
    """Rows of all videos one after the other, and how many each has: of those at the end that are alike one counts."""
    branches = {}
    for branch, rows in sketch.items():
        differs = F.pad((rows[:, 1:] != rows[:, :-1]).any(dim=2), (1, 0), value=True)
        counts = (differs * torch.arange(1, rows.shape[1] + 1)).amax(dim=1)
        kept = torch.arange(rows.shape[1]) < counts[:, None]
        branches[branch] = rows[kept].numpy(), counts.numpy()
    return branches


def long_tensors(videos: EncodedVideos) -> list[tuple[str, Tensor]]:
    """The tensors that have a second axis, by name."""
    return [(name, tensor) for name, tensor in videos.tensors().items() if tensor.ndim > 1]


def joined(parts: Sequence[PartialBlock[EncodedBlock]]) -> EncodedBlock:
    """One block of those videos that are there."""
    rows = [np.flatnonzero(part.present) for part in parts]
    videos = [part.block.stored(some) for part, some in zip(parts, rows, strict=True)]
    return EncodedBlock.of(
        ids=[part.block.ids[row] for part, some in zip(parts, rows, strict=True) for row in some],
        durations_s=np.concatenate([part.block.durations_s[part.present] for part in parts]),
        videos=videos[0].cat(videos),
        lengths=np.concatenate([part.block.lengths[part.present] for part in parts]),
    )
