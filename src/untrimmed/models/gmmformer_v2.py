"""GMMFormer v2 (arXiv 2405.13824): multi-scale clips, consolidated per time point; queries matched to clips one to one.

Released code: huangmozhi9527/GMMFormer_v2. It normalises after each residual, Eq. 14-15 before; windows live on
relative positions; the frame score runs over zeroed padding too, so that a video with fewer than `max_frames` frames
never scores below 0. We follow the release; the paper's side of each is an option.
"""

import math
from dataclasses import dataclass, field

from untrimmed.batches import VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.models import released
from untrimmed.models.attached_losses import OptimalMatching, QueryDiversity
from untrimmed.models.attachment import Losses
from untrimmed.models.registry import register
from untrimmed.models.two_branches import SecondBranch, TwoBranchConfig, TwoBranchModel, TwoBranchVideos
from untrimmed.nn.aggregation import Aggregation, Generator, aggregation, reads_token
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import GaussianBlock
from untrimmed.nn.tower import Tower, new_token
from untrimmed.scores.max_sim import Padding

FFN_RATIO = 4
RELEASED_LOSSES = {"query_diversity": QueryDiversity.Config(margin=0.15), "optimal_matching": OptimalMatching.Config()}


@register("gmmformer_v2")
class GMMFormerV2(TwoBranchModel):
    """Query, clip and frame towers with one block each; clips and frames both score by their best row."""

    @dataclass(frozen=True, kw_only=True)
    class Config(TwoBranchConfig):
        """`gaussian_widths`: one layer a width, inf = no window (Table 5, Fig. 5); `temperature`: tau of Eq. 2."""

        input_dropout: float = 0.2
        dropout: float = 0.2
        gaussian_widths: tuple[float, ...] = (math.inf, 0.5, 1.0, 5.0, 10.0, 3.0, 0.1, 8.0)
        aggregation: Aggregation = "consolidation"  # Table 4
        weight_generator: Generator = "released"  # paper: Eq. 1 and 18, and a token for each branch
        temperature: float = 0.09
        second_branch: SecondBranch = "frame"  # Table 3
        padding_scores: Padding = "zero"
        losses: Losses = field(default_factory=lambda: dict(RELEASED_LOSSES))

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.temperature <= 0:
                raise ConfigError(f"temperature is {self.temperature}, wanted more than 0")

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.query_tower = self.new_query_tower(output_map=False, ffn_ratio=FFN_RATIO)
        # As released one token reads the layers of both branches.
        self.token = new_token(c.dim) if reads_token(c.aggregation) else None
        has_own_token = self.token is not None and c.weight_generator == "paper"
        self.frame_token = new_token(c.dim) if has_own_token else None
        self.clip_tower = Tower(c.video_dim, c.dim, max(c.max_frames, c.num_clips), c.input_dropout)
        self.clip_block = self._block(length=c.num_clips)
        self.frame_tower = Tower(c.video_dim, c.dim, c.max_frames, c.input_dropout, skip_padding=True)
        self.frame_block = self._block(length=c.max_frames)
        has_pooling = c.second_branch == "video" and "frame" not in c.provided
        self.frame_pooling = AttentionPooling(c.dim) if has_pooling else None

    def _block(self, length: int) -> GaussianBlock:
        """A block for sequences of at most `length`, whose windows are those of that length."""
        c = self.config
        layers = self.new_layers(length, output_map=False, ffn_ratio=FFN_RATIO)
        join = aggregation(
            c.aggregation,
            num_layers=len(c.gaussian_widths),
            length=length,
            dim=c.dim,
            num_heads=c.num_heads,
            dropout=c.dropout,
            temperature=c.temperature,
            generator=c.weight_generator,
        )
        return GaussianBlock(layers, join)

    def own_videos(self, videos: VideoBatch) -> TwoBranchVideos:
        """Consolidated clips and frames (Eq. 1-3); frame rows at padding are 0."""
        clips, mask = self.clip_block(self.clip_tower(videos.clips), None, self.token), videos.frame_mask
        token = self.token if self.frame_token is None else self.frame_token
        frames = self.frame_block(self.frame_tower(videos.frames), mask, token)
        pooled = None if self.frame_pooling is None else self.frame_pooling(frames, mask)
        if pooled is not None and not self.config.reads_frames:
            return TwoBranchVideos(clips=clips, video=pooled)
        return TwoBranchVideos(clips=clips, frames=frames * mask[..., None], frame_mask=mask, video=pooled)

    def own_released_names(self) -> released.Names:
        """The parameter names in checkpoints of huangmozhi9527/GMMFormer_v2, and where each tensor lives here."""
        names = {"weight_token": released.Slot("token", unit_axes=2)} | released.embedding("query_tower.tower", "query")
        names |= released.ffn_layer("query_tower.tower.blocks.0.layers", "query_encoder", block=0)
        names["modular_vector_mapping.weight"] = released.Slot("query_tower.pooling.score.weight")
        for ours, theirs in (("clip", "clip_encoder"), ("frame", "frame_encoder_1")):
            names |= released.embedding(f"{ours}_tower", ours)
            names |= released.consolidation_block(f"{ours}_block", theirs, len(self.config.gaussian_widths))
        return names
