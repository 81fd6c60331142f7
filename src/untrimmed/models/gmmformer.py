"""GMMFormer (AAAI 2024, arXiv 2310.05195): clips by attention under Gaussian windows of several widths.

Released code: huangmozhi9527/GMMFormer. Its layers normalise after the residual and have no feed-forward part, where
Eq. 8-9 normalise before and have one; windows live on relative positions. We follow the release; the paper's side is
an option. As released, the window of the second branch depends on the longest video of a batch, and so do the vectors
of the others (`window_length: full` removes that).
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch, required
from untrimmed.losses.branch import branch_terms
from untrimmed.losses.draws import Draws
from untrimmed.models import released
from untrimmed.models.base import LossSettings, ModelConfig, RetrievalModel
from untrimmed.models.registry import register
from untrimmed.nn.aggregation import MeanAggregation
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import GaussianBlock, NormOrder, ParallelLayers, TransformerLayer
from untrimmed.nn.init import initialise
from untrimmed.nn.tower import QueryTower, Tower
from untrimmed.nn.window import Constraint, Formula
from untrimmed.scores.max_sim import Padding, Similarity, max_sim
from untrimmed.scores.score import Score, Scores
from untrimmed.scores.second_branch import SecondBranch, second_branch_sim


@register("gmmformer")
class GMMFormer(RetrievalModel):
    """Query, clip and frame towers; the frames are pooled into one vector per video."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """`gaussian_widths`: one layer a width, inf = no window. The last three fields belong to the score and loss."""

        input_dropout: float = 0.2
        dropout: float = 0.2
        gaussian_widths: tuple[float, ...] = (math.inf, 0.5, 1.0, 5.0)
        num_blocks: int = 2
        constraint: Constraint = "gaussian"
        window: Formula = "released"
        window_length: Literal["batch", "full"] = "batch"  # full: the window of max_frames, whatever the batch
        norm: NormOrder = "post"
        output_map: bool = True
        ffn_ratio: int = 0  # the paper has a feed-forward part: 4
        second_branch: SecondBranch = "video"
        padding_scores: Padding = "excluded"  # only for second_branch: frame
        losses: LossSettings = field(default_factory=lambda: {"query_diversity_v1": {"margin": 0.15, "scale": 32.0}})
        margin: float = 0.1
        clip_weight: float = 0.7
        frame_weight: float = 0.3

    config: Config
    places: ClassVar[frozenset[str]] = frozenset({"frame"})
    has_clips: ClassVar[bool] = True

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        layer = TransformerLayer(
            c.dim,
            c.num_heads,
            c.dropout,
            output_map=c.output_map,
            ffn_ratio=c.ffn_ratio,
            norm=c.norm,
            skip_padding=True,
        )
        tower = Tower(c.query_dim, c.dim, c.max_words, c.input_dropout, layer, skip_padding=True)
        self.query_tower = QueryTower(tower, c.dim)
        self.clip_tower = self._video_tower(window_length=None)
        self.frame_tower = self._video_tower(window_length=c.max_frames if c.window_length == "full" else None)
        has_pooling = c.second_branch == "video" and "frame" not in self.provided
        self.frame_pooling = AttentionPooling(c.dim) if has_pooling else None
        initialise(self, c.init_std)

    def _video_tower(self, window_length: int | None) -> Tower:
        c = self.config
        blocks = []
        for _ in range(c.num_blocks):
            layers = ParallelLayers(
                c.dim,
                c.num_heads,
                c.dropout,
                widths=c.gaussian_widths,
                output_map=c.output_map,
                ffn_ratio=c.ffn_ratio,
                norm=c.norm,
                constraint=c.constraint,
                window_formula=c.window,
                window_length=window_length,
                skip_padding=True,
            )
            blocks.append(GaussianBlock(layers, MeanAggregation()))
        return Tower(c.video_dim, c.dim, max(c.max_frames, c.num_clips), c.input_dropout, *blocks, skip_padding=True)

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """One pooled vector a query (Eq. 1)."""
        return EncodedQueries(sentence=self.query_tower(queries.words, queries.mask))

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Clips, and the frames pooled into one vector (Eq. 2)."""
        clips, mask = self.clip_tower(videos.clips), videos.frame_mask
        frames = self.frame_tower(videos.frames, mask)
        pooled = None if self.frame_pooling is None else self.frame_pooling(frames, mask)
        if pooled is not None and not self.keeps_frames:
            return EncodedVideos(clips=clips, video=pooled)
        return EncodedVideos(clips=clips, frames=frames, frame_mask=mask, video=pooled)

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """The best clip (Eq. 4) and the whole video (Eq. 3), weighted (Eq. 5)."""
        sims = self.branch_sims(queries, videos)
        weights = {"clip": self.config.clip_weight, "frame": self.config.frame_weight}
        return Scores(sims, {branch: weights[branch] for branch in sims})

    def losses(
        self, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch, *, draws: Draws, epoch: int
    ) -> dict[str, Float[Tensor, ""]]:
        """InfoNCE and triplet of both branches (Eq. 11-12)."""
        cosine, dot = self.branch_sims(queries, videos), self.branch_sims(queries, videos, "dot")
        terms: dict[str, Tensor] = {}
        for branch in cosine:
            terms |= self.branch_losses(branch, cosine[branch].value, dot[branch].value, batch.video_index, draws=draws)
        return terms

    def branch_losses(
        self,
        branch: str,
        cosine: Float[Tensor, "Q V"],
        dot: Float[Tensor, "Q V"],
        video_index: Int[Tensor, " Q"],
        *,
        draws: Draws,
    ) -> dict[str, Float[Tensor, ""]]:
        """InfoNCE and triplet of one branch."""
        return branch_terms(branch, cosine, dot, video_index, margin=self.config.margin, draws=draws)

    def branch_sims(
        self, queries: EncodedQueries, videos: EncodedVideos, similarity: Similarity = "cosine"
    ) -> dict[str, Score]:
        """The method's own branches by cosine, or by dot product as InfoNCE reads them."""
        c, sentence = self.config, queries.sentence
        sims = {"clip": max_sim(sentence, required(videos, "clips"), similarity=similarity)}
        if "frame" not in self.provided:
            sims["frame"] = second_branch_sim(
                sentence, videos, max_frames=c.max_frames, padding=c.padding_scores, similarity=similarity
            )
        return sims

    def released_names(self) -> released.Names:
        """The authors' parameter names (methods page section 11) and where each tensor lives here."""
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
