"""Losses that the settings can add to any method (GMMFormer v2, Table 6; DreamPRVR)."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.errors import ConfigError
from untrimmed.losses import matching, query_diversity
from untrimmed.losses.query_similarity import query_similarity
from untrimmed.models.attachment import AttachedLoss, AttachmentConfig
from untrimmed.models.registry import register


@register("query_diversity_v1")
class QueryDiversityV1(AttachedLoss):
    """The query diverse loss of GMMFormer (Eq. 13)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss.

        `reduction`: `released` takes one logarithm per query, and `paper` takes one per pair of queries (Eq. 13).
        """

        margin: float = 0.15
        scale: float = 32.0
        reduction: Literal["released", "paper"] = "released"

    config: Config

    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        c = self.config
        return query_diversity.query_diversity_v1(
            queries.sentence, video_index, margin=c.margin, scale=c.scale, reduction=c.reduction
        )


@register("query_diversity")
class QueryDiversity(AttachedLoss):
    """The query diverse loss of GMMFormer v2 (Eq. 4-5)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss.

        `reduction`: `released` averages over all queries of a batch. `paper` averages within each video first (Eq. 5).
        """

        margin: float = 0.2
        scale: float = 32.0
        focus: float = 1.0
        reduction: Literal["released", "paper"] = "released"

    config: Config

    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        c = self.config
        return query_diversity.query_diversity(
            queries.sentence, video_index, margin=c.margin, scale=c.scale, focus=c.focus, reduction=c.reduction
        )


@register("query_similarity")
class QuerySimilarity(AttachedLoss):
    """The loss of DreamPRVR (arXiv 2604.03653) that keeps queries of the same video similar."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss. Cosines between queries are divided by `temperature`."""

        temperature: float = 0.09

        def __post_init__(self) -> None:
            if not self.temperature > 0:
                raise ConfigError(f"query_similarity.temperature is {self.temperature}, expected more than 0")

    config: Config

    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        return query_similarity(queries.sentence, video_index, temperature=self.config.temperature)


@register("optimal_matching")
class OptimalMatching(AttachedLoss):
    """The optimal matching loss of GMMFormer v2 (Eq. 7). The loss uses frames if the method has no clips."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss.

        `reduction`: `released` averages over all pairs of a batch, and ignores videos with one query. `paper` averages
        within each video, including videos with one query, and then over videos (Eq. 7).
        """

        reduction: Literal["released", "paper"] = "released"

    config: Config

    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        units, mask = (videos.clips, None) if videos.clips is not None else (videos.frames, videos.frame_mask)
        if units is None:
            raise ConfigError("losses.optimal_matching needs clips or frames, and this method encodes neither")
        return matching.optimal_matching(queries.sentence, units, video_index, mask, reduction=self.config.reduction)
