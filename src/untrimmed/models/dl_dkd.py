"""DL-DKD, dual learning with dynamic knowledge distillation (ICCV 2023): only one of two branches learns from CLIP.

Released code: HuiGuanLab/DL-DKD, which has two git branches. `version: conference` selects the branch that is named
after the conference. `version: later` selects the default branch (DL-DKD++). We follow the release:

- In the conference version, the exploration branch reads words through the input layer of the inheritance branch. The
  exploration branch's own input layer in checkpoints is never used, so our model does not have it.
- The divergence from the teacher is summed over queries.
- Frames pass through one more linear map after their tower.
- No branch has clips.
- The later version trains with soft labels (`labels: soft`), and has other learning rates and dropout. It also
  resamples each video, so that student and teacher have the same number of frames (`features: {teacher: later}`).
- Both versions sort the videos of a batch by their number of captions. This order determines which queries and videos
  get soft labels.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.losses.branch import branch_terms
from untrimmed.losses.distillation import distillation, own_frame_cosines
from untrimmed.losses.soft_nce import soft_nce
from untrimmed.models import released
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.dl_dkd_decay import Decay, ShareDecay, distillation_decay, share_decay
from untrimmed.models.registry import register
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import TransformerLayer
from untrimmed.nn.tower import InputLayer, Positions, Tower, require_fit
from untrimmed.scores.max_sim import Branches, Similarity, TensorNames, max_sim, units
from untrimmed.scores.score import Score, Scores

BRANCHES = ("inheritance", "exploration")


@dataclass(frozen=True, kw_only=True)
class DLDKDQueries(EncodedQueries):
    """Query vectors. `sentence` belongs to the inheritance branch. A model with one branch has no `exploration`."""

    exploration: Float[Tensor, "Q E"] | None = None


@dataclass(frozen=True, kw_only=True)
class DLDKDVideos(EncodedVideos):
    """Frame vectors. `frames` belong to the inheritance branch. Both branches use the same mask."""

    frames: Float[Tensor, "V T D"]
    frame_mask: Bool[Tensor, "V T"]
    exploration_frames: Float[Tensor, "V T E"] | None = None


class Teacher(NamedTuple):
    """The vectors of a teacher for a batch. The frames have the same mask as the student's frames."""

    sentence: Float[Tensor, "Q S"]
    frames: Float[Tensor, "V T S"]


class StudentBranch(nn.Module):
    """Encodes each query and each frame as one vector, with attention layers that have no feed-forward part."""

    def __init__(self, config: ModelConfig, dim: int, *, own_query_input: bool):
        super().__init__()
        c = config
        self.query_input = InputLayer(c.query_dim, dim, c.input_dropout) if own_query_input else None
        self.query_positions = Positions(c.max_words, dim, c.input_dropout)
        self.query_layer = TransformerLayer(dim, c.num_heads, c.dropout, output_map=True, skip_padding="training")
        self.query_pooling = AttentionPooling(dim)
        frame_layer = TransformerLayer(dim, c.num_heads, c.dropout, output_map=True, skip_padding="training")
        self.frame_tower = Tower(c.video_dim, dim, c.max_frames, c.input_dropout, frame_layer, skip_padding="training")
        self.frame_map = nn.Linear(dim, dim)

    def sentences(self, words: Float[Tensor, "Q W D"], mask: Bool[Tensor, "Q W"]) -> Float[Tensor, "Q D"]:
        """Return a sentence vector for each query. `words` are the output of an input layer."""
        return self.query_pooling(self.query_layer(self.query_positions(words), mask), mask)

    def frames(self, frames: Float[Tensor, "V T C"], mask: Bool[Tensor, "V T"]) -> Float[Tensor, "V T D"]:
        """Return frame vectors. Rows of padding have arbitrary values."""
        return self.frame_map(self.frame_tower(frames, mask))


@register("dl_dkd")
class DLDKD(RetrievalModel):
    """Two branches over frames and words.

    Each branch scores a video by the best frame. One branch learns from a teacher.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Settings of the method. Fields after `margin` affect only training.

        `dim` is the width of the inheritance branch.

        A hard label is 1 for the query's video and 0 for all other videos. With soft labels, the share `hard_share` of
        a batch keeps hard labels. Every other label is `label_share` * hard label + (1 - `label_share`) * a softmax of
        guiding scores. Both shares decrease during training.
        """

        version: Literal["conference", "later"] = "conference"
        two_branches: bool = True
        exploration_dim: int | None = None  # default: `dim`
        inheritance_weight: float = 0.7
        exploration_weight: float = 0.3
        margin: float = 0.1
        temperature: float = 0.2  # divides cosines before the softmax over frames
        distillation_decay: Decay = "exponential"
        labels: Literal["hard", "soft"] = "hard"
        share_decay: ShareDecay = "sigmoid"
        # `hard_share` and `label_share` in the first epoch
        hard_share: float = 0.8
        label_share: float = 0.8
        share_epochs: int = 120  # epochs of the linear and the cosine decay

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.version == "conference" and self.exploration_dim not in (None, self.dim):
                raise ConfigError(
                    f"exploration_dim is {self.exploration_dim} and dim {self.dim}: the branches of the conference "
                    "version share an input layer; make both equal, or set version to 'later'"
                )
            if (self.exploration_dim or self.dim) % self.num_heads:
                raise ConfigError(
                    f"exploration_dim {self.exploration_dim} is not divisible by num_heads {self.num_heads}"
                )
            for name in ("hard_share", "label_share"):
                if not 0 <= getattr(self, name) <= 1:
                    raise ConfigError(f"{name} is {getattr(self, name)}, expected a share between 0 and 1")
            if self.temperature <= 0 or self.share_epochs < 1:
                raise ConfigError(
                    f"temperature is {self.temperature} and share_epochs {self.share_epochs}, expected both above 0"
                )

        @property
        def absent_terms(self) -> frozenset[str]:
            """The loss terms that these settings turn off, such as those of a missing exploration branch."""
            absent = frozenset[str]() if self.two_branches else frozenset({"exploration_nce", "exploration_triplet"})
            return super().absent_terms | absent

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.inheritance = StudentBranch(c, c.dim, own_query_input=True)
        own_input = c.version == "later"
        self.exploration = (
            StudentBranch(c, c.exploration_dim or c.dim, own_query_input=own_input) if c.two_branches else None
        )

    def compute_query_vectors(self, queries: QueryBatch) -> DLDKDQueries:
        """Return one pooled vector for each query and branch."""
        c = self.config
        words = queries.words
        mask = queries.mask
        require_fit(words, c.query_dim, c.max_words)
        # in evaluation, rows of padding are also computed, because golden cases compare them
        real = mask if self.training else None
        first = self.inheritance.query_input
        assert first is not None
        sentence = self.inheritance.sentences(first(words, real), mask)
        if self.exploration is None:
            return DLDKDQueries(sentence=sentence)
        # a shared layer is called once for each branch, with different dropout
        second = first if self.exploration.query_input is None else self.exploration.query_input
        return DLDKDQueries(sentence=sentence, exploration=self.exploration.sentences(second(words, real), mask))

    def compute_video_vectors(self, videos: VideoBatch) -> DLDKDVideos:
        """Return the frames of both branches."""
        frames = videos.frames
        mask = videos.frame_mask
        return DLDKDVideos(
            frames=self.inheritance.frames(frames, mask),
            frame_mask=mask,
            exploration_frames=None if self.exploration is None else self.exploration.frames(frames, mask),
        )

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of the best frame in each branch. By default, the inheritance branch has more weight."""
        c = self.config
        if self.exploration is None:
            return Scores(self.branch_sims(queries, videos), {"inheritance": 1.0})
        weights = {"inheritance": c.inheritance_weight, "exploration": c.exploration_weight}
        return Scores(self.branch_sims(queries, videos), weights)

    def branch_sims(
        self, queries: EncodedQueries, videos: EncodedVideos, similarity: Similarity = "cosine"
    ) -> dict[str, Score]:
        """Return the scores of each branch by cosine, or by dot product for InfoNCE."""
        queries = DLDKDQueries.of(queries)
        videos = DLDKDVideos.of(videos)
        mask = videos.frame_mask
        query = queries.exploration
        frames = videos.exploration_frames
        sims = {"inheritance": max_sim(queries.sentence, videos.frames, mask, similarity=similarity)}
        if query is not None and frames is not None:
            sims["exploration"] = max_sim(query, frames, mask, similarity=similarity)
        return sims

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return the frames of each branch."""
        videos = DLDKDVideos.of(videos)
        frames = {"inheritance": videos.frames, "exploration": videos.exploration_frames}
        return {name: units(rows, videos.frame_mask) for name, rows in frames.items() if rows is not None}

    def list_row_tensors(self) -> TensorNames:
        """Return the names of each branch's frames and of their mask, which the branches share."""
        c = self.config
        inheritance = {"inheritance": ("frames", "frame_mask")}
        if self.exploration is None:
            return inheritance
        both = inheritance | {"exploration": ("exploration_frames",)}
        return both if min(c.inheritance_weight, c.exploration_weight) >= 0 else {}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the sentence of each branch."""
        c = self.config
        queries = DLDKDQueries.of(queries)
        sentence = F.normalize(queries.sentence, dim=-1)[:, None]
        if queries.exploration is None:
            return {"inheritance": sentence}
        exploration = F.normalize(queries.exploration, dim=-1)[:, None]
        return {"inheritance": c.inheritance_weight * sentence, "exploration": c.exploration_weight * exploration}

    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE and triplet loss of each branch, and the decayed distillation loss of the inheritance branch.

        Raises: FeatureError if the batch has no teacher features.
        """
        queries = step.queries
        videos = DLDKDVideos.of(step.videos)
        c = self.config
        index = step.batch.video_index
        mask = videos.frame_mask
        teacher = _teacher_of(step.batch)
        cosine = self.branch_sims(queries, videos)
        dot = self.branch_sims(queries, videos, "dot")
        guides = {name: score.value for name, score in dot.items()}
        if c.labels == "soft":
            guides["inheritance"] = max_sim(teacher.sentence, teacher.frames, mask, similarity="dot").value
        terms: dict[str, Tensor] = {}
        # the released conference version first draws random numbers for the exploration branch
        for name in sorted(cosine, reverse=c.version == "later"):
            score = dot[name].value
            terms |= branch_terms(name, cosine[name].value, score, index, margin=c.margin, draws=step.draws)
            if c.labels == "soft":
                hard, label = self.shares(step.epoch)
                terms[f"{name}_nce"] = soft_nce(score, guides[name], index, hard_share=hard, label_share=label)
        student = own_frame_cosines(queries.sentence, videos.frames, index)
        taught = own_frame_cosines(teacher.sentence, teacher.frames, index)
        divergence = distillation(student, taught, mask[index], temperature=c.temperature)
        return terms | {"distillation": self.distillation_factor(step.epoch) * divergence}

    def distillation_factor(self, epoch: int) -> float:
        """Return the factor of the distillation loss in an epoch.

        If the kind of decay is `rising_...`, the factor starts at 1 and increases, as in the authors' program.
        """
        kind = self.config.distillation_decay
        return distillation_decay(kind, epoch) + (1.0 if kind.startswith("rising_") else 0.0)

    def shares(self, epoch: int) -> tuple[float, float]:
        """Return the shares of hard data and of hard labels in an epoch.

        As in the authors' program, a share of hard labels that starts at 0.5 or above never falls below 0.5.
        """
        c = self.config
        hard = share_decay(c.share_decay, epoch, start=c.hard_share, floor=0.0, num_epochs=c.share_epochs)
        floor = 0.5 if c.label_share >= 0.5 else 0.0
        label = share_decay(c.share_decay, epoch, start=c.label_share, floor=floor, num_epochs=c.share_epochs)
        return hard, label

    def list_released_names(self) -> released.Names:
        """Return the parameter names in HuiGuanLab/DL-DKD's checkpoints of `version`, each with its tensor's `Slot`."""
        prefixes, frame, mapping = {
            "conference": (("B_", "A_"), "frame", "mapping_linear"),
            "later": (("", "exp_"), "visual", "out_mapping_linear"),
        }[self.config.version]
        names: released.Names = {}
        for ours, prefix in zip(BRANCHES[: 1 + self.config.two_branches], prefixes, strict=False):
            names |= released.positions(f"{ours}.query_positions", f"{prefix}query_pos_embed")
            query_input = released.input_layer(f"{ours}.query_input", f"{prefix}query_input_proj")
            if getattr(self, ours).query_input is None:
                query_input = dict.fromkeys(query_input, released.UNUSED)
            names |= query_input
            names |= released.attention_layer(f"{ours}.query_layer.layers", f"{prefix}query_encoder", block=0)
            names[f"{prefix}modular_vector_mapping.weight"] = released.Slot(f"{ours}.query_pooling.score.weight")
            tower = f"{ours}.frame_tower"
            names |= released.embedding(tower, f"{prefix}{frame}")
            names |= released.attention_layer(f"{tower}.blocks.0.layers", f"{prefix}{frame}_encoder", block=0)
            for part in ("weight", "bias"):
                names[f"{prefix}{mapping}.{part}"] = released.Slot(f"{ours}.frame_map.{part}")
        return names


def _teacher_of(batch: TrainingBatch) -> Teacher:
    sentence = batch.queries.teacher
    frames = batch.videos.teacher
    if sentence is None or frames is None:
        raise FeatureError(
            "dl_dkd learns from a teacher, but this batch has no teacher features; put the teacher's files beside the "
            "features and set features.teacher to conference or later (docs/data.md lists files and names)"
        )
    if frames.shape[:2] != batch.videos.frames.shape[:2]:
        raise FeatureError(
            f"dl_dkd: {frames.shape[1]} teacher frames per video but {batch.videos.frames.shape[1]} of the student; "
            "resample them to the same number with features.teacher"
        )
    return Teacher(sentence, frames)
