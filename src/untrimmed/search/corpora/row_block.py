"""Videos as rows of float16 vectors, one video after the other: frames, or moments of TF-PRVR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float16, Float64, Int

from untrimmed.search.cache.blocks import Block, Part
from untrimmed.search.cache.mapped import rows_of
from untrimmed.search.pruning.products import padded_width, products

VECTORS, TIMES, EDGES = "vectors", "times_s", "edges"
_ENDS = " ends"  # after the name of an array: where the entries of each video end


@dataclass(frozen=True)
class RowVideo:
    """One video: `arrays` has its vectors, the times of its frames, and what else its model needs of it."""

    video_id: str
    duration_s: float
    dim: int  # of its vectors: the rows of a block may be wider
    arrays: Mapping[str, np.ndarray]

    @property
    def vectors(self) -> Float[np.ndarray, "M E"]:
        """In order of time."""
        return self.arrays[VECTORS]

    @property
    def times_s(self) -> Float[np.ndarray, " T"]:
        """Of its frames."""
        return self.arrays[TIMES]

    @property
    def frames_per_row(self) -> Int[np.ndarray, " M"]:
        """Number of frames that each vector stands for: one each, unless there are edges between vectors."""
        edges = self.arrays.get(EDGES)
        return np.ones(len(self.vectors), dtype=np.int64) if edges is None else np.diff(edges)

    @property
    def total(self) -> Float64[np.ndarray, " D"]:
        """Sum of the vectors of all frames.

        Float16 values are multiples of one step, so their sums and differences in float64 are exact in any order.
        """
        vectors = self.vectors[:, : self.dim].astype(np.float64)
        return self.frames_per_row.astype(np.float64) @ vectors


class RowBlock(Block):
    """Videos side by side; an array `NAME ends` says where the entries of each video in NAME end."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        """`arrays` as `of` makes them."""
        super().__init__(arrays)
        names = [name.removesuffix(_ENDS) for name in arrays if name.endswith(_ENDS)]
        self._bounds = {name: np.concatenate([[0], arrays[name + _ENDS]]) for name in names}
        self.spans: dict[int, Int[np.ndarray, "N 2"]] = {}  # candidate spans of videos by row, found when needed

    @classmethod
    def of(cls, videos: Sequence[RowVideo]) -> RowBlock:
        """Copy videos into a new block."""
        dim = videos[0].dim
        entries = {name: [video.arrays[name] for video in videos] for name in videos[0].arrays}
        width = padded_width(dim)
        entries[VECTORS] = [np.pad(rows[:, :dim], [(0, 0), (0, width - dim)]) for rows in entries[VECTORS]]
        return cls(
            {
                "ids": np.array([video.video_id for video in videos]),
                "durations_s": np.array([video.duration_s for video in videos]),
                "total": np.sum([video.total for video in videos], axis=0),
                **{name + _ENDS: np.cumsum([len(rows) for rows in each]) for name, each in entries.items()},
                **{name: np.concatenate(each) for name, each in entries.items()},
            }
        )

    @classmethod
    def joined(cls, parts: Sequence[Part[RowBlock]]) -> RowBlock:
        """Copy the videos that are present into a new block."""
        return cls.of([part.block.video(row) for part in parts for row in np.flatnonzero(part.present).tolist()])

    @property
    def dim(self) -> int:
        """Width of the encoder's vectors: rows may be wider."""
        return len(self.arrays["total"])

    @cached_property
    def sizes(self) -> Int[np.ndarray, " V"]:
        """Number of vectors of each video."""
        return np.diff(self._bounds[VECTORS])

    def video(self, row: int) -> RowVideo:
        """One of the videos; its arrays are views of the block's."""
        arrays = {
            name: rows_of(self.arrays, name, int(ends[row]), int(ends[row + 1])) for name, ends in self._bounds.items()
        }
        return RowVideo(self.ids[row], float(self.arrays["durations_s"][row]), self.dim, arrays)

    def total(self, present: Int[np.ndarray, " K"]) -> tuple[Float64[np.ndarray, " D"], int]:
        """Sum of the vectors of all frames of some videos, by row, and the number of frames; reads as few as it can."""
        absent = np.setdiff1d(np.arange(len(self.ids)), present)
        num_frames = int(np.diff(self._bounds[TIMES])[present].sum())
        few, sign, start = (absent, -1, self.arrays["total"]) if len(absent) < len(present) else (present, 1, 0.0)
        return start + sign * sum((self.video(row).total for row in few.tolist()), np.zeros(self.dim)), num_frames

    def rough_scores(self, query: Float16[np.ndarray, "1 E"]) -> Float64[np.ndarray, " V"]:
        """Each video by its best vector, from float16 products."""
        return np.maximum.reduceat(products(self.arrays[VECTORS], query)[:, 0], self._bounds[VECTORS][:-1])
