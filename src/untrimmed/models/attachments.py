"""Losses that attach to any method by configuration (GMMFormer v2, Table 6)."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.errors import ConfigError
from untrimmed.losses import matching, query_diversity
from untrimmed.models.base import Attachment, register_attachment


@register_attachment("query_diversity_v1")
@dataclass(frozen=True, kw_only=True)
class QueryDiversityV1(Attachment):
    """The query diverse loss of GMMFormer (Eq. 13)."""

    margin: float = 0.15
    scale: float = 32.0
    reduction: Literal["released", "paper"] = "released"

    def __call__(
        self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]
    ) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        return query_diversity.query_diversity_v1(
            queries.sentence, video_index, margin=self.margin, scale=self.scale, reduction=self.reduction
        )


@register_attachment("query_diversity")
@dataclass(frozen=True, kw_only=True)
class QueryDiversity(Attachment):
    """The revamped query diverse loss of GMMFormer v2 (Eq. 4-5)."""

    margin: float = 0.2
    scale: float = 32.0
    focus: float = 1.0
    reduction: Literal["released", "paper"] = "released"

    def __call__(
        self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]
    ) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        return query_diversity.query_diversity(
            queries.sentence,
            video_index,
            margin=self.margin,
            scale=self.scale,
            focus=self.focus,
            reduction=self.reduction,
        )


@register_attachment("optimal_matching")
@dataclass(frozen=True, kw_only=True)
class OptimalMatching(Attachment):
    """The optimal matching loss of GMMFormer v2 (Eq. 7), on the clips; on the frames of a method without clips."""

    reduction: Literal["released", "paper"] = "released"

    def __call__(
        self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]
    ) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        units, mask = (videos.clips, None) if videos.clips is not None else (videos.frames, videos.frame_mask)
        if units is None:
            raise ConfigError("losses.optimal_matching needs clips or frames, and this method encodes neither")
        return matching.optimal_matching(queries.sentence, units, video_index, mask, reduction=self.reduction)
