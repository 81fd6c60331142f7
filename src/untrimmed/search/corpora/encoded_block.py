"""Blocks of encoded videos: stored in half precision, scored in single precision."""

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

_TENSOR = "videos."  # prefix of the names of tensors

Places = Mapping[str, Int[np.ndarray, "_ _"]]  # by the name of a tensor: the rows to read of each video


class EncodedBlock(Block):
    """Encoded videos in memory or in a file. When they are read, second axes are padded to `longest`."""

    def __init__(self, arrays: Mapping[str, np.ndarray], template: EncodedVideos, longest: Sequence[int] | None = None):
        """Take the arrays of `of`; without `longest`, nothing is padded."""
        super().__init__(arrays)
        self.template = template
        self.durations_s: Float[np.ndarray, " V"] = arrays["durations_s"]
        self.lengths: Int[np.ndarray, "V N"] = arrays["lengths"]  # of each video in each of `long_tensors`
        self.longest = longest

    @classmethod
    def of(
        cls,
        ids: Sequence[str],
        durations_s: Float[np.ndarray, " V"],
        videos: EncodedVideos,
        lengths: Int[np.ndarray, "V N"],
    ) -> EncodedBlock:
        """Combine encoded videos, their ids, durations and lengths into a block."""
        tensors = {f"{_TENSOR}{name}": tensor.numpy() for name, tensor in videos.tensors().items()}
        return cls({"ids": np.array(ids), "durations_s": durations_s, "lengths": lengths, **tensors}, videos)

    @cached_property
    def videos(self) -> EncodedVideos:
        """All videos in single precision."""
        return self.select(np.arange(len(self.ids)))

    def forget(self) -> None:
        """Free the memory of `videos`."""
        self.__dict__.pop("videos", None)

    def video(self, row: int) -> EncodedVideos:
        """Return a copy of one video; results computed from it do not depend on its place in memory."""
        return self.select(np.array([row]))

    def select(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Return padded videos in single precision."""
        return self.fitted(rows).to("cpu", torch.float32)

    def fitted(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Return padded videos in half precision."""
        videos = self.stored(rows)
        if self.longest is None:
            return videos
        tensors = zip(long_tensors(videos), self.longest, strict=True)
        padded = {name: with_second_axis(tensor, length) for (name, tensor), length in tensors}
        return videos.with_tensors(videos.tensors() | padded)

    def fetch(self, rows: Int[np.ndarray, " K"]) -> None:
        """Read videos in parallel before `stored`, see `MappedArrays.fetch`."""
        if not isinstance(self.arrays, MappedArrays):
            return
        for name in self.template.tensors():
            self.arrays.fetch(f"{_TENSOR}{name}", rows)

    def stored(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Return videos without padding."""
        names = self.template.tensors()
        arrays = {name: picked(self.arrays, f"{_TENSOR}{name}", rows) for name in names}
        return self.template.with_tensors({name: torch.from_numpy(array) for name, array in arrays.items()})

    def padded_to(self, longest: Int[np.ndarray, " N"]) -> EncodedBlock:
        """Return the block with second axes of these lengths."""
        lengths = longest.tolist()
        return self if self.longest == lengths else EncodedBlock(self.arrays, self.template, lengths)


def with_rows(requests: Sequence[tuple[Split[EncodedBlock], Places]]) -> list[EncodedVideos]:
    """Return the videos of each split in half precision, with only these rows of the tensors in `Places`.

    Splits are of the same blocks, and have places for the same tensors. Each block is read once for all splits.
    """
    union = Split.joined([split for split, _ in requests])
    sizes = [len(split) for split, _ in requests]
    tensors: list[dict[str, Tensor]] = [{} for _ in requests]
    for name in union.blocks[0].template.tensors():
        if name in requests[0][1]:
            widths = [places[name].shape[1] for _, places in requests]
            number = np.repeat(np.arange(len(union)), np.repeat(widths, sizes))
            rows = _read(union.at(number), name, np.concatenate([places[name].ravel() for _, places in requests]))
            pieces = rows.split([size * width for size, width in zip(sizes, widths, strict=True)])
            parts = [piece.unflatten(0, (-1, width)) for piece, width in zip(pieces, widths, strict=True)]
        else:
            parts = [*_read(union, name).split(sizes)]
        for by_name, part in zip(tensors, parts, strict=True):
            by_name[name] = part
    videos = [union.blocks[0].template.with_tensors(by_name) for by_name in tensors]
    if "frame_mask" not in requests[0][1]:
        return videos
    num_frames = _read(union, "frame_mask").sum(dim=1).split(sizes)
    return [dataclasses.replace(v, num_frames=n) for v, n in zip(videos, num_frames, strict=True)]


def _read(split: Split[EncodedBlock], name: str, places: Int[np.ndarray, " N"] | None = None) -> Tensor:
    """Read a tensor of each video, or one of its rows; tensors of different length are padded with zeros (False)."""
    order = np.argsort(split.number, kind="stable")  # so that each block is read once
    ordered = split.at(order)
    arrays = []
    for number, start, stop in ordered.runs():
        run_places = None if places is None else places[order[start:stop]]
        arrays.append(picked(split.blocks[number].arrays, f"{_TENSOR}{name}", ordered.row[start:stop], run_places))
    if len({array.shape[1:] for array in arrays}) == 1:
        values = np.empty((len(split), *arrays[0].shape[1:]), arrays[0].dtype)
        values[order] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return torch.from_numpy(values)
    longest = max(array.shape[1] for array in arrays)
    padded = torch.cat([with_second_axis(torch.from_numpy(array), longest) for array in arrays])
    return padded[torch.from_numpy(np.argsort(order))]


def branches_of(sketch: Branches) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " V"]]]:
    """Return the rows of all videos by branch, and their number per video; of equal rows at the end, only one."""
    branches = {}
    for branch, rows in sketch.items():
        differs = F.pad((rows[:, 1:] != rows[:, :-1]).any(dim=2), (1, 0), value=True)
        counts = (differs * torch.arange(1, rows.shape[1] + 1)).amax(dim=1)
        is_counted = torch.arange(rows.shape[1]) < counts[:, None]
        branches[branch] = rows[is_counted].numpy(), counts.numpy()
    return branches


def long_tensors(videos: EncodedVideos) -> list[tuple[str, Tensor]]:
    """Return the names and tensors that have a second axis."""
    return [(name, tensor) for name, tensor in videos.tensors().items() if tensor.ndim > 1]


def joined(parts: Sequence[PartialBlock[EncodedBlock]]) -> EncodedBlock:
    """Copy the videos that are present into one block."""
    videos = [part.block.stored(np.flatnonzero(part.present)) for part in parts]
    return EncodedBlock.of(
        ids=[part.block.ids[row] for part in parts for row in np.flatnonzero(part.present)],
        durations_s=np.concatenate([part.block.durations_s[part.present] for part in parts]),
        videos=videos[0].cat(videos),
        lengths=np.concatenate([part.block.lengths[part.present] for part in parts]),
    )
