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
from untrimmed.search.blocks import Part, Split
from untrimmed.search.mapped import MappedArrays, picked

_TENSOR = "videos."  # before the name of what a method gives


class EncodedBlock:
    """Encoded videos, as arrays in memory or in a file, that count `longest` along second axes."""

    def __init__(self, arrays: Mapping[str, np.ndarray], template: EncodedVideos, longest: Sequence[int] | None = None):
        """`arrays` as `of` makes them; without `longest` as long as they are there."""
        self.arrays, self.template = arrays, template
        self.ids: list[str] = arrays["ids"].tolist()
        self.durations_s: Float[np.ndarray, " V"] = arrays["durations_s"]
        self.lengths: Int[np.ndarray, "V N"] = arrays["lengths"]  # each video's own, one for each of `long_tensors`
        self.sizes: Int[np.ndarray, " V"] = np.ones(len(self.ids), dtype=np.int64)  # one row a video
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


def with_rows(split: Split[EncodedBlock], places: Mapping[str, Int[np.ndarray, "N W"]]) -> EncodedVideos:
    """Videos in half precision, of those tensors that `places` names with these rows alone."""
    ends = np.cumsum([0, *(len(rows) for _, rows in split)]).tolist()
    groups = [(block, rows, slice(*ends[i : i + 2])) for i, (block, rows) in enumerate(split)]

    def read(name: str, places: Int[np.ndarray, "N W"] | None = None) -> list[np.ndarray]:
        return [
            picked(block.arrays, f"{_TENSOR}{name}", rows, None if places is None else places[here])
            for block, rows, here in groups
        ]

    template = split.blocks[0].template
    tensors = {name: _beside(read(name, places.get(name))) for name in template.tensors()}
    found = template.with_tensors(tensors)
    if "frame_mask" not in places:
        return found
    num_frames = np.concatenate([mask.sum(axis=1) for mask in read("frame_mask")])
    return dataclasses.replace(found, num_frames=torch.from_numpy(num_frames))


def _beside(arrays: Sequence[np.ndarray]) -> Tensor:
    """One array of all; second axes of different length are padded with zeros (False)."""
    if len({array.shape[1:] for array in arrays}) == 1:
        return torch.from_numpy(np.concatenate(arrays))
    longest = max(array.shape[1] for array in arrays)
    return torch.cat([with_second_axis(torch.from_numpy(array), longest) for array in arrays])


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


def joined(parts: Sequence[Part[EncodedBlock]]) -> EncodedBlock:
    """One block of those videos that are there."""
    rows = [np.flatnonzero(part.present) for part in parts]
    videos = [part.block.stored(some) for part, some in zip(parts, rows, strict=True)]
    return EncodedBlock.of(
        ids=[part.block.ids[row] for part, some in zip(parts, rows, strict=True) for row in some],
        durations_s=np.concatenate([part.block.durations_s[part.present] for part in parts]),
        videos=videos[0].cat(videos),
        lengths=np.concatenate([part.block.lengths[part.present] for part in parts]),
    )
