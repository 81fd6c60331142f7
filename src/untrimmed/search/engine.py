"""A library's videos in memory, kept up to date with its commits, and the hits among them; it knows no method."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.errors import CheckpointError, ConfigError, IndexMismatchError, UnknownNameError, UntrimmedError, shown
from untrimmed.search.index import StoredVideo, VideoIndex
from untrimmed.search.records import VideoRecord
from untrimmed.search.video_names import absolute, is_below
from untrimmed.search.windows import RankedVideo, WindowCorpus
from untrimmed.types import Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.trained import TrainedModel


@runtime_checkable
class Corpus(Protocol):
    """Videos laid out for search by some model; a row is a video's position among the engine's records."""

    def rank(
        self, query: TextFeatures, *, limit: int, allowed: Bool[np.ndarray, " V"] | None = None
    ) -> list[RankedVideo]:
        """The best videos, best first; ties are decided by the row."""
        ...

    def moments(self, query: TextFeatures, row: int, *, limit: int) -> list[Moment]:
        """Spans of one video in seconds, best first."""
        ...

    def relevance(self, query: TextFeatures, row: int) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times of one video in seconds, and how well each fits."""
        ...


@dataclass(frozen=True)
class Hit:
    """A video that fits, and where in it: `start_s` to `end_s` is the first of `moments`."""

    video: Path
    video_id: str
    start_s: float
    end_s: float
    score: float  # of the video: the relevance of its best window; comparable within one library and encoder
    duration_s: float
    moments: tuple[Moment, ...]  # best first, at least one


class Hits(list[Hit]):
    """Hits, best first, and what to know of the sentence they answer: words that the encoder does not know or read."""

    def __init__(self, hits: Iterable[Hit] = (), warnings: Sequence[str] = ()):
        super().__init__(hits)
        self.warnings = tuple(warnings)


class Engine:
    """Loads what a search needs when it is first needed, and again when the library has changed."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._index: VideoIndex | None = None  # at the version of `records`
        self._version = -1
        self._model: tuple[str, str | None] | None = None
        self.records: list[VideoRecord] = []
        self._windows: WindowCorpus | None = None
        self._corpus: Corpus | None = None

    def refresh(self) -> None:
        """Look for commits since the last look, by whichever process.

        Raises:
            UntrimmedError: There is no library, or nothing was indexed yet.
        """
        index = VideoIndex(self._folder, follow=False)
        version, settings = index.version(), index.settings
        model = (settings.model, settings.model_folder) if settings else None
        if (version, model) == (self._version, self._model):
            return
        records = index.scan()
        if not records:
            raise UntrimmedError(f"{self._folder}: nothing is indexed here yet; run: untrimmed index FOLDER")
        self.records, self._windows, self._corpus = records, None, None
        self._index, self._version, self._model = index, version, model

    def windows(self) -> WindowCorpus:
        """The training-free model over all frames: for pictures, and for sentences where no model is in use."""
        if self._windows is None:
            try:
                features = {video.record.video_id: video.features for video in self._read()}
            except UntrimmedError:
                if self._has_moved():
                    return self.windows()
                raise
            self._windows = WindowCorpus([features[record.video_id] for record in self.records])
        return self._windows

    def corpus(self) -> Corpus:
        """The library's own model.

        Raises:
            CheckpointError: Its folder is gone or damaged.
            IndexMismatchError: The model there is not the library's.
        """
        if self._model is None or self._model[1] is None:
            return self.windows()
        if self._corpus is None:
            try:
                self._corpus = self._trained(*self._model)
            except UntrimmedError:
                if self._has_moved():
                    return self.corpus()
                raise
        return self._corpus

    def _has_moved(self) -> bool:
        """Whether there were commits since: then the version that was met may be cleared away, and is so no more."""
        version = self._version
        self.refresh()
        return self._version != version

    def _trained(self, identity: str, folder: str | None) -> Corpus:
        model = model_in_use(self._folder, identity, folder)
        assert model is not None, "a trained model lies in a folder"
        # A change of model that is under way, or was interrupted, leaves some videos encoded by the other model.
        encoded = {
            video.record.video_id: video.encoded
            if video.record.model == identity
            else model.encode_video(video.features)
            for video in self._read()
        }
        blobs = [encoded[record.video_id] for record in self.records]
        return model.corpus(blobs, [record.duration_s for record in self.records])

    def hits(
        self,
        corpus: Callable[[], Corpus],
        query: TextFeatures,
        limit: int,
        moments: int,
        min_score: float | None,
        within: str | os.PathLike[str] | None,
    ) -> list[Hit]:
        """The best videos of the corpus with their best moments, among those below the folder, or of that file.

        A sentence of which no word is understood has none; for it, `corpus` is not called and no video is loaded.

        Raises:
            ConfigError: An option makes no sense.
            UnknownNameError: No video lies in `within`.
        """
        if limit < 1 or moments < 1:
            raise ConfigError(f"limit is {limit} and moments {moments}; both must be at least 1")
        if min_score is not None and not math.isfinite(min_score):
            raise ConfigError(f"min_score is {min_score}, must be a finite number")
        allowed = None
        if within is not None:
            folder = absolute(within)
            allowed = np.array([is_below(record, folder) for record in self.records])
            if not allowed.any():
                raise UnknownNameError(f"{shown(folder)}: no video of {self._folder} lies there; see: untrimmed ls")
        if not query.reading.is_understood:
            return []
        records, videos = self.records, corpus()
        if self.records is not records:  # they were cleared away while the sentence was read
            return self.hits(corpus, query, limit, moments, min_score, within)
        ranked = videos.rank(query, limit=limit, allowed=allowed)
        kept = [video for video in ranked if min_score is None or video.score >= min_score]
        return [self._hit(video, videos.moments(query, video.row, limit=moments)) for video in kept]

    def _hit(self, ranked: RankedVideo, moments: list[Moment]) -> Hit:
        record, best = self.records[ranked.row], moments[0]
        path, span_s = Path(record.path), (best.start_s, best.end_s)
        return Hit(path, record.video_id, *span_s, ranked.score, record.duration_s, tuple(moments))

    def _read(self) -> Iterator[StoredVideo]:
        assert self._index is not None, "refresh comes first"
        return self._index.read([record.video_id for record in self.records])


def model_in_use(library: Path, identity: str, folder: str | None) -> TrainedModel | None:
    """The trained model of a library, by which its videos are encoded; None where it has none.

    Raises:
        CheckpointError: Its folder is gone or damaged.
        IndexMismatchError: The model there is another one.
    """
    if folder is None:
        return None
    from untrimmed.search.trained import TrainedModel

    try:
        model = TrainedModel(folder)
    except CheckpointError as error:
        raise CheckpointError(
            f"{shown(library)}: in use is model {identity}, and {str(error).partition('; ')[0]}; if it has moved: "
            "untrimmed index --model FOLDER, to search without it: untrimmed index --model none"
        ) from error
    if model.identity != identity:
        raise IndexMismatchError(
            f"{library}: in use is model {identity}, found {model.identity} in {model.folder}; restore it, or encode "
            f"the library again with: untrimmed index --model {model.folder}"
        )
    return model
