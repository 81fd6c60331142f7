"""Candidates with those rows alone that may be the best ones: of most videos a score reads hardly more than one row.

It holds for scores that read nothing else of a branch (`RetrievalModel.rows_of_branches`). Which rows these are is
known from rows of 8 bits, as surely as which videos are (`codes.MARGIN`): what is left out would change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from untrimmed.batches import EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.search.cache.blocks import Split
from untrimmed.search.corpora.encoded_block import EncodedBlock, Places, long_tensors
from untrimmed.search.pruning.coded_videos import CodedBlocks
from untrimmed.search.pruning.codes import Probe


class BestRows:
    """How videos of a model are read by their best rows."""

    def __init__(self, model: RetrievalModel, template: EncodedVideos):
        """`template`: an encoding of a video by the model."""
        sketch, tensors = model.sketch(template), dict(long_tensors(template))
        self._tensors = {
            # A sketch may begin with a row that no tensor has: see `scores.max_sim.units`.
            branch: (names, sketch[branch].shape[1] - tensors[names[0]].shape[1])
            for branch, names in model.rows_of_branches.items()
        }
        self._lengths = {branch: [*tensors].index(names[0]) for branch, (names, _) in self._tensors.items()}

    @property
    def are_few(self) -> bool:
        """Whether the score reads no others."""
        return bool(self._tensors)

    def places(
        self, coded: Mapping[str, CodedBlocks], probes: Sequence[tuple[str, Probe]], split: Split[EncodedBlock]
    ) -> Places:
        """What `with_rows` reads of videos that have codes, for a query with these probes.

        Where fewer rows of a video are open than of another, one stands for others. Of a branch that the query does not
        look for none is open: the first row stands, and counts for nothing.
        """
        lengths, opened = np.concatenate([block.lengths[rows] for block, rows in split]), {}
        for branch, (_, before) in self._tensors.items():
            is_open = coded[branch].open_rows([probe for name, probe in probes if name == branch], split)
            # Without the copy of its first row that stands for the padding of a video.
            length = lengths[:, self._lengths[branch]] + before
            opened[branch] = is_open & (np.arange(is_open.shape[1]) < length[:, None])
        width = max(1, *(int(is_open.sum(axis=1).max()) for is_open in opened.values()))
        places: dict[str, Int[np.ndarray, "K W"]] = {}
        for branch, (names, before) in self._tensors.items():
            first = np.argsort(~opened[branch], axis=1, kind="stable")[:, :width]
            is_open = np.take_along_axis(opened[branch], first, axis=1)
            rows = np.maximum(np.where(is_open, first, first[:, :1]) - before, 0)
            missing = width - rows.shape[1]
            places |= dict.fromkeys(names, np.pad(rows, ((0, 0), (0, missing)), mode="edge") if missing else rows)
        return places
