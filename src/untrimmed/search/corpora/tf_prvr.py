"""TF-PRVR over a library: moments that need no training take the place of windows (`untrimmed.moments.tf_prvr`).

The moments of a video are made from its stored frames once, when it is indexed or the library changes to this model,
and kept beside the frames: a fraction of their size. A search meets moments, not frames. Frames count as they were
sampled, at equal steps; key frames alone are not, and what lies between them counts no more than their number.

Which video: its best moment, as released. Which spans: moments, segments of every level and the whole, by how far they
stand out (`untrimmed.moments.clearest`), which the release leaves open; docs/quality.md has what other choices gave.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float, Float16, Float64, Int

from untrimmed.errors import IndexMismatchError
from untrimmed.moments.clearest import SpanSettings, standing_out
from untrimmed.moments.tf_prvr import NAME, TFPRVRSettings, VideoMoments, video_moments
from untrimmed.search.cache.blocks import Blocks, Part
from untrimmed.search.cache.mapped import rows_of
from untrimmed.search.corpora.corpus import FrameSum, RankedVideo
from untrimmed.search.corpora.frame_corpus import FrameCorpus, changed_ids
from untrimmed.search.pruning.coded_videos import Arrays
from untrimmed.search.pruning.products import ROUNDING, exact_products, halves, padded_width, products
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_ROWS_OF_BLOCK = 2**16  # as many as windows have
_RAGGED = ("vectors", "edges", "spans", "times_s")  # what each video has as many of as it needs


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
                f"with: untrimmed index --model windows, then --model {NAME}"
            ) from error

    def corpus(self) -> TFPRVRCorpus:
        """Videos laid out for search; without any, `update` adds them."""
        return TFPRVRCorpus(self)


class TFPRVRCorpus(FrameCorpus["_Block", "_Video"]):
    """The moments of all videos in float16 blocks, searched exactly."""

    def __init__(self, model: TFPRVRModel | None = None):
        self.model = model or TFPRVRModel()
        super().__init__(Blocks(_join, _ROWS_OF_BLOCK), _Block)

    @property
    def layout(self) -> str:
        """See `Keepable`; the number changes with what blocks have in their arrays."""
        return f"{NAME} 1 {self.model.settings!r}"

    def lacking_codes(self) -> Iterator[tuple[_Block, Arrays, Arrays]]:
        """See `Keepable`: moments are few enough to be met without."""
        yield from ()

    def prepare(self, query: TextFeatures, *, recall: float = 1.0) -> TFPRVRQuery:
        """The sentence's vector at unit length, which the score is made of; all of the best are found."""
        return TFPRVRQuery(self, query.sentence)

    def update(self, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> TFPRVRCorpus:
        """`Corpus.update`; moments of videos that another model has encoded are made here, from their frames.

        Raises:
            FeatureError: A frame of such a video has no direction.
            IndexMismatchError: What the library keeps of a video is not what this model gives.
        """
        new = list(self._laid_out(added))
        return self._changed(new, changed_ids(new, removed))

    def _laid_out(self, added: Iterable[StoredVideo]) -> Iterator[_Block]:
        gathered: list[_Video] = []
        num_rows = 0
        for stored in added:
            gathered.append(_Video.of(stored, self.model))
            num_rows += len(gathered[-1].vectors)
            if num_rows >= _ROWS_OF_BLOCK:
                yield _Block.of(gathered)
                gathered, num_rows = [], 0
        if gathered:
            yield _Block.of(gathered)


class TFPRVRQuery:
    """A sentence before the videos of a corpus."""

    def __init__(self, corpus: TFPRVRCorpus, sentence: Float[np.ndarray, " D"]):
        length = float(np.linalg.norm(sentence))
        self._corpus, self._sentence = corpus, (sentence / length if length > 0 else sentence).astype(np.float32)
        self._halves = halves(self._sentence)

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos by their best moment, see `PreparedQuery.rank`; exact as `WindowQuery.rank` is."""
        return self._corpus.blocks.rank(
            lambda split: np.concatenate([block.rough_scores(self._halves[:1])[rows] for block, rows in split]),
            lambda split: np.array(
                [
                    exact_products(block.video(row).vectors, self._halves).max()
                    for block, rows in split
                    for row in rows.tolist()
                ]
            ),
            rounding=ROUNDING,
            limit=limit,
            among=among,
        )

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, the clearest first (`standing_out`), with their mean relevance."""
        video = self._corpus.video(video_id)
        return standing_out(
            self._curve(video),
            video.times_s,
            video.duration_s,
            video.spans,
            others=self._corpus.background(self._sentence),
            settings=self._corpus.model.spans,
            limit=limit,
        )

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times of frames in seconds, and the relevance of the moment in which each lies."""
        video = self._corpus.video(video_id)
        return video.times_s, self._curve(video)

    def _curve(self, video: _Video) -> Float[np.ndarray, " T"]:
        return np.repeat(exact_products(video.vectors, self._halves), np.diff(video.edges))


@dataclass(frozen=True)
class _Video:
    """The moments of a video."""

    video_id: str
    vectors: Float16[np.ndarray, "M E"]  # of a block that holds it: a part of that
    edges: Int[np.ndarray, " N"]
    spans: Int[np.ndarray, "S 2"]  # of moments, of the segments of all levels, and the whole
    times_s: Float[np.ndarray, " T"]
    duration_s: float
    dim: int  # of vectors: rows of a block may be wider

    @classmethod
    def of(cls, stored: StoredVideo, model: TFPRVRModel) -> _Video:
        """A change of model that is under way, or was interrupted, leaves some videos encoded by the other model."""
        features, record = stored.features, stored.record
        own = record.model == model.identity
        moments = model.restore(stored.encoded if own else model.encode_video(features))
        return cls(
            record.video_id,
            moments.vectors.astype(np.float16),
            moments.edges,
            moments.candidates,
            features.times_s,
            features.duration_s,
            moments.vectors.shape[1],
        )

    @property
    def sum(self) -> FrameSum:
        """Of its frames; exact, as that of windows is: float16 times whole numbers, added up in float64."""
        total = np.diff(self.edges).astype(np.float64) @ self.vectors[:, : self.dim].astype(np.float64)
        return FrameSum(total, len(self.times_s))


class _Block:
    """Videos side by side, as arrays in memory or in a file; `ends` of a name say where each video's rows of it end."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        """`arrays` as `of` makes them."""
        self.arrays = arrays
        self.ids: list[str] = arrays["ids"].tolist()
        self._ends = {name: np.concatenate([[0], arrays[f"{name} ends"]]) for name in _RAGGED}
        self.sizes: Int[np.ndarray, " V"] = np.diff(self._ends["vectors"])
        self.sum = FrameSum(arrays["total"], int(self._ends["times_s"][-1]))

    @classmethod
    def of(cls, videos: Sequence[_Video]) -> _Block:
        """Videos with copies of their moments."""
        dim = videos[0].dim
        ragged = {name: [getattr(video, name) for video in videos] for name in _RAGGED}
        width = padded_width(dim)
        ragged["vectors"] = [np.pad(rows[:, :dim], [(0, 0), (0, width - dim)]) for rows in ragged["vectors"]]
        return cls(
            {
                "ids": np.array([video.video_id for video in videos]),
                "durations_s": np.array([video.duration_s for video in videos]),
                "total": np.sum([np.asarray(video.sum.total) for video in videos], axis=0),
                **{f"{name} ends": np.cumsum([len(own) for own in rows]) for name, rows in ragged.items()},
                **{name: np.concatenate(rows) for name, rows in ragged.items()},
            }
        )

    def video(self, row: int) -> _Video:
        """One of them; its vectors are a part of the block's."""
        own = {
            name: rows_of(self.arrays, name, int(ends[row]), int(ends[row + 1])) for name, ends in self._ends.items()
        }
        duration_s, dim = float(self.arrays["durations_s"][row]), len(self.arrays["total"])
        return _Video(self.ids[row], duration_s=duration_s, dim=dim, **own)

    def rough_scores(self, query: Float16[np.ndarray, "1 E"]) -> Float64[np.ndarray, " V"]:
        """Each video by its best moment, from float16 products."""
        return np.maximum.reduceat(products(self.arrays["vectors"], query)[:, 0], self._ends["vectors"][:-1])


def _join(parts: Sequence[Part[_Block]]) -> _Block:
    return _Block.of([part.block.video(row) for part in parts for row in np.flatnonzero(part.present).tolist()])
