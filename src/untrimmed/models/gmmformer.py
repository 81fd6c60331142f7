"""GMMFormer (AAAI 2024, arXiv 2310.05195): clips encoded by attention within Gaussian windows.

Released code: huangmozhi9527/GMMFormer. If release and paper differ, we follow the release, and an option selects the
paper's version.

- The released layers normalise after the residual. Eq. 8-9 normalise before it (`norm: pre`).
- The released layers have no feed-forward part. Eq. 8-9 have one (`ffn_ratio: 4`).
- The released windows use relative positions (`window`).
- The released window of the second branch depends on the longest video of the batch. The vectors of a video therefore
  depend on the batch (`window_length: full` avoids this).
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from untrimmed.batches import VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.models import released
from untrimmed.models.attached_losses import QueryDiversityV1
from untrimmed.models.registry import register
from untrimmed.models.settings import Losses
from untrimmed.models.two_branches import SecondBranch, TwoBranchConfig, TwoBranchModel, TwoBranchVideos
from untrimmed.nn.aggregation import MeanAggregation
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import GaussianBlock
from untrimmed.nn.tower import Tower
from untrimmed.scores.max_sim import Padding


@register("gmmformer")
class GMMFormer(TwoBranchModel):
    """Three towers, for queries, clips and frames. The frames of a video are pooled into one vector."""

    @dataclass(frozen=True, kw_only=True)
    class Config(TwoBranchConfig):
        """Settings of the method. `gaussian_widths`: one layer per width; inf means no window."""

        input_dropout: float = 0.2
        dropout: float = 0.2
        gaussian_widths: tuple[float, ...] = (math.inf, 0.5, 1.0, 5.0)
        num_blocks: int = 2
        window_length: Literal["batch", "full"] = "batch"  # full: windows for max_frames in every batch
        output_map: bool = True
        ffn_ratio: int = 0  # 0: no feed-forward part; 4: as in the paper
        second_branch: SecondBranch = "video"
        padding_scores: Padding = "excluded"
        losses: Losses = field(default_factory=lambda: {"query_diversity_v1": QueryDiversityV1.Config()})

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.num_blocks < 1 or self.ffn_ratio < 0:
                raise ConfigError(
                    f"num_blocks {self.num_blocks}, ffn_ratio {self.ffn_ratio}: expected at least 1 and at least 0"
                )

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.query_tower = self.new_query_tower(output_map=c.output_map, ffn_ratio=c.ffn_ratio)
        self.clip_tower = self._video_tower(window_length=None)
        self.frame_tower = self._video_tower(window_length=c.max_frames if c.window_length == "full" else None)
        has_pooling = c.second_branch == "video" and "frame" not in c.provided
        self.frame_pooling = AttentionPooling(c.dim) if has_pooling else None

    def _video_tower(self, window_length: int | None) -> Tower:
        c = self.config
        blocks = []
        for _ in range(c.num_blocks):
            layers = self.new_layers(window_length, output_map=c.output_map, ffn_ratio=c.ffn_ratio)
            blocks.append(GaussianBlock(layers, MeanAggregation()))
        return Tower(c.video_dim, c.dim, max(c.max_frames, c.num_clips), c.input_dropout, *blocks, skip_padding=True)

    def compute_video_vectors(self, videos: VideoBatch) -> TwoBranchVideos:
        """Return the clips, and one vector pooled from the frames (Eq. 2)."""
        clips = self.clip_tower(videos.clips)
        mask = videos.frame_mask
        frames = self.frame_tower(videos.frames, mask)
        pooled = None if self.frame_pooling is None else self.frame_pooling(frames, mask)
        if pooled is not None and not self.config.reads_frames:
            return TwoBranchVideos(clips=clips, video=pooled)
        return TwoBranchVideos(clips=clips, frames=frames, frame_mask=mask, video=pooled)

    def list_released_names(self) -> released.Names:
        """Return the parameter names in checkpoints of huangmozhi9527/GMMFormer, each with its tensor's `Slot`."""
        names = released.embedding("query_tower.tower", "query")
        names |= released.attention_layer("query_tower.tower.blocks.0.layers", "query_encoder", block=0)
        for tower, theirs, encoders in (
            ("clip_tower", "clip", ("clip_encoder", "clip_encoder_2")),
            ("frame_tower", "frame", ("frame_encoder_1", "frame_encoder_2")),
        ):
            names |= released.embedding(tower, theirs)
            for i, encoder in enumerate(encoders):
                for k in range(len(self.config.gaussian_widths)):
                    names |= released.attention_layer(f"{tower}.blocks.{i}.layers", f"{encoder}.attn{k}", block=k)
        return names | {
            "modular_vector_mapping.weight": released.Slot("query_tower.pooling.score.weight"),
            "modular_vector_mapping_2.weight": released.Slot("frame_pooling.score.weight"),
        }
