"""What every method is: encoders, a score, named losses.

Adding a method: one file, in this folder or anywhere, as long as it is imported before the method is asked for;
CONTRIBUTING.md has a complete one, and one of a loss.

    @register("my_method")
    class MyMethod(RetrievalModel):
        @dataclass(frozen=True, kw_only=True)
        class Config(ModelConfig):                  # shared sizes are inherited; add the method's own fields
            temperature: float = 0.1

        config: Config

        def __init__(self, config: Config):
            super().__init__(config)                # first
            ...
            self.complete()                         # last: draws the weights and builds what is attached

        def own_queries(self, queries: QueryBatch) -> EncodedQueries: ...
        def own_videos(self, videos: VideoBatch) -> EncodedVideos: ...
        def own_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores: ...
        def own_losses(self, queries, videos, batch, *, draws, epoch) -> dict[str, Tensor]: ...

These are the method's own part. `encode_queries`, `encode_videos`, `score`, `timeline` and `forward`, which all others
call, are the same for every method: its own part, then each attachment (`models/attachment.py`: losses, or parts with
weights, such as RAL). A method that encodes more than the common fields subclasses `EncodedQueries` or `EncodedVideos`
(frozen, keyword-only) beside its class and takes them back with `MyVideos.of(videos)`; `to`, `select` and `cat` handle
the new fields. `own_losses` returns unweighted terms; it gets the encodings and the batch they came from (for teacher
features, words, frames), random numbers only from `draws`, and the epoch.

What a method may offer beyond: spans of frames or clips through `Score.best`; `own_timeline` and `similarity`, from
which moments and curves of relevance are made; branches of its score that a part may take over (`places`: it leaves out
what `config.provided` names then, and has `branch_losses`, and a `text_tower` or `encode_words`); the names that its
authors gave the parameters (`own_released_names`). Presets go to `presets/<method>/<dataset>.yaml`, or are any YAML
file (`untrimmed train --preset FILE`); golden cases to one file in `parity/`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch, encode_here
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.models.attachment import AttachedLoss, Attachment, AttachmentConfig, Losses
from untrimmed.models.registry import ATTACHMENTS
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
from untrimmed.nn.init import initialise
from untrimmed.nn.tower import Tower
from untrimmed.scores.max_sim import products
from untrimmed.scores.score import Scores


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
    losses: Losses = field(default_factory=dict)
    separate_pass: bool = True  # attached losses read a second pass of the query tower
    parts: Mapping[str, AttachmentConfig] = field(default_factory=dict)  # attached ones by name
    attached: tuple[str, ...] = ()  # those parts and losses that stand in the model's name

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
    def attachments(self) -> dict[str, AttachmentConfig]:
        """All that is attached and not off: parts first, then losses."""
        return {**self.parts, **{name: config for name, config in self.losses.items() if config is not None}}

    @property
    def provided(self) -> frozenset[str]:
        """Branches that attachments provide; the method computes neither their scores nor their losses."""
        return frozenset().union(*(config.provides for config in self.attachments.values()))

    @property
    def reads_frames(self) -> bool:
        """Whether an attachment reads frames, so that encoded videos hold them even if the method's score does not."""
        return any(config.reads_frames for config in self.attachments.values())

    @property
    def absent_terms(self) -> frozenset[str]:
        """Loss terms that these settings leave out, so that training drops the weights which presets give them."""
        off = frozenset(name for name, config in self.losses.items() if config is None)
        return off.union(*(config.absent_terms for config in self.attachments.values()))


class RetrievalModel(nn.Module, ABC):
    """A method with what is attached to it: videos and queries are encoded apart and scored by their encodings."""

    name: str  # of the class, set by `register`: the method's; of a model: METHOD+ATTACHMENT+...
    Config: ClassVar[type[ModelConfig]]
    places: ClassVar[frozenset[str]] = frozenset()  # branches of the score that an attachment may provide
    has_clips: ClassVar[bool] = False  # clips that meet sentences, and that an attachment may replace by others

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.name = "+".join((type(self).name, *config.attached))

    def complete(self) -> None:
        """Draw the weights, then build the attachments and draw theirs: the last thing that a constructor does."""
        initialise(self, self.config.init_std)
        attached = self.config.attachments.items()
        self.attachments = nn.ModuleDict({name: ATTACHMENTS[name](config, self) for name, config in attached})
        initialise(self.attachments, self.config.init_std)

    @property
    def carried(self) -> list[Attachment]:
        """The attachments in the order in which they are called."""
        return [attachment for attachment in self.attachments.values() if isinstance(attachment, Attachment)]

    @abstractmethod
    def own_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Vectors of queries; each depends on its own words only."""

    @abstractmethod
    def own_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Vectors of videos; each depends on its own frames only, unless a released option says otherwise."""

    @abstractmethod
    def own_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video, by the branches that no attachment provides."""

    @abstractmethod
    def own_losses(
        self, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch, *, draws: Draws, epoch: int
    ) -> dict[str, Float[Tensor, ""]]:
        """The method's own loss terms by name, unweighted."""

    def own_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """By default the frames, else the clips; a method whose frames are not in the space of its sentences overrides
        it, and frames whose score an attachment provides are not compared with sentences either.

        Raises: ConfigError for a method that encodes a video as one vector only.
        """
        if videos.frames is not None and "frame" not in self.config.provided:
            return videos.frames, videos.frame_mask
        if videos.clips is None:
            raise ConfigError(f"{self.name} keeps neither frames nor clips of a video, so it cannot find moments in it")
        return videos.clips, None

    def own_released_names(self) -> Names:
        """The authors' names of the method's own parameters, and where each tensor lives here.

        Raises: CheckpointError for a method whose authors released none.
        """
        raise CheckpointError(f"{self.name}: no released checkpoint is known for this method")

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

        Attachments train the branches that they provide with it; every method with `places` has one.
        """
        raise NotImplementedError(f"{self.name} has places for branches, so it needs branch_losses")

    @property
    def text_tower(self) -> Tower | None:
        """The tower whose words attachments read, and whose form and positions they may use for one of their own.

        None by default, and for a method whose words need no tower.
        """
        return None

    def encode_words(self, queries: QueryBatch) -> Float[Tensor, "Q W D"]:
        """Contextual words, before they are pooled: by default those of the text tower."""
        if self.text_tower is None:
            raise NotImplementedError(f"{self.name} has no text_tower, so it needs encode_words")
        return self.text_tower(queries.words, queries.mask)

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Queries as the method and its attachments see them."""
        encoded = self.own_queries(queries)
        for attachment in self.carried:
            encoded = attachment.encode_queries(self, queries, encoded)
        return encoded

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Videos as the method and its attachments see them: what an index keeps."""
        encoded = self.own_videos(videos)
        for attachment in self.carried:
            encoded = attachment.encode_videos(self, videos, encoded)
        return encoded

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video, by all branches; `fused` ranks them."""
        scores = self.own_score(queries, videos)
        for attachment in self.carried:
            added = attachment.score(self, queries, videos)
            scores = scores if added is None else scores.joined(added)
        return scores

    def forward(
        self, batch: TrainingBatch, *, draws: Draws, epoch: int = 0, encode: Encode = encode_here
    ) -> dict[str, Float[Tensor, ""]]:
        """All loss terms of a batch by name, unweighted: the method's own, those of parts, and the attached ones."""
        queries, videos = encode(self.encode_queries, batch.queries), encode(self.encode_videos, batch.videos)
        terms = self.own_losses(queries, videos, batch, draws=draws, epoch=epoch)
        is_second_due = self.training and self.config.separate_pass
        for attachment in self.carried:  # losses come last
            if is_second_due and isinstance(attachment, AttachedLoss):
                queries, is_second_due = encode(self.encode_queries, batch.queries), False
            terms |= attachment.losses(self, queries, videos, batch, draws=draws, epoch=epoch)
        return terms

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """A video's vectors in temporal order at equal steps that compare with queries, and which of them are real.

        Raises: ConfigError for a method that encodes a video as one vector only.
        """
        for attachment in self.carried:
            replaced = attachment.timeline(videos)
            if replaced is not None:
                return replaced
        return self.own_timeline(videos)

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
        """The authors' parameter names of the whole, and where each tensor lives here.

        Raises: CheckpointError for a method whose authors released none, and for a composition that was not released.
        """
        names = self.own_released_names()
        for part in self.config.parts:
            attachment, method = ATTACHMENTS[part], type(self).name
            if method not in attachment.released_on:
                known = ", ".join(f"{other}+{part}" for other in sorted(attachment.released_on)) or "none"
                raise CheckpointError(f"{self.name}: no released checkpoint is known; of {part}: {known}")
            names |= attachment.released_names(f"attachments.{part}")
        return names
