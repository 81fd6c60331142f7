"""The encoder of GMMFormer v2, HLFormer, DreamPRVR and Holmes: parallel layers, fused at each time point.

Each branch has a tower and one block of parallel layers. At each time point, a token attends to the outputs of the
layers, and the outputs are fused with the resulting weights. The token is learned, or it is the mean of the outputs.
Equations and tables are numbered as in GMMFormer v2 (arXiv 2405.13824).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from untrimmed.batches import VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.models import released
from untrimmed.models.attachment import ExtraRows
from untrimmed.models.two_branches import SecondBranch, TwoBranchConfig, TwoBranchModel, TwoBranchVideos
from untrimmed.nn.aggregation import Aggregation, Generator, aggregation, reads_token
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import GaussianBlock, LayersOfTwoKinds, ParallelLayers
from untrimmed.nn.tower import Tower, lengthened, new_token
from untrimmed.scores.max_sim import Padding

FFN_RATIO = 4
FusionToken = Literal["learned", "mean"]


@dataclass(frozen=True, kw_only=True)
class ConsolidatedConfig(TwoBranchConfig):
    """Settings of the encoder.

    - `gaussian_widths`: one layer per width; inf means no window (Table 5, Fig. 5).
    - `fusion_token`: the token that fuses the layers. `learned` is one token for all videos. `mean` is the mean of the
      layers' outputs, including padding.
    - `temperature`: tau of Eq. 2.
    """

    input_dropout: float = 0.2
    dropout: float = 0.2
    aggregation: Aggregation = "consolidation"  # see Table 4
    fusion_token: FusionToken = "learned"
    weight_generator: Generator = "released"  # paper: Eq. 1 and 18, with a learned token for each branch
    temperature: float = 0.09
    second_branch: SecondBranch = "frame"  # see Table 3
    padding_scores: Padding = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0:
            raise ConfigError(f"temperature is {self.temperature}, expected more than 0")

    @property
    def learns_token(self) -> bool:
        """Whether a learned token fuses the layers."""
        return reads_token(self.aggregation) and self.fusion_token == "learned"

    @property
    def reads_padding(self) -> bool:
        """Whether padding affects the score, because the token is the mean of the layers' outputs."""
        return reads_token(self.aggregation) and self.fusion_token == "mean"


class ConsolidatedModel(TwoBranchModel):
    """A query tower; one tower and one block for clips; one tower and one block for frames.

    Subclasses set defaults and can use other blocks.
    """

    config: ConsolidatedConfig
    has_layers: ClassVar[bool] = True
    released_layer: ClassVar[str] = "attn"  # the authors' name of layer i of a block, without i

    def __init__(self, config: ConsolidatedConfig):
        super().__init__(config)
        c = config
        self.query_tower = self.new_query_tower(output_map=False, ffn_ratio=FFN_RATIO)
        # as in the authors' programs, the same token fuses the layers of both branches
        self.token = new_token(c.dim) if c.learns_token else None
        has_own_token = self.token is not None and c.weight_generator == "paper"
        self.frame_token = new_token(c.dim) if has_own_token else None
        self.clip_tower = Tower(c.video_dim, c.dim, max(c.max_frames, c.num_clips), c.input_dropout)
        self.clip_block = self.new_block(length=c.num_clips)
        self.frame_tower = Tower(c.video_dim, c.dim, c.max_frames, c.input_dropout)
        self.frame_block = self.new_block(length=c.max_frames)
        has_pooling = c.second_branch == "video" and "frame" not in c.provided
        self.frame_pooling = AttentionPooling(c.dim) if has_pooling else None

    def new_block(self, length: int) -> GaussianBlock:
        """Return a block for sequences of at most `length` rows, with attention windows for this length."""
        c = self.config
        layers = self.block_layers(length)
        join = aggregation(
            c.aggregation,
            num_layers=len(layers.widths),
            length=length,
            dim=c.dim,
            num_heads=c.num_heads,
            dropout=c.dropout,
            temperature=c.temperature,
            generator=c.weight_generator,
        )
        return GaussianBlock(layers, join)

    def block_layers(self, length: int) -> ParallelLayers | LayersOfTwoKinds:
        """Return the layers of a block, with attention windows for `length` rows."""
        skips = not self.config.reads_padding
        return self.new_layers(length, output_map=False, ffn_ratio=FFN_RATIO, skip_padding=skips)

    def compute_video_vectors(self, videos: VideoBatch) -> TwoBranchVideos:
        """Return clips and frames after the fusion (Eq. 1-3). Padding of frames is 0."""
        embedded = self.clip_tower(videos.clips)
        joining = (part.extra_rows(self, embedded) for part in self.carried if part.joins_layers)
        extra = next(joining, ExtraRows())
        clips = self.clip_block(embedded, None, self.token, extra.clips)
        features = videos.frames
        mask = videos.frame_mask
        length = videos.frames.shape[1]
        if self.config.reads_padding:
            features, mask = lengthened(features, mask, self.config.max_frames)
        token = self.token if self.frame_token is None else self.frame_token
        frames = self.frame_block(self.frame_tower(features), mask, token, extra.frames)[:, :length]
        mask = videos.frame_mask
        pooled = None if self.frame_pooling is None else self.frame_pooling(frames, mask)
        if pooled is not None and not self.config.reads_frames:
            return TwoBranchVideos(clips=clips, video=pooled, attached=extra.records)
        frames = frames * mask[..., None]
        return TwoBranchVideos(clips=clips, frames=frames, frame_mask=mask, video=pooled, attached=extra.records)

    def list_released_names(self) -> released.Names:
        """Return the parameter names in the authors' checkpoints, each with its tensor's `Slot`."""
        token = released.Slot("token", unit_axes=2) if self.config.learns_token else released.UNUSED
        names = {"weight_token": token} | released.embedding("query_tower.tower", "query")
        names |= released.ffn_layer("query_tower.tower.blocks.0.layers", "query_encoder", block=0)
        names["modular_vector_mapping.weight"] = released.Slot("query_tower.pooling.score.weight")
        for ours, theirs in (("clip", "clip_encoder"), ("frame", "frame_encoder_1")):
            names |= released.embedding(f"{ours}_tower", ours)
            names |= self.released_layers(f"{ours}_block.layers", theirs)
            names |= released.consolidation(f"{ours}_block.aggregation", theirs)
        return names

    def released_layers(self, ours: str, theirs: str) -> released.Names:
        """Return the authors' names of a block's layers."""
        names: released.Names = {}
        for k in range(len(self.config.gaussian_widths)):
            names |= released.ffn_layer(ours, f"{theirs}.{self.released_layer}{k}", block=k)
        return names
