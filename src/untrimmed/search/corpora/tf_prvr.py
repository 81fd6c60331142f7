"""Search with TF-PRVR (`untrimmed.moments.tf_prvr`), which compares training-free moments instead of frames.

The moments of a video are computed from its stored frames when the video is indexed, or when the library changes to
this model. They are stored in addition to the frames, and need much less space. All frames have the same weight, even
key frames at unequal distances.

As in the released code, the score of a video is the score of its best moment. The released code does not rank spans;
here, `untrimmed.moments.clearest` ranks the moments, the segments of all levels and the whole video. docs/quality.md
compares alternatives.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Int

from untrimmed.errors import IndexMismatchError
from untrimmed.moments.clearest import SpanSettings
from untrimmed.moments.tf_prvr import NAME, TFPRVRSettings, VideoMoments, video_moments
from untrimmed.search.corpora.best_vector import EDGES, TIMES, VECTORS, BestVectorCorpus, BestVectorQuery, VectorVideo
from untrimmed.types import FrameFeatures, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_SPANS = "spans"


class TFPRVRModel:
    """The training-free model `tf_prvr`. It computes moments and has no weights."""

    identity: ClassVar[str] = NAME
    folder: ClassVar[None] = None

    def __init__(self, settings: TFPRVRSettings | None = None, spans: SpanSettings | None = None):
        self.settings = settings or TFPRVRSettings()
        self.spans = spans or SpanSettings()

    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return a video's moments as an npz file with vectors in half precision.

        Raises:
            FeatureError: A frame is zero or not finite.
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
        """Return the moments in the result of `encode_video`. Raises IndexMismatchError for other bytes."""
        try:
            with np.load(io.BytesIO(encoded), allow_pickle=False) as arrays:
                levels = np.split(arrays["levels"], np.cumsum(arrays["level_sizes"])[:-1])
                return VideoMoments(arrays["vectors"], arrays["edges"], tuple(levels))
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise IndexMismatchError(
                f"a stored video is not encoded by {NAME} ({type(error).__name__}); encode the library again with: "
                f"untrimmed index --model frames, then --model {NAME}"
            ) from error

    def corpus(self) -> TFPRVRCorpus:
        """Return a corpus without videos."""
        return TFPRVRCorpus(self)


class TFPRVRCorpus(BestVectorCorpus):
    """The moments of all videos."""

    def __init__(self, model: TFPRVRModel | None = None):
        self.model = model or TFPRVRModel()
        super().__init__(self.model.spans)

    @property
    def block_format(self) -> str:
        """The name of the format.

        It contains a version number, which must be increased whenever the format of the arrays changes.
        """
        return f"{NAME} 2 {self.model.settings!r}"

    def prepare(self, query: TextFeatures) -> BestVectorQuery:
        """Return a query with the vector of the sentence, scaled to unit length as the score requires."""
        length = float(np.linalg.norm(query.sentence))
        sentence = query.sentence / length if length > 0 else query.sentence
        return BestVectorQuery(self, sentence.astype(np.float32))

    def vector_video(self, stored: StoredVideo) -> VectorVideo:
        """Return the moments of a video. If another model encoded the video, they are computed from its frames.

        Raises the errors of `TFPRVRModel.restore` and `TFPRVRModel.encode_video`.
        """
        features = stored.features
        record = stored.record
        is_encoded = record.model == self.model.identity
        moments = self.model.restore(stored.encoded if is_encoded else self.model.encode_video(features))
        arrays = {
            VECTORS: moments.vectors.astype(np.float16),
            EDGES: moments.edges,
            _SPANS: moments.candidates,
            TIMES: features.times_s,
        }
        return VectorVideo(record.video_id, features.duration_s, moments.vectors.shape[1], arrays)

    def spans(self, video: VectorVideo) -> Int[np.ndarray, "N 2"]:
        """Return the moments, the segments of all levels, and the whole video."""
        return video.arrays[_SPANS]
