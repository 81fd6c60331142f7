"""The partial order loss of HLFormer (arXiv 2507.17402), which moves captions into the cones of their videos.

A video is one vector, pooled from its clips and frames. Captions and videos are scaled and mapped into a hyperbolic
space with a learned curvature. The loss is the angle between a caption and the cone of its video. The loss is 0 if the
caption is inside the cone. Retrieval does not use hyperbolic space.

As in the authors' program, frames are padded with zero rows to the longest possible video, and pooling includes this
padding. We added two cases. If a method has no clips, only frames are pooled. For GMMFormer, the vector that is pooled
from all frames replaces the frames.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, clips_of, frames_of
from untrimmed.errors import ConfigError
from untrimmed.losses.partial_order import lifted, partial_order
from untrimmed.models.attachment import AttachedLoss, AttachmentConfig, Carrier
from untrimmed.models.registry import register
from untrimmed.models.two_branches import TwoBranchModel, TwoBranchVideos
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.lorentz import bounded
from untrimmed.nn.tower import lengthened

CURVATURE_RANGE = 10.0  # the learned curvature stays within this factor of its initial value


@dataclass(frozen=True)
class Hierarchy:
    """Points of queries and videos in hyperbolic space of curvature -c, without the time coordinate."""

    text: Float[Tensor, "Q D"]
    video: Float[Tensor, "V D"]
    curvature: Float[Tensor, ""]


@register("partial_order")
class PartialOrder(AttachedLoss):
    """The partial order loss of HLFormer (ICCV 2025, arXiv 2507.17402), for methods that encode frames."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss.

        - `curvature`: initial value of the learned curvature. Training changes it by at most a factor of ten.
        - `radius`: if a video is closer to the origin than twice this distance, its cone is a half-space.
        """

        curvature: float = 1.0
        radius: float = 0.1

        def __post_init__(self) -> None:
            if not (0 < self.curvature < math.inf and 0 < self.radius < math.inf):
                raise ConfigError(
                    f"losses.partial_order: curvature {self.curvature} and radius {self.radius}, expected both above 0"
                )

    reads_frames: ClassVar[bool] = True
    draws_maps: ClassVar[bool] = True

    config: Config

    def __init__(self, config: Config, model: Carrier):
        super().__init__(config, model)
        dim = model.config.dim
        self.num_frames = model.config.max_frames
        is_pooled = isinstance(model, TwoBranchModel) and model.frame_pooling is not None
        self.log_curvature = nn.Parameter(torch.tensor(math.log(config.curvature)))
        self.log_text_scale = nn.Parameter(torch.tensor(math.log(dim**-0.5)))
        self.log_video_scale = nn.Parameter(torch.tensor(math.log(dim**-0.5)))
        self.frame_pooling = None if is_pooled else AttentionPooling(dim)
        self.clip_pooling = AttentionPooling(dim) if model.has_clips else None

    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
        points = self.hierarchy(queries, videos)
        return partial_order(points.text, points.video, video_index, points.curvature, radius=self.config.radius)

    def hierarchy(self, queries: EncodedQueries, videos: EncodedVideos) -> Hierarchy:
        """Return sentences and pooled videos in hyperbolic space. Training also clamps the learned scalars in place."""
        start = math.log(self.config.curvature)
        width = math.log(CURVATURE_RANGE)
        stores = self.training
        curvature = bounded(self.log_curvature, start - width, start + width, overwrite=stores).exp()
        text, video = (
            bounded(scale, -math.inf, 0.0, overwrite=stores).exp()
            for scale in (self.log_text_scale, self.log_video_scale)
        )
        pooled = self._of_frames(videos)
        if self.clip_pooling is not None:
            pooled = (pooled + self.clip_pooling(clips_of(videos))) / 2
        return Hierarchy(lifted(text * queries.sentence, curvature), lifted(video * pooled, curvature), curvature)

    def _of_frames(self, videos: EncodedVideos) -> Float[Tensor, "V D"]:
        if self.frame_pooling is None:
            pooled = TwoBranchVideos.of(videos).video
            assert pooled is not None
            return pooled
        return self.frame_pooling(lengthened(*frames_of(videos), self.num_frames)[0])
