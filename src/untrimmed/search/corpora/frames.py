"""Training-free search by frames: the score of a video is the score of its best frame, and its moments are scenes.

Scenes begin and end where the content changes (`untrimmed.moments.scenes`). docs/quality.md compares alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Int

from untrimmed.moments.clearest import SpanSettings
from untrimmed.moments.peaks import spacing_s
from untrimmed.moments.scenes import scene_tree
from untrimmed.search.corpora.best_vector import TIMES, VECTORS, BestVectorCorpus, VectorVideo
from untrimmed.types import FrameFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

NAME = "frames"


@dataclass(frozen=True, kw_only=True)
class FrameSettings(SpanSettings):
    """Settings that were chosen on one half of the real clips. docs/quality.md has the results on the other half."""

    change_s: float = 0.5  # smallest Ward cost of a change: squared distance of unit vectors x seconds


class FrameModel:
    """Searches the stored frames directly, so the table needs no other encoding of a video."""

    identity: ClassVar[str] = NAME
    folder: ClassVar[None] = None

    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return no bytes, because the frames are already stored."""
        return b""

    def corpus(self) -> FrameCorpus:
        """Return a corpus without videos."""
        return FrameCorpus()


class FrameCorpus(BestVectorCorpus):
    """The frames of all videos."""

    def __init__(self, settings: FrameSettings | None = None):
        self.settings = settings or FrameSettings()
        super().__init__(self.settings)

    @property
    def block_format(self) -> str:
        """The name of the format.

        It contains a version number, which must be increased whenever the format of the arrays changes.
        """
        return f"{NAME} 1"

    def vector_video(self, stored: StoredVideo) -> VectorVideo:
        """Return the frames of a stored video."""
        features = stored.features
        vectors = np.asarray(features.vectors, dtype=np.float16)
        arrays = {VECTORS: vectors, TIMES: features.times_s}
        return VectorVideo(stored.record.video_id, features.duration_s, vectors.shape[1], arrays)

    def spans(self, video: VectorVideo) -> Int[np.ndarray, "N 2"]:
        """Return the scenes of a video."""
        return scene_tree(video.vectors[:, : video.dim], self.settings.change_s / spacing_s(video.times_s))
