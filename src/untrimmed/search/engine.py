"""A library's videos in memory, kept up to date with its commits; it knows no method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.errors import IndexMismatchError, UntrimmedError
from untrimmed.search.index import StoredVideo, VideoIndex, VideoRecord
from untrimmed.search.windows import GaussianWindows, RankedVideo, WindowCorpus
from untrimmed.types import Moment, TextFeatures


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
            features = {video.record.video_id: video.features for video in self._read()}
            self._windows = GaussianWindows().corpus([features[record.video_id] for record in self.records])
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
            self._corpus = self._trained(*self._model)
        return self._corpus

    def _trained(self, identity: str, folder: str | None) -> Corpus:
        from untrimmed.search.trained import TrainedModel

        assert folder is not None, "a trained model lies in a folder"
        model = TrainedModel(folder)
        if model.identity != identity:
            raise IndexMismatchError(
                f"{self._folder}: in use is model {identity}, found {model.identity}; restore it, or encode "
                f"the library again with: untrimmed index --model {folder}"
            )
        # A change of model that is under way, or was interrupted, leaves some videos encoded by the other model.
        encoded = {
            video.record.video_id: video.encoded
            if video.record.model == identity
            else model.encode_video(video.features)
            for video in self._read()
        }
        blobs = [encoded[record.video_id] for record in self.records]
        return model.corpus(blobs, [record.duration_s for record in self.records])

    def _read(self) -> Iterator[StoredVideo]:
        assert self._index is not None, "refresh comes first"
        return self._index.read([record.video_id for record in self.records])
