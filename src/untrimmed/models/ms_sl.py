"""MS-SL, multi-scale similarity learning (ACM MM 2022): clips of every length, and frames pooled for the best clip.

Released code: HuiGuanLab/ms-sl. We follow the release:

- The transformer layers have no feed-forward part.
- In training, the frame branch computes a query x query matrix, in which column j belongs to the video of query j. If
  query i and query j have the same video, j is still a negative of i.
- The paper finds only videos. Our option `moments: clips` uses clips as moments, as the JSG paper does with MS-SL
  (Tables 1-2).
"""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.losses.branch import square_branch_terms
from untrimmed.models import released
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.registry import register
from untrimmed.models.two_branches import ClipFrameConfig, ClipFrameModel
from untrimmed.moments.gaussian_proposals import Proposals, sliding_proposals
from untrimmed.moments.localise import Similarities
from untrimmed.moments.proposals import proposals
from untrimmed.nn.blocks import NormOrder, TransformerLayer
from untrimmed.nn.tower import QueryTower, Tower
from untrimmed.scores.guided_attention import GuidedAttention
from untrimmed.scores.max_sim import Branches, max_sim, units
from untrimmed.scores.score import Scores, required_best


@dataclass(frozen=True, kw_only=True)
class MSSLVideos(EncodedVideos):
    """Video vectors. `clips` are all proposals."""

    clips: Float[Tensor, "V P D"]
    frames: Float[Tensor, "V T D"]
    frame_mask: Bool[Tensor, "V T"]


@register("ms_sl")
class MSSL(ClipFrameModel):
    """Three towers: for queries, clips and frames.

    A video is divided into 32 units. Every run of consecutive units is a proposal, which gives 528 proposals. The clip
    score is the score of the best proposal (the key clip). Frames are pooled by attention with the key clip as query.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ClipFrameConfig):
        """Settings of the method.

        - `norm`: `pre` normalises before each part of a layer, and `post` after its residual.
        - `moments`: `windows` finds moments among windows over the encoded units, as in other methods. `clips` uses the
          clips of the method as moments.
        """

        norm: NormOrder = "post"
        moments: Literal["windows", "clips"] = "windows"

        def __post_init__(self) -> None:
            super().__post_init__()
            replacing = [name for name, config in self.attachments.items() if config.replaces_clips]
            if self.moments == "clips" and replacing:
                raise ConfigError(
                    f"moments is 'clips', but {replacing[0]} replaces clips by vectors without spans; set windows"
                )

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.query_tower = QueryTower(self._tower(c.query_dim, c.max_words), c.dim)
        self.clip_tower = self._tower(c.video_dim, max(c.max_frames, c.num_clips))
        self.frame_tower = self._tower(c.video_dim, c.max_frames)
        self.guided_attention = None if "frame" in c.provided else GuidedAttention(c.dim)

    def _tower(self, in_dim: int, max_length: int) -> Tower:
        c = self.config
        layer = TransformerLayer(c.dim, c.num_heads, c.dropout, output_map=True, norm=c.norm, skip_padding="training")
        return Tower(in_dim, c.dim, max_length, c.input_dropout, layer, skip_padding="training")

    def compute_video_vectors(self, videos: VideoBatch) -> MSSLVideos:
        """Return all proposals (as `clips`) and all frames. The 32 units are encoded, then pooled into proposals."""
        return MSSLVideos(
            clips=proposals(self.clip_tower(videos.clips)),
            frames=self.frame_tower(videos.frames, videos.frame_mask),
            frame_mask=videos.frame_mask,
        )

    def compute_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """Return the encoded units, which are the proposals of length 1. Frames are not in the space of sentences."""
        return MSSLVideos.of(videos).clips[:, : self.config.num_clips], None

    def base_clips(self, videos: EncodedVideos) -> Float[Tensor, "V L D"]:
        """Return the encoded units, which do not overlap. If an attachment replaces the clips, return all clips."""
        clips = super().base_clips(videos)
        is_replaced = any(config.replaces_clips for config in self.config.attachments.values())
        return clips if is_replaced else clips[:, : self.config.num_clips]

    def window_similarities(self, queries: EncodedQueries, videos: EncodedVideos) -> tuple[Proposals, Similarities]:
        """Return the windows that can become moments, and the similarity of each query to each window.

        With `moments: clips`, the windows are the clips.
        """
        if self.config.moments == "windows":
            return super().window_similarities(queries, videos)
        clips = MSSLVideos.of(videos).clips
        # all runs of units in the order of the proposals: by length, then by first unit
        spans = sliding_proposals(self.config.num_clips, step=1, min_width=0.0, max_width=1.0)
        return spans, lambda part: self.similarity(queries, clips[part])

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of the best clip, and of the frames, pooled by attention with the best clip as query."""
        videos = MSSLVideos.of(videos)
        clip = max_sim(queries.sentence, videos.clips)
        sims = {"clip": clip}
        if self.guided_attention is not None:
            sims["frame"] = self.guided_attention.score(
                queries.sentence, videos.frames, videos.frame_mask, videos.clips, required_best(clip)
            )
        return Scores(sims, {branch: self.branch_weight(branch) for branch in sims})

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return one vector per clip: the weighted sum of the clip and of the frames pooled for this clip.

        The score is the dot product of the sentence and the vector of the key clip. The largest dot product is
        therefore an upper bound of the score.
        """
        videos = MSSLVideos.of(videos)
        sketch = self.branch_weight("clip") * units(videos.clips)
        if self.guided_attention is not None:
            seen = units(self.guided_attention(videos.frames, videos.frame_mask, videos.clips))
            sketch = sketch + self.branch_weight("frame") * seen
        return {"clip": sketch}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the sentence.

        The sentence is not multiplied by a weight, because the sketch includes the weights of the branches.
        """
        return {"clip": F.normalize(queries.sentence, dim=-1)[:, None]}

    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE (dot products) and triplet loss (cosines) of the clips and of the frames."""
        sentence = step.queries.sentence
        index = step.batch.video_index
        margin = self.config.margin
        videos = MSSLVideos.of(step.videos)
        clip = max_sim(sentence, videos.clips)
        cosine = clip.value
        dot = max_sim(sentence, videos.clips, similarity="dot").value
        clip_terms = self.branch_losses("clip", cosine, dot, step)
        if self.guided_attention is None:
            return clip_terms
        seen = self.positive_frames(videos, required_best(clip), index)
        frame_cosine = F.normalize(sentence, dim=-1) @ F.normalize(seen, dim=-1).T
        dot = sentence @ seen.T
        return clip_terms | square_branch_terms("frame", frame_cosine, dot, margin=margin, draws=step.draws)

    def positive_frames(
        self, videos: MSSLVideos, key_clip: Int[Tensor, "Q V"], video_index: Int[Tensor, " Q"]
    ) -> Float[Tensor, "Q D"]:
        """Return one vector per query: the frames of the query's video, pooled by attention with the key clip."""
        own_key = key_clip.gather(1, video_index[:, None])[:, 0]
        assert self.guided_attention is not None
        return self.guided_attention.of_positives(videos.frames, videos.frame_mask, videos.clips, own_key, video_index)

    def list_released_names(self) -> released.Names:
        """Return the parameter names in checkpoints of HuiGuanLab/ms-sl, each with its tensor's `Slot`."""
        names: released.Names = {}
        for tower, theirs in (("query_tower.tower", "query"), ("clip_tower", "clip"), ("frame_tower", "frame")):
            names |= released.embedding(tower, theirs)
            names |= released.attention_layer(f"{tower}.blocks.0.layers", f"{theirs}_encoder", block=0)
        return names | {
            "modular_vector_mapping.weight": released.Slot("query_tower.pooling.score.weight"),
            "mapping_linear.0.weight": released.Slot("guided_attention.key.weight"),
            "mapping_linear.1.weight": released.Slot("guided_attention.value.weight"),
        }
