"""What a search model, a corpus of videos and a prepared query are, whichever way videos are ranked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from typing import Any

    from untrimmed.search.corpora.local import LocalCorpus


class Doubt(NamedTuple):
    """A predicted standard deviation, and the value that nine in ten validation captions do not exceed."""

    deviation: float
    usual: float


class PreparedQuery(ABC):
    """A query and one version of a corpus: later changes of the library do not affect it."""

    @abstractmethod
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """Return the best videos, best first, and all that tie with the last of them; the caller breaks ties.

        Args:
            among: Ids of the videos to rank; unknown ids are ignored. None: all videos.
        """

    @abstractmethod
    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Return spans of one video in seconds, best first, at least one."""

    @abstractmethod
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the relevance at each."""

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Return the weight of each of the first N words of the encoder; None if the model weighs no words."""
        return None

    def doubt(self) -> Doubt | None:
        """Return how unsure the model is of the sentence; None if it does not predict that."""
        return None

    @property
    def missing(self) -> str:
        """What the answers so far lack, as a sentence; empty if they are complete."""
        return ""


class Corpus(ABC):
    """Videos that one model ranks. A corpus never changes, so any number of threads may use it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def prepare(self, query: TextFeatures) -> PreparedQuery:
        """Return the query as this model reads it."""

    def rank_all(
        self,
        queries: Sequence[TextFeatures],
        *,
        limit: int,
        among: Collection[str] | None = None,
    ) -> tuple[list[list[RankedVideo]], str]:
        """Rank videos for each query as `PreparedQuery.rank` does; also return what the answers lack."""
        prepared = [self.prepare(query) for query in queries]
        ranked = [query.rank(limit=limit, among=among) for query in prepared]
        return ranked, next((query.missing for query in prepared if query.missing), "")


@runtime_checkable
class SearchModel(Protocol):
    """A way of searching, trained or training-free: encodes stored frames once and makes a corpus of the results."""

    @property
    def identity(self) -> str:
        """Names the exact model: its encodings are not comparable with those of another."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder of its weights; None for a training-free model."""
        ...

    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return what the table stores of a video for this model."""
        ...

    def corpus(self) -> LocalCorpus[Any]:
        """Return a corpus without videos; `LocalCorpus.update` adds them."""
        ...
