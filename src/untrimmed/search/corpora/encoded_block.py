"""Blocks of encoded videos. They are stored in half precision and scored in single precision."""

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
from untrimmed.search.cache.blocks import Block, PartialBlock, Selection
from untrimmed.search.cache.mapped import MappedArrays, scattered_rows

_TENSOR = "videos."  # prefix of the names of tensors

# name of a tensor -> indices of the units (frames or clips) to read from each video
Units = Mapping[str, Int[np.ndarray, "_ _"]]


class EncodedBlock(Block):
    """Encoded videos, in memory or in a file. Tensors are read with second axes padded to `padded_lengths`."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray], template: EncodedVideos, padded_lengths: Sequence[int] | None = None
    ):
        """Create a block from arrays made by `of` or read from the cache. By default, tensors get no padding."""
        super().__init__(arrays)
        self.template = template
        self.durations_s: Float[np.ndarray, " V"] = arrays["durations_s"]
        self.lengths: Int[np.ndarray, "V N"] = arrays["lengths"]  # length of each video in each of `sequence_tensors`
        self.padded_lengths = padded_lengths

    @classmethod
    def of(
        cls,
        ids: Sequence[str],
        durations_s: Float[np.ndarray, " V"],
        videos: EncodedVideos,
        lengths: Int[np.ndarray, "V N"],
    ) -> EncodedBlock:
        """Return a block of encoded videos with their ids, durations and lengths."""
        tensors = {f"{_TENSOR}{name}": tensor.numpy() for name, tensor in videos.tensors().items()}
        return cls({"ids": np.array(ids), "durations_s": durations_s, "lengths": lengths, **tensors}, videos)

    @cached_property
    def videos(self) -> EncodedVideos:
        """All videos in single precision, padded."""
        return self.select(np.arange(len(self.ids)))

    def free_videos(self) -> None:
        """Free the memory of the property `videos`."""
        self.__dict__.pop("videos", None)

    def video(self, row: int) -> EncodedVideos:
        """Return a copy of one video. With a view, results could depend on its position in memory."""
        return self.select(np.array([row]))

    def select(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Return padded videos in single precision."""
        return self.padded(rows).to("cpu", torch.float32)

    def padded(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Return padded videos in half precision."""
        videos = self.unpadded(rows)
        if self.padded_lengths is None:
            return videos
        tensors = zip(sequence_tensors(videos), self.padded_lengths, strict=True)
        padded = {name: with_second_axis(tensor, length) for (name, tensor), length in tensors}
        return videos.with_tensors(videos.tensors() | padded)

    def prefetch(self, rows: Int[np.ndarray, " K"]) -> None:
        """Read videos in parallel before they are used, see `MappedArrays.prefetch`."""
        if not isinstance(self.arrays, MappedArrays):
            return
        for name in self.template.tensors():
            self.arrays.prefetch(f"{_TENSOR}{name}", rows)

    def unpadded(self, rows: Int[np.ndarray, " K"]) -> EncodedVideos:
        """Return videos in half precision without padding."""
        names = self.template.tensors()
        arrays = {name: scattered_rows(self.arrays, f"{_TENSOR}{name}", rows) for name in names}
        return self.template.with_tensors({name: torch.from_numpy(array) for name, array in arrays.items()})

    def padded_to(self, lengths: Int[np.ndarray, " N"]) -> EncodedBlock:
        """Return the same block with these `padded_lengths`."""
        same = self.padded_lengths == lengths.tolist()
        return self if same else EncodedBlock(self.arrays, self.template, lengths.tolist())


def read_units(requests: Sequence[tuple[Selection[EncodedBlock], Units]]) -> list[EncodedVideos]:
    """Return the videos of each selection in half precision.

    Of a tensor in `Units`, only the listed units are read. All selections must have the same blocks, and all `Units`
    the same tensors, so that each block is read only once.
    """
    union = Selection.joined([selection for selection, _ in requests])
    sizes = [len(selection) for selection, _ in requests]
    tensors: list[dict[str, Tensor]] = [{} for _ in requests]
    for name in union.blocks[0].template.tensors():
        if name in requests[0][1]:
            widths = [units[name].shape[1] for _, units in requests]
            video_index = np.repeat(np.arange(len(union)), np.repeat(widths, sizes))
            unit_index = np.concatenate([units[name].ravel() for _, units in requests])
            vectors = _read(union.at(video_index), name, unit_index)
            pieces = vectors.split([size * width for size, width in zip(sizes, widths, strict=True)])
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


def _read(selection: Selection[EncodedBlock], name: str, unit_index: Int[np.ndarray, " N"] | None = None) -> Tensor:
    """Return the tensor `name` of each video, or only the unit `unit_index` of each tensor.

    Shorter tensors are padded with zeros, masks with False.
    """
    order = np.argsort(selection.block_index, kind="stable")  # read each block once
    ordered = selection.at(order)
    arrays = []
    for number, start, stop in ordered.runs():
        stored = selection.blocks[number].arrays
        columns = None if unit_index is None else unit_index[order[start:stop]]
        arrays.append(scattered_rows(stored, f"{_TENSOR}{name}", ordered.row_index[start:stop], columns))
    if len({array.shape[1:] for array in arrays}) == 1:
        values = np.empty((len(selection), *arrays[0].shape[1:]), arrays[0].dtype)
        values[order] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return torch.from_numpy(values)
    longest = max(array.shape[1] for array in arrays)
    padded = torch.cat([with_second_axis(torch.from_numpy(array), longest) for array in arrays])
    return padded[torch.from_numpy(np.argsort(order))]


def rows_by_branch(sketch: Branches) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " V"]]]:
    """Return, for each branch, the rows of all videos, and the number of rows of each video.

    Rows at the end of a video that repeat the previous row are left out.
    """
    branches = {}
    for branch, rows in sketch.items():
        differs = F.pad((rows[:, 1:] != rows[:, :-1]).any(dim=2), (1, 0), value=True)
        counts = (differs * torch.arange(1, rows.shape[1] + 1)).amax(dim=1)
        is_counted = torch.arange(rows.shape[1]) < counts[:, None]
        branches[branch] = rows[is_counted].numpy(), counts.numpy()
    return branches


def sequence_tensors(videos: EncodedVideos) -> list[tuple[str, Tensor]]:
    """Return the tensors with a second axis, such as frames or clips, and their names."""
    return [(name, tensor) for name, tensor in videos.tensors().items() if tensor.ndim > 1]


def join_blocks(parts: Sequence[PartialBlock[EncodedBlock]]) -> EncodedBlock:
    """Return a new block with copies of the present videos."""
    videos = [part.block.unpadded(np.flatnonzero(part.present)) for part in parts]
    return EncodedBlock.of(
        ids=[part.block.ids[row] for part in parts for row in np.flatnonzero(part.present)],
        durations_s=np.concatenate([part.block.durations_s[part.present] for part in parts]),
        videos=videos[0].cat(videos),
        lengths=np.concatenate([part.block.lengths[part.present] for part in parts]),
    )
