"""What every method is: encoders, a score, named losses.

Adding a method: one file in this folder.

    @register("my_method")
    class MyMethod(RetrievalModel):
        @dataclass(frozen=True, kw_only=True)
        class Config(ModelConfig):                  # shared sizes are inherited; add the method's own fields
            temperature: float = 0.1

        def encode_queries(self, queries: QueryBatch) -> EncodedQueries: ...
        def encode_videos(self, videos: VideoBatch) -> EncodedVideos: ...
        def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores: ...
        def losses(self, queries, videos, batch, *, draws, epoch) -> dict[str, Tensor]: ...

The constructor calls `super().__init__(config)` first and `initialise(self)` last. A method that encodes more than the
common fields subclasses `EncodedQueries` or `EncodedVideos` (frozen, keyword-only) beside its class; `to`, `select` and
`cat` handle the new fields. `losses` returns unweighted terms; it gets the encodings and the batch they came from (for
teacher features, words, frames), random numbers only from `draws`, and the epoch. A method whose frames or clips carry
spans offers them through `Score.best`. Presets go to `presets/<method>/<dataset>.yaml`, released names to
`models/released.py`, golden cases to one file in `parity/`. A method that can hand a branch of its score over to an
extension (`models/extension.py`: parts with weights, such as RAL) names it in `places` and leaves out what `provided`
names.

Adding a loss that any method can carry: a frozen dataclass in `models/attachments.py` or beside a method.

    @register_attachment("my_loss")
    @dataclass(frozen=True, kw_only=True)
    class MyLoss(Attachment):
        margin: float = 0.1

        def __call__(self, queries: EncodedQueries, videos: EncodedVideos, video_index) -> Tensor: ...

It is switched on by `losses: {my_loss: {margin: 0.2}}` in a preset or by `losses.my_loss.margin=0.2`, off by
`losses.my_loss=null`, with its weight, and weighed by `weights: {my_loss: 0.1}`. `forward` adds its term to the
method's own. As released, attachments read a second pass of the query tower with its own dropout (`separate_pass:
false`: the first).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch, encode_here
from untrimmed.config import build
from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError
from untrimmed.losses.draws import Draws
from untrimmed.models.released import Names
from untrimmed.moments.gaussian_proposals import Proposals, centered_proposals
from untrimmed.moments.localise import (
    LocateSettings,
    Similarities,
    rank_windows,
    suppress_overlaps,
    window_similarities,
)
from untrimmed.moments.ranked_moments import RankedMoments
from untrimmed.nn.tower import SiblingTower
from untrimmed.scores.max_sim import products
from untrimmed.scores.score import Scores

LossSettings = dict[str, dict[str, Any] | None]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The sizes that all methods share; defaults are the released ones."""

    query_dim: int  # width of a word feature
    video_dim: int  # width of a frame feature
    dim: int = 384
    num_heads: int = 4
    num_clips: int = 32  # segment means per video
    max_frames: int = 128
    max_words: int = 30
    input_dropout: float = 0.1
    dropout: float = 0.1
    init_std: float = 0.02
    losses: LossSettings = field(default_factory=dict)  # attached losses: name -> settings, None = off
    separate_pass: bool = True  # attached losses read a second pass of the query tower

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and math.isnan(value):
                raise ConfigError(f"{name} is nan, wanted a number")
        for name in ("query_dim", "video_dim", "dim", "num_heads", "num_clips", "max_frames", "max_words"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least 1")
        for name in ("input_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted a probability below 1")
        if self.dim % self.num_heads:
            raise ConfigError(f"dim {self.dim} is not divisible by num_heads {self.num_heads}; change one of them")

    @property
    def absent_terms(self) -> frozenset[str]:
        """Loss terms that these settings leave out, so that training drops the weights which presets give them."""
        return frozenset(name for name, values in self.losses.items() if values is None)


class Attachment(ABC):
    """A loss on encodings that any method can carry; its fields are its settings."""

    @abstractmethod
    def __call__(
        self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]
    ) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""


_ATTACHMENTS: dict[str, type[Attachment]] = {}


def register_attachment(name: str) -> Callable[[type[Attachment]], type[Attachment]]:
    """Make an attachment available to configurations under a name."""

    def add(cls: type[Attachment]) -> type[Attachment]:
        if name in _ATTACHMENTS:
            raise ConfigError(f"two attached losses are named {name!r}; rename one")
        _ATTACHMENTS[name] = cls
        return cls

    return add


def attached_losses() -> dict[str, type[Attachment]]:
    """The losses that can be attached, by name."""
    return dict(sorted(_ATTACHMENTS.items()))


def build_attachments(settings: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Attachment]:
    """The attached losses of a configuration.

    Raises: UnknownNameError for an unknown loss, ConfigError for an unknown or wrong setting.
    """
    attachments = {}
    for name, values in settings.items():
        if name not in _ATTACHMENTS:
            raise UnknownNameError.among("attached loss", name, sorted(_ATTACHMENTS))
        if values is not None:
            attachments[name] = build(_ATTACHMENTS[name], values, where=f"losses.{name}")
    return attachments


class RetrievalModel(nn.Module, ABC):
    """A method: videos and queries are encoded apart and scored by their encodings."""

    name: ClassVar[str]  # set by `register`
    Config: ClassVar[type[ModelConfig]]
    places: ClassVar[frozenset[str]] = frozenset()  # branches of the score that an extension may provide
    has_clips: ClassVar[bool] = False  # clips that meet sentences, and that an extension may replace by others

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.attachments = build_attachments(config.losses)

    @property
    def provided(self) -> frozenset[str]:
        """Branches that extensions provide; the method computes neither their scores nor their losses."""
        return frozenset()

    @property
    def keeps_frames(self) -> bool:
        """Whether an extension reads frames, so that encoded videos hold them even if the method's score does not."""
        return False

    @abstractmethod
    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Vectors of queries; each depends on its own words only."""

    @abstractmethod
    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Vectors of videos; each depends on its own frames only, unless a released option says otherwise."""

    @abstractmethod
    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video; `fused` ranks them."""

    @abstractmethod
    def losses(
        self, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch, *, draws: Draws, epoch: int
    ) -> dict[str, Float[Tensor, ""]]:
        """The method's own loss terms by name, unweighted."""

    def branch_losses(
        self,
        branch: str,
        cosine: Float[Tensor, "Q V"],
        dot: Float[Tensor, "Q V"],
        video_index: Int[Tensor, " Q"],
        *,
        draws: Draws,
    ) -> dict[str, Float[Tensor, ""]]:
        """The method's retrieval objective for a branch that scores every query against every video.

        Extensions train the branches that they provide with it; every method with `places` has one.
        """
        raise NotImplementedError(f"{self.name} has places for branches, so it needs branch_losses")

    def encode_words(self, queries: QueryBatch) -> Float[Tensor, "Q W D"]:
        """Contextual words of the method's own text tower, before they are pooled."""
        return self.query_tower.tower(queries.words, queries.mask)  # type: ignore[union-attr, operator]

    def new_word_tower(self) -> nn.Module | None:
        """A second text tower of the form of the method's own, for an extension; None if words need no tower.

        It takes words, mask and the method's position layer; its weights are still to be drawn.
        """
        return SiblingTower(self.query_tower.tower)  # type: ignore[union-attr, arg-type]

    def position_words(self, x: Float[Tensor, "Q W D"]) -> Float[Tensor, "Q W D"]:
        """Words that know where they stand, by the method's own position table."""
        return self.query_tower.tower.positions(x)  # type: ignore[union-attr, operator]

    def forward(
        self, batch: TrainingBatch, *, draws: Draws, epoch: int = 0, encode: Encode = encode_here
    ) -> dict[str, Float[Tensor, ""]]:
        """All loss terms of a batch by name, unweighted: the method's own and the attached ones."""
        queries, videos = encode(self.encode_queries, batch.queries), encode(self.encode_videos, batch.videos)
        terms = self.losses(queries, videos, batch, draws=draws, epoch=epoch)
        if self.attachments and self.training and self.config.separate_pass:
            queries = encode(self.encode_queries, batch.queries)
        return terms | {
            name: attachment(queries, videos, batch.video_index) for name, attachment in self.attachments.items()
        }

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """A video's vectors in temporal order at equal steps that compare with sentence vectors, and which are real.

        By default the frames, else the clips; a method whose frames are not in the space of its sentences overrides it,
        and frames whose score an extension provides are not compared with sentences either.

        Raises: ConfigError for a method that encodes a video as one vector only.
        """
        if videos.frames is not None and "frame" not in self.provided:
            return videos.frames, videos.frame_mask
        if videos.clips is None:
            raise ConfigError(f"{self.name} keeps neither frames nor clips of a video, so it cannot find moments in it")
        return videos.clips, None

    def similarity(self, queries: EncodedQueries, units: Float[Tensor, "V N D"]) -> Float[Tensor, "Q V N"]:
        """How each query fits each vector of a timeline, or of a window of it; higher is better. By default the cosine.

        Moments and curves of relevance come from it, so that a method in another space than that of cosines has them.
        """
        return products(F.normalize(queries.sentence, dim=-1), F.normalize(units, dim=-1))

    def window_similarities(self, queries: EncodedQueries, videos: EncodedVideos) -> tuple[Proposals, Similarities]:
        """The windows tried in every video and how they fit: by default those of JSG, which need no training."""
        units, mask = self.timeline(videos)
        proposals = centered_proposals(32, 10, min_width=0.05, max_width=1.0)  # JSG's on ActivityNet Captions
        return proposals, window_similarities(partial(self.similarity, queries), units, mask, proposals)

    def locate_settings(self) -> LocateSettings:
        """How many moments are kept where the caller does not say."""
        return LocateSettings()

    def rank_moments(
        self,
        queries: EncodedQueries,
        videos: EncodedVideos,
        duration_s: Float[Tensor, " V"],
        settings: LocateSettings | None = None,
    ) -> RankedMoments:
        """The windows of all videos that fit each query best, before suppression, so that parts of a corpus can be
        ranked apart and joined.

        Raises: FeatureError for a video without a duration, ConfigError for a method without frames and clips.
        """
        settings = settings or self.locate_settings()
        proposals, similarities = self.window_similarities(queries, videos)
        video_score = settings.video_weight * self.score(queries, videos).fused if settings.video_weight else None
        return rank_windows(similarities, len(queries), proposals, duration_s, settings, video_score)

    def locate(
        self,
        queries: EncodedQueries,
        videos: EncodedVideos,
        duration_s: Float[Tensor, " V"],
        settings: LocateSettings | None = None,
    ) -> RankedMoments:
        """The moments of all videos that fit each query best, in seconds, none twice; see `moments/localise.py`."""
        settings = settings or self.locate_settings()
        return suppress_overlaps(self.rank_moments(queries, videos, duration_s, settings), settings)

    def released_names(self) -> Names:
        """The authors' parameter names and where each tensor lives here.

        Raises: CheckpointError for a method whose authors released none.
        """
        raise CheckpointError(f"{self.name}: no released checkpoint is known for this method")
