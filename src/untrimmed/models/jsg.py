"""JSG, joint searching and grounding (ACM MM 2023): a coarse branch (glance) and a fine branch (gaze).

The glance scores proposals (candidate spans) of a down-sampled video. The gaze scores proposals of its frames. Released
code: CFM-MSG/Code_JSG, which has two programs with the same network. `variant` selects the program:

- `event`: a batch consists of captions, and losses compare each query with the video of every caption. The paper uses
  this program to find moments.
- `video`: losses of the glance compare each query with every video of the batch. The paper uses this program to find
  videos.

Both programs compute all loss terms, and the weights in the preset select terms. We follow the release, which differs
from the paper:

- Both branches use the same encoder without a feed-forward part (`shared_encoder: false`: one encoder for each branch).
- `video` also trains an attention branch of MS-SL, although no reported score uses this branch.
- For `event`, an epoch iterates over captions instead of videos, and event recall chooses the best epoch
  (`train.batch_of` and `train.select_by` of the presets).
- The released program for `video` calls a function that does not exist. We omit the call, because its result would be
  used only in loss terms with weight 0.

Settings for the paper's ablations:

- Table 5, w/o CBPG: `proposals: sliding` with `gaze_proposals: centered`, because the paper changes only the glance.
- Table 5, w/o GWP: `pooling: mean`. W/o GD: `glance_input: frames`.
- Table 5, w/o GZ: set the weights of `gaze_*` and `intra_*` to 0.
- GLC-sim, GZ-sim, Sum-sim: change the two score weights to rank videos, and `rank_moments_by` to rank moments.
- Table 6: set the weights of `glance_*`, `gaze_*` or `intra_*` to 0. Without `gaze_*`, also set
  `rank_moments_by: glance`, because the gaze is then untrained.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.losses.branch import SquareContrast, branch_terms, square_branch_terms
from untrimmed.losses.draws import Draws
from untrimmed.losses.intra_video import intra_video
from untrimmed.losses.nce import Contrast
from untrimmed.models import released
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.jsg_gaze import Gaze, look_closely
from untrimmed.models.registry import register
from untrimmed.moments.gaussian_proposals import (
    CenterGrid,
    Pooling,
    Proposals,
    SideNegatives,
    centered_proposals,
    pool,
    proposal_widths,
    sliding_proposals,
)
from untrimmed.moments.localise import LocateSettings, Similarities, window_similarities
from untrimmed.nn.blocks import TransformerLayer
from untrimmed.nn.down_sampling import DownSampling
from untrimmed.nn.tower import QueryTower, Tower
from untrimmed.scores.guided_attention import GuidedAttention
from untrimmed.scores.max_sim import Branches, max_sim, units
from untrimmed.scores.score import Score, Scores, required_best

GlanceInput = Literal["coarse", "clips", "frames"]


@dataclass(frozen=True, kw_only=True)
class JSGVideos(EncodedVideos):
    """Video vectors. `clips` are the down-sampled (coarse) rows for the glance, or None if the glance reads frames."""

    frames: Float[Tensor, "V T D"]
    frame_mask: Bool[Tensor, "V T"]

    @property
    def glance_rows(self) -> Float[Tensor, "V L D"]:
        """The rows that the glance reads."""
        return self.frames if self.clips is None else self.clips


@register("jsg")
class JSG(RetrievalModel):
    """One encoder for coarse rows and frames. Both are pooled over the same proposals."""

    row_times = "released"

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Settings of the method. If release and paper differ, the default follows the release.

        `frame_sampling: fixed` repeats rows until every video has `max_frames` rows. `frame_sampling: padded` pads all
        videos of a batch with zeros to the length of the longest video. The zeros are also pooled, as with the released
        option `not-fixed`. With `padded`, videos that are scored together must be encoded at the same length.
        """

        variant: Literal["event", "video"] = "event"
        proposals: Literal["centered", "sliding"] = "centered"
        # proposals of the gaze at inference; centered: w/o CBPG of the paper
        gaze_proposals: Literal["as_glance", "centered"] = "as_glance"
        num_centers: int = 32
        num_widths: int = 10
        min_width: float = 0.05
        max_width: float = 1.0
        centers: CenterGrid = "released"  # paper: the outer centres at 0 and 1 (Eq. 3)
        sliding_step: int = 1  # lengths of sliding windows are 1, 1 + step ... of `num_clips` units
        num_focus_widths: int = 8  # n_p^f of Eq. 9; the paper does not state its value
        pooling: Pooling = "gaussian"  # density: not normalised (Eq. 5); mean: w/o GWP
        glance_input: GlanceInput = "coarse"  # clips: `global_sample` off in the release; frames: w/o GD of the paper
        pool_size: int = 4
        pool_stride: int = 4
        conv_size: int = 4
        conv_stride: int = 1
        shared_encoder: bool = True  # paper: a separate encoder for each branch
        frame_sampling: Literal["fixed", "padded"] = "fixed"
        # paper: the window has the centre and the width of the rest of the video (Eq. 11)
        side_negatives: SideNegatives = "released"
        nce: SquareContrast = "released"  # per_direction: Eq. 7 with exponentials; paper: Eq. 7 with cosines
        margin: float = 0.2
        intra_margin: float = 0.2
        whole_margin: float = 0.1  # a constant of the release; Delta_3 is 0.2 in the paper
        glance_weight: float = 0.7
        gaze_weight: float = 0.3
        rank_moments_by: Literal["gaze", "glance", "sum"] = "gaze"
        moments_per_video: int = 10

        def __post_init__(self) -> None:
            super().__post_init__()
            counts = ("num_centers", "num_widths", "sliding_step", "num_focus_widths", "moments_per_video")
            for name in (*counts, "pool_size", "pool_stride", "conv_size", "conv_stride"):
                if getattr(self, name) < 1:
                    raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")
            if not 0 < self.min_width <= self.max_width <= 1:
                raise ConfigError(
                    f"min_width {self.min_width} and max_width {self.max_width}: expected shares of a video, "
                    "0 < min_width <= max_width <= 1"
                )

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.query_tower = QueryTower(Tower(c.query_dim, c.dim, c.max_words, c.input_dropout, self._layer()), c.dim)
        self.frame_embedding = Tower(c.video_dim, c.dim, c.max_frames, c.input_dropout)
        has_coarse = c.glance_input != "frames"
        self.coarse_embedding = Tower(c.video_dim, c.dim, self._coarse_rows(), c.input_dropout) if has_coarse else None
        self.down_sampling = (
            DownSampling(c.pool_size, c.pool_stride, c.conv_size, c.conv_stride) if c.glance_input == "coarse" else None
        )
        # the encoders of the glance and of the gaze, in this order, or a single shared encoder
        self.encoders = nn.ModuleList([self._layer() for _ in range(2 if has_coarse and not c.shared_encoder else 1)])
        self.guided_attention = GuidedAttention(c.dim)
        self.proposals = self._proposals(c.proposals)
        self.gaze_proposals = self._proposals(c.proposals if c.gaze_proposals == "as_glance" else c.gaze_proposals)

    def _layer(self) -> TransformerLayer:
        return TransformerLayer(self.config.dim, self.config.num_heads, self.config.dropout, output_map=True)

    def _coarse_rows(self) -> int:
        """Return the number of position embeddings for coarse rows.

        As in the authors' program, this is the number of frames, although there are fewer coarse rows.
        """
        c = self.config
        return max(c.max_frames, c.num_clips) if c.glance_input == "clips" else c.max_frames

    def _proposals(self, kind: Literal["centered", "sliding"]) -> Proposals:
        c = self.config
        if kind == "sliding":
            return sliding_proposals(c.num_clips, step=c.sliding_step, min_width=c.min_width, max_width=c.max_width)
        return centered_proposals(
            c.num_centers, c.num_widths, min_width=c.min_width, max_width=c.max_width, centers=c.centers
        )

    def compute_query_vectors(self, queries: QueryBatch) -> EncodedQueries:
        """Return one pooled vector for each query (Eq. 1)."""
        return EncodedQueries(sentence=self.query_tower(queries.words, queries.mask))

    def compute_video_vectors(self, videos: VideoBatch) -> JSGVideos:
        """Return coarse rows (as `clips`) and frames; with `glance_input: frames`, return only frames."""
        frames, mask = self._sampled(videos)
        fine = self.encoders[-1](self.frame_embedding(frames), mask)
        if self.coarse_embedding is None:
            return JSGVideos(frames=fine, frame_mask=mask)
        rows, row_mask = (videos.clips, None) if self.down_sampling is None else self.down_sampling(frames, mask)
        coarse = self.encoders[0](self.coarse_embedding(rows), row_mask)
        return JSGVideos(clips=coarse, frames=fine, frame_mask=mask)

    def _sampled(self, videos: VideoBatch) -> tuple[Float[Tensor, "V N C"], Bool[Tensor, "V N"]]:
        """Return the frames that the network reads. Videos are stretched to `max_frames` rows or padded with zeros."""
        frames = videos.frames
        mask = videos.frame_mask
        length = self.config.max_frames
        # do not cut a video with too many frames, so that the tower raises an error
        if self.config.frame_sampling == "padded" or frames.shape[1] > length:
            return frames.masked_fill(~mask[..., None], 0), mask
        num_real = mask.sum(dim=1, keepdim=True)
        # The release computes means of segments. A segment has at most one frame, so each mean is the frame at the
        # start of the segment.
        share = torch.arange(length, device=frames.device) / length
        index = torch.minimum((share * num_real).round().long(), num_real - 1)
        stretched = frames.gather(1, index[..., None].expand(-1, -1, frames.shape[2]))
        return stretched, torch.ones_like(index, dtype=torch.bool)

    def glance_pooled(self, videos: JSGVideos) -> Float[Tensor, "V P D"]:
        """Return one vector per proposal of the glance (Eq. 5).

        As in the authors' program, padding is pooled like any other row, both here and in `gaze_pooled`.
        """
        return pool(videos.glance_rows, self.proposals, self.config.pooling)

    def gaze_pooled(self, videos: JSGVideos) -> Float[Tensor, "V P D"]:
        """Return one vector per proposal of the gaze, for inference."""
        return pool(videos.frames, self.gaze_proposals, self.config.pooling)

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of the best proposal over coarse rows (glance, Eq. 6) and over frames (gaze, Eq. 12)."""
        videos = JSGVideos.of(videos)
        glance = max_sim(queries.sentence, self.glance_pooled(videos))
        gaze = max_sim(queries.sentence, self.gaze_pooled(videos))
        weights = {"glance": self.config.glance_weight, "gaze": self.config.gaze_weight}
        return Scores({"glance": glance, "gaze": gaze}, weights)

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return the proposals of each branch."""
        videos = JSGVideos.of(videos)
        return {"glance": units(self.glance_pooled(videos)), "gaze": units(self.gaze_pooled(videos))}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the sentence for each branch."""
        sentence = F.normalize(queries.sentence, dim=-1)[:, None]
        return {"glance": self.config.glance_weight * sentence, "gaze": self.config.gaze_weight * sentence}

    def attention_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Score:
        """Return the scores of coarse rows, pooled by attention with the best proposal as query.

        Rankings ignore these scores. As in the authors' program, this branch scores coarse rows, although the variant
        `video` trains the branch on frames.
        """
        videos = JSGVideos.of(videos)
        proposals = self.glance_pooled(videos)
        best = required_best(max_sim(queries.sentence, proposals))
        return self.guided_attention.score(queries.sentence, videos.glance_rows, None, proposals, best)

    def locate_settings(self) -> LocateSettings:
        """Return JSG's settings for finding moments. `per_video` is the setting `moments_per_video`."""
        return LocateSettings(per_video=self.config.moments_per_video)

    def window_similarities(self, queries: EncodedQueries, videos: EncodedVideos) -> tuple[Proposals, Similarities]:
        """Return the windows and similarities that rank moments. By default, they come from the gaze (section 3.5).

        With `rank_moments_by: sum`, both branches use the windows of the gaze. The result is the weighted sum of their
        similarities, with the weights of the video score.
        """
        c = self.config
        similarity = partial(self.similarity, queries)
        videos = JSGVideos.of(videos)
        windows = self.proposals if c.rank_moments_by == "glance" else self.gaze_proposals
        glance = window_similarities(similarity, videos.glance_rows, None, windows, c.pooling, self.row_times)
        gaze = window_similarities(similarity, videos.frames, None, windows, c.pooling, self.row_times)
        if c.rank_moments_by == "sum":
            return windows, lambda part: c.glance_weight * glance(part) + c.gaze_weight * gaze(part)
        return windows, glance if c.rank_moments_by == "glance" else gaze

    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE and triplet loss of glance, attention and gaze, and losses within videos (Eq. 7, 8 and 13)."""
        c = self.config
        index = step.batch.video_index
        draws = step.draws
        sentence = step.queries.sentence
        videos = JSGVideos.of(step.videos)
        proposals = self.glance_pooled(videos)
        glance = max_sim(sentence, proposals)
        dot = max_sim(sentence, proposals, similarity="dot").value
        own_best = required_best(glance).gather(1, index[:, None])[:, 0]
        if c.variant == "video":
            contrast: Contrast = "paper" if c.nce == "paper" else "released"
            terms = branch_terms("glance", glance.value, dot, index, margin=c.margin, draws=draws, contrast=contrast)
        else:
            terms = self._square_terms("glance", glance.value[:, index], dot[:, index], draws)
        attended = self.attended_positives(videos, proposals, own_best, index)
        cosine = F.normalize(sentence, dim=-1) @ F.normalize(attended, dim=-1).T
        terms |= self._square_terms("attention", cosine, sentence @ attended.T, draws)
        gaze = self.gaze(sentence, videos, own_best, index)
        terms |= self._square_terms("gaze", gaze.cosine.value, gaze.dot, draws)
        moment = gaze.cosine.value.diagonal()
        return terms | {
            "intra_left": intra_video(moment, gaze.left, margin=c.intra_margin),
            "intra_right": intra_video(moment, gaze.right, margin=c.intra_margin),
            "intra_whole": intra_video(moment, gaze.whole, margin=c.whole_margin),
        }

    def _square_terms(
        self, branch: str, cosine: Float[Tensor, "Q Q"], dot: Float[Tensor, "Q Q"], draws: Draws
    ) -> dict[str, Float[Tensor, ""]]:
        c = self.config
        return square_branch_terms(branch, cosine, dot, margin=c.margin, draws=draws, contrast=c.nce)

    def attended_positives(
        self,
        videos: JSGVideos,
        proposals: Float[Tensor, "V P D"],
        own_best: Int[Tensor, " Q"],
        video_index: Int[Tensor, " Q"],
    ) -> Float[Tensor, "Q D"]:
        """Return one vector per query: the rows of its video, pooled by attention with the best proposal as query.

        The rows are coarse rows, or frames in the variant `video`.
        """
        if self.config.variant == "event":
            return self.guided_attention.of_positives(videos.glance_rows, None, proposals, own_best, video_index)
        frames = videos.frames
        mask = videos.frame_mask
        return self.guided_attention.of_positives(frames, mask, proposals, own_best, video_index)

    def gaze(
        self,
        sentence: Float[Tensor, "Q D"],
        videos: JSGVideos,
        own_best: Int[Tensor, " Q"],
        video_index: Int[Tensor, " Q"],
    ) -> Gaze:
        """Return the gaze of each query at its video, with proposals around the centre of the best glance proposal.

        As in the authors' program, the gaze of the variant `video` does not train the query tower.
        """
        c = self.config
        frames = videos.frames[video_index]
        return look_closely(
            sentence.detach() if c.variant == "video" else sentence,
            frames,
            focus=self.proposals.center.to(frames.device)[own_best],
            widths=proposal_widths(c.num_focus_widths, min_width=c.min_width, max_width=c.max_width).to(frames.device),
            pooling=c.pooling,
            sides=c.side_negatives,
        )

    def list_released_names(self) -> released.Names:
        """Return the parameter names in checkpoints of CFM-MSG/Code_JSG, each with its tensor's `Slot`."""
        names = released.embedding("query_tower.tower", "query")
        names |= released.attention_layer("query_tower.tower.blocks.0.layers", "query_encoder", block=0)
        names |= released.attention_layer("encoders.0.layers", "clip_encoder", block=0)
        names |= released.attention_layer("encoders.1.layers", "frame_encoder", block=0)
        names |= released.input_layer("frame_embedding.input", "frame_input_proj")
        names |= released.positions("frame_embedding.positions", "frame_pos_embed")
        names |= released.input_layer("coarse_embedding.input", "clip_input_proj")
        names |= released.positions("coarse_embedding.positions", "clip_pos_embed")
        names |= {
            "modular_vector_mapping.weight": released.Slot("query_tower.pooling.score.weight"),
            "mapping_linear.0.weight": released.Slot("guided_attention.key.weight"),
            "mapping_linear.1.weight": released.Slot("guided_attention.value.weight"),
            "global_conv1d.conv_layer.weight": released.Slot("down_sampling.conv.weight"),
            "global_conv1d.conv_layer.bias": released.Slot("down_sampling.conv.bias"),
        }
        never_read = (
            "global_conv1d.out_proj.weight",
            "global_conv1d.out_proj.bias",
            "ml_head.mapping_linear.0.weight",
            "ml_head.mapping_linear.1.weight",
            "ml_head.modular_video_mapping.weight",
        )
        ours = self.state_dict().keys()  # with some settings, the model does not have all of these parts
        return dict.fromkeys(never_read, released.UNUSED) | {
            theirs: slot if slot.parameter in ours else released.UNUSED for theirs, slot in names.items()
        }
