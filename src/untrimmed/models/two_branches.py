"""The base of MS-SL, GMMFormer and GMMFormer v2: the score combines the best clip and a branch over the frames.

"Eq. 5; Eq. 11" means Eq. 5 of GMMFormer (arXiv 2310.05195) and Eq. 11 of GMMFormer v2 (arXiv 2405.13824).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, frames_of, num_frames_of
from untrimmed.errors import ConfigError
from untrimmed.losses.branch import TripletForm, branch_terms
from untrimmed.losses.nce import Contrast
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import NormOrder, ParallelLayers, TransformerLayer
from untrimmed.nn.tower import QueryTower, Tower
from untrimmed.nn.window import Constraint, Formula
from untrimmed.scores.max_sim import Branches, Padding, Similarity, TensorNames, max_sim, units, vector_sim, zero_floor
from untrimmed.scores.score import Score, Scores


@dataclass(frozen=True, kw_only=True)
class ClipFrameConfig(ModelConfig):
    """Settings of the score and the losses, including the weight of each branch in the fused score."""

    margin: float = 0.1
    clip_weight: float = 0.7  # alpha_c of Eq. 5; Eq. 11
    frame_weight: float = 0.3


class ClipFrameModel(RetrievalModel):
    """A method that pools words into one vector, and scores videos by clips and by frames.

    An attachment may replace the branch over frames.
    """

    config: ClipFrameConfig
    query_tower: QueryTower
    places: ClassVar[frozenset[str]] = frozenset({"frame"})
    has_clips: ClassVar[bool] = True

    @property
    def text_tower(self) -> Tower:
        """The tower over the words of queries."""
        return self.query_tower.tower

    def compute_query_vectors(self, queries: QueryBatch) -> EncodedQueries:
        """Return one pooled vector for each query (Eq. 1; Eq. 12)."""
        return EncodedQueries(sentence=self.query_tower(queries.words, queries.mask))

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the sentence, for clips and for frames."""
        sentence = F.normalize(queries.sentence, dim=-1)[:, None]
        return {branch: self.branch_weight(branch) * sentence for branch in {"clip", "frame"} - self.config.provided}

    def branch_losses(
        self, branch: str, cosine: Float[Tensor, "Q V"], dot: Float[Tensor, "Q V"], step: TrainingStep
    ) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE and triplet loss of a branch that scores every query against every video."""
        index = step.batch.video_index
        margin = self.config.margin
        return branch_terms(branch, cosine, dot, index, margin=margin, draws=step.draws)

    def branch_weight(self, branch: str) -> float:
        """Return the weight of the clips or of the frames."""
        return {"clip": self.config.clip_weight, "frame": self.config.frame_weight}[branch]


SecondBranch = Literal["frame", "video"]  # best frame (GMMFormer v2), or one vector of all frames (GMMFormer)


@dataclass(frozen=True, kw_only=True)
class TwoBranchVideos(EncodedVideos):
    """Video vectors: clips for the first branch, and frames or one pooled vector for the second branch."""

    clips: Float[Tensor, "V L D"]
    video: Float[Tensor, "V D"] | None = None


@dataclass(frozen=True, kw_only=True)
class TwoBranchConfig(ClipFrameConfig):
    """Settings of layers, score and losses. Each method sets the defaults of the first three.

    For the following settings, `released` follows the program and `paper` follows the equations:

    - `window`: the paper uses Eq. 7 over positions 0, 1, 2, ... The program uses relative positions.
    - `triplet`: the paper has one term per pair (Eq. 11; Eq. 20). The program has one term per video, for the mean
      score of the video's queries.
    - `nce`: the paper divides the cosine of a pair by a sum of cosines (Eq. 12; Eq. 21). The program uses a softmax of
      dot products.

    `norm: pre` normalises before each part of a layer, as in Eq. 8-9; Eq. 14-15.
    """

    gaussian_widths: tuple[float, ...]
    second_branch: SecondBranch
    padding_scores: Padding  # only with `second_branch: frame`
    constraint: Constraint = "gaussian"  # see GMMFormer v2, Table 8
    window: Formula = "released"
    norm: NormOrder = "post"
    triplet: TripletForm = "released"
    nce: Contrast = "released"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gaussian_widths or not all(width > 0 for width in self.gaussian_widths):
            raise ConfigError(
                f"gaussian_widths is {list(self.gaussian_widths)}, expected numbers above 0 (.inf: no window)"
            )


class TwoBranchModel(ClipFrameModel):
    """A method that encodes clips, and either frames or one vector that is pooled from frames.

    Subclasses build the towers.
    """

    config: TwoBranchConfig
    frame_pooling: AttentionPooling | None  # pools frames into one vector; None if frames are not pooled

    def new_query_tower(self, *, output_map: bool, ffn_ratio: int) -> QueryTower:
        """Return a tower with one layer over the words, and attention pooling."""
        c = self.config
        layer = TransformerLayer(
            c.dim, c.num_heads, c.dropout, output_map=output_map, ffn_ratio=ffn_ratio, norm=c.norm, skip_padding=True
        )
        return QueryTower(Tower(c.query_dim, c.dim, c.max_words, c.input_dropout, layer, skip_padding=True), c.dim)

    def new_layers(
        self,
        window_length: int | None,
        *,
        output_map: bool,
        ffn_ratio: int,
        skip_padding: bool = True,
        widths: Sequence[float] = (),
        attention: nn.Module | None = None,
    ) -> ParallelLayers:
        """Return one layer per width. The default widths are `gaussian_widths`.

        Attention windows are computed for sequences of `window_length` rows. If this is None, they are computed for the
        longest sequence of each batch.
        """
        c = self.config
        return ParallelLayers(
            c.dim,
            c.num_heads,
            c.dropout,
            widths=widths or c.gaussian_widths,
            output_map=output_map,
            ffn_ratio=ffn_ratio,
            norm=c.norm,
            constraint=c.constraint,
            window_formula=c.window,
            window_length=window_length,
            skip_padding=skip_padding,
            attention=attention,
        )

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of clips (Eq. 4; Eq. 10) and of the second branch (Eq. 3; Eq. 9), and their weights."""
        sims = self.branch_sims(queries, videos)
        return Scores(sims, {branch: self.branch_weight(branch) for branch in sims})

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return the clips, and the vectors of the second branch."""
        videos = TwoBranchVideos.of(videos)
        sketch = {"clip": units(videos.clips)}
        if "frame" in self.config.provided:
            return sketch
        if videos.video is not None:
            return sketch | {"frame": units(videos.video[:, None])}
        return sketch | {"frame": units(*self._frames(videos))}

    def list_row_tensors(self) -> TensorNames:
        """Return the names of the tensors of clips and frames."""
        c = self.config
        rows = {"clip": ("clips",), "frame": ("frames", "frame_mask")}
        if self.frame_pooling is not None or "frame" in c.provided:
            rows.pop("frame")
        return {branch: names for branch, names in rows.items() if self.branch_weight(branch) >= 0}

    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE and triplet loss of both branches (Eq. 11-12; Eq. 19-21)."""
        cosine = self.branch_sims(step.queries, step.videos)
        dot = self.branch_sims(step.queries, step.videos, "dot")
        terms: dict[str, Tensor] = {}
        for branch in cosine:
            terms |= self.branch_losses(branch, cosine[branch].value, dot[branch].value, step)
        return terms

    def branch_losses(
        self, branch: str, cosine: Float[Tensor, "Q V"], dot: Float[Tensor, "Q V"], step: TrainingStep
    ) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE and triplet loss of one branch."""
        c = self.config
        index = step.batch.video_index
        return branch_terms(
            branch, cosine, dot, index, margin=c.margin, draws=step.draws, triplet=c.triplet, contrast=c.nce
        )

    def branch_sims(
        self, queries: EncodedQueries, videos: EncodedVideos, similarity: Similarity = "cosine"
    ) -> dict[str, Score]:
        """Return the scores of the method's branches by cosine, or by dot product for InfoNCE."""
        c = self.config
        sentence = queries.sentence
        videos = TwoBranchVideos.of(videos)
        sims = {"clip": max_sim(sentence, videos.clips, similarity=similarity)}
        if "frame" in c.provided:
            return sims
        if videos.video is not None:
            return sims | {"frame": vector_sim(sentence, videos.video, similarity=similarity)}
        frames, mask, floor = self._frames(videos)
        return sims | {"frame": max_sim(sentence, frames, mask, similarity=similarity, zero_floor=floor)}

    def _frames(
        self, videos: EncodedVideos
    ) -> tuple[Float[Tensor, "V T D"], Bool[Tensor, "V T"], Bool[Tensor, " V"] | None]:
        """Return the frames, the mask of real frames, and a mask of videos whose score cannot be negative."""
        frames, mask = frames_of(videos)
        return frames, mask, zero_floor(num_frames_of(videos), self.config.max_frames, self.config.padding_scores)
