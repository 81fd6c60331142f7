"""TF-PRVR over a library: moments that need no training take the place of frames (`untrimmed.moments.tf_prvr`).

The moments of a video are made from its stored frames once, when it is indexed or the library changes to this model,
and stored beside the frames: a fraction of their size. A search compares moments, not frames. Every frame counts the
same, also where key frames alone were sampled, at unequal steps.

A video scores by its best moment, as released. Spans are moments, segments of every level and the whole, ranked by how
far they stand out (`untrimmed.moments.clearest`), which the release leaves open; docs/quality.md has other choices.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Int

from untrimmed.errors import IndexMismatchError
from untrimmed.moments.clearest import SpanSettings
from untrimmed.moments.tf_prvr import NAME, TFPRVRSettings, VideoMoments, video_moments
from untrimmed.search.corpora.rows import EDGES, TIMES, VECTORS, RowCorpus, RowQuery, RowVideo
from untrimmed.types import FrameFeatures, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_SPANS = "spans"


class TFPRVRModel:
    """What makes a library's moments; it has no weights, and so no folder."""

    identity: ClassVar[str] = NAME
    folder: ClassVar[None] = None

    def __init__(self, settings: TFPRVRSettings | None = None, spans: SpanSettings | None = None):
        self.settings, self.spans = settings or TFPRVRSettings(), spans or SpanSettings()

    def encode_video(self, features: FrameFeatures) -> bytes:
        """What the index keeps of a video: its moments as an npz, vectors in half precision.

        Raises: FeatureError for a frame that is not finite or has no direction.
        """
        moments = video_moments(features.vectors, self.settings)
        file = io.BytesIO()
        np.savez(
            file,
            vectors=moments.vectors.astype(np.float16),
            edges=moments.edges,
            levels=np.concatenate(moments.levels),
            level_sizes=[len(edges) for edges in moments.levels],
        )
        return file.getvalue()

    def restore(self, encoded: bytes) -> VideoMoments:
        """What `encode_video` gave.

        Raises: IndexMismatchError where it is something else.
        """
        try:
            with np.load(io.BytesIO(encoded), allow_pickle=False) as kept:
                levels = np.split(kept["levels"], np.cumsum(kept["level_sizes"])[:-1])
                return VideoMoments(kept["vectors"], kept["edges"], tuple(levels))
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise IndexMismatchError(
                f"what the library keeps of a video is not what {NAME} gives ({type(error).__name__}); make it again "
                f"with: untrimmed index --model frames, then --model {NAME}"
            ) from error

    def corpus(self) -> TFPRVRCorpus:
        """Return a corpus without videos."""
        return TFPRVRCorpus(self)


class TFPRVRCorpus(RowCorpus):
    """The moments of all videos."""

    def __init__(self, model: TFPRVRModel | None = None):
        self.model = model or TFPRVRModel()
        super().__init__(self.model.spans)

    @property
    def layout(self) -> str:
        """See `LocalCorpus`; the number changes with the form of the arrays."""
        return f"{NAME} 2 {self.model.settings!r}"

    def prepare(self, query: TextFeatures) -> RowQuery:
        """Return the query as the vector of its sentence at unit length, which the score is made of."""
        length = float(np.linalg.norm(query.sentence))
        sentence = query.sentence / length if length > 0 else query.sentence
        return RowQuery(self, sentence.astype(np.float32))

    def row_video(self, stored: StoredVideo) -> RowVideo:
        """Return the moments of a video; if another model encoded it, they are made from its frames.

        Raises:
            FeatureError: A frame of such a video has no direction.
            IndexMismatchError: The table has something else for this model.
        """
        features, record = stored.features, stored.record
        is_own = record.model == self.model.identity
        moments = self.model.restore(stored.encoded if is_own else self.model.encode_video(features))
        arrays = {
            VECTORS: moments.vectors.astype(np.float16),
            EDGES: moments.edges,
            _SPANS: moments.candidates,
            TIMES: features.times_s,
        }
        return RowVideo(record.video_id, features.duration_s, moments.vectors.shape[1], arrays)

    def spans(self, video: RowVideo) -> Int[np.ndarray, "N 2"]:
        """Return the moments, the segments of every level, and the whole."""
        return video.arrays[_SPANS]
