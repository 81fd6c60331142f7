"""What is searched, however it is searched: videos that follow the library's commits, and a query that was prepared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64

from untrimmed.search.pruning.kept_codes import KeptCodes
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo


@dataclass(frozen=True)
class RankedVideo:
    """A video and its score."""

    video_id: str
    score: float


class KeptBlock(NamedTuple):
    """What `Keepable.arrays` gave of a block, which of its videos are meant, and where its codes are."""

    arrays: Mapping[str, np.ndarray]
    present: Bool[np.ndarray, " V"]
    codes: KeptCodes


class KeptVideos(Protocol):
    """A block as it is laid out."""

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """All that it consists of."""
        ...


@dataclass(frozen=True)
class FrameSum:
    """The sum of all frames of a corpus, in steps so coarse that it is exact in any order, and their number."""

    total: Float64[np.ndarray, " D"] | float
    num_frames: int


@runtime_checkable
class PreparedQuery(Protocol):
    """A query before some videos, which stay as they are whatever becomes of the library meanwhile."""

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos, best first, and all that score as the last of them does: whoever asks decides between these.

        Args:
            among: The ids that a filter leaves; those that the corpus does not have are passed over. None: all videos.
        """
        ...

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Spans of one video in seconds, best first, at least one."""
        ...

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times of one video in seconds, and how well each fits."""
        ...


@runtime_checkable
class Explained(Protocol):
    """A prepared query whose model says what it makes of the sentence."""

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """How much each of the first N words of the encoder counts; None where the model weighs none."""
        ...

    def doubt(self) -> Doubt | None:
        """How unsure the model is of the sentence; None where it does not say."""
        ...


class Doubt(NamedTuple):
    """A predicted standard deviation, and what nine in ten captions that the model was validated on do not exceed."""

    deviation: float
    usual: float


@runtime_checkable
class Corpus(Protocol):
    """Videos by their ids, searched by some model; it never changes, so that any thread may ask it."""

    def __len__(self) -> int: ...

    def prepare(self, query: TextFeatures, *, recall: float = 1.0) -> PreparedQuery:
        """The query as this model reads it: once, whatever is asked afterwards.

        Args:
            recall: How many of the best videos have to be found, in the mean of many queries: with 1 all of them, with
                less a search of many videos reads less. Those that are found have their exact scores.
        """
        ...


@runtime_checkable
class RanksMany(Protocol):
    """A corpus in which many queries cost less each than one alone."""

    def rank_all(
        self,
        queries: Sequence[TextFeatures],
        *,
        limit: int,
        recall: float = 1.0,
        among: Collection[str] | None = None,
    ) -> list[list[RankedVideo]]:
        """What `PreparedQuery.rank` gives for each of them, prepared with this `recall`."""
        ...


@runtime_checkable
class LocalCorpus(Corpus, Protocol):
    """Videos laid out in the memory of this process."""

    def update(self, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> LocalCorpus:
        """The corpus with some videos more, which take the places of those with their ids, and without others.

        It answers as one that is laid out anew would, and shares with this one what has not changed.
        """
        ...


@runtime_checkable
class Keepable(LocalCorpus, Protocol):
    """A corpus of blocks that can be kept as plain arrays, from which another process has it at once."""

    @property
    def layout(self) -> str:
        """How videos are laid out, with every setting that this depends on; the first word names a folder."""
        ...

    def arrays(self) -> Sequence[Mapping[str, np.ndarray]]:
        """The blocks; `ids` of each are those of its videos."""
        ...

    def lacking_codes(self) -> Iterator[tuple[KeptVideos, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
        """Blocks that have no codes on disk, with arrays of these and of their axes, each made when its turn comes.

        None where so few videos are searched without.
        """
        ...

    def restored(self, kept: Iterable[KeptBlock]) -> Keepable:
        """The corpus of blocks that `arrays` gave, with those of their videos that are meant.

        Raises: DamagedError where they come from files that are not as they were written, now or in later searches.
        """
        ...


@runtime_checkable
class SearchModel(Protocol):
    """What takes the place of windows: trained or not, it encodes stored frames once and makes a corpus of them."""

    @property
    def identity(self) -> str:
        """Names the exact model: what it made of a video is compared with nothing of another."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where its weights lie; None for a model that has none."""
        ...

    def encode_video(self, features: FrameFeatures) -> bytes:
        """What the index keeps of a video for this model."""
        ...

    def corpus(self) -> LocalCorpus:
        """Videos laid out for search; without any, `update` adds them."""
        ...


@runtime_checkable
class Shardable(LocalCorpus, Protocol):
    """A corpus that may be one of several shards of a library, which together answer as the one corpus would."""

    def extent(self) -> Any:
        """What the other shards need to know of this one."""
        ...

    def beside(self, others: Sequence[Any]) -> Corpus:
        """The corpus as one shard, given what the others are like."""
        ...


@runtime_checkable
class Incomplete(Protocol):
    """A prepared query that may have been answered without some of the videos."""

    @property
    def missing(self) -> str:
        """What its answers lack, in a sentence; empty where they are whole."""
        ...
