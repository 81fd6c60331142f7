"""What a method can carry: a loss, or a part with weights, encodings, scores and losses of its own.

CONTRIBUTING.md has a complete loss. It is switched on by its name, `create_model("ms_sl+my_loss")`, or by its settings,
`losses: {my_loss: {margin: 0.2}}` in a preset or `losses.my_loss.margin=0.2`; off by `losses.my_loss=null`; and weighed
by `weights: {my_loss: 0.1}`. As released, attached losses read a second pass of the query encoder with its own dropout
(`separate_pass: false`: the first). It is an `AttachedLoss`, or a `StepLoss` where it needs more than the encodings.

A part is an `Attachment` whose constructor takes `(config, model)`, registered like a method. It overrides the hooks
below that it needs. It is switched on by its name only; its settings are the section of that name among the model's:
`my_part.size=4`, in a preset `model: {my_part: {size: 4}}`. Constructor and hooks get the model that carries the part,
as a `Carrier`; the method has its initial weights then, so a part may copy its encoders. What a part encodes is a
`Record` of its own that the method's encodings keep: `encoded.attach(self.name, record)`, then
`MyRecord.of(encoded.attached[self.name])`.

Settings and weights that hold for a data set stand in `presets/attachments/<name>/<dataset>.yaml`; without such a file
they are given where the model is trained (`weights.my_loss=0.1`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.batches import (
    Encode,
    EncodedQueries,
    EncodedVideos,
    QueryBatch,
    Record,
    TrainingBatch,
    VideoBatch,
    clips_of,
    encode_here,
)
from untrimmed.losses.draws import Draws
from untrimmed.models.released import Names
from untrimmed.models.settings import AttachmentConfig, ModelConfig
from untrimmed.nn.init import initialise
from untrimmed.nn.tower import Tower
from untrimmed.scores.max_sim import Branches, TensorNames
from untrimmed.scores.score import Scores


@dataclass(frozen=True)
class TrainingStep:
    """What losses read: encodings, the batch they came from (teacher features, words, frames), and the epoch.

    Random numbers come from `draws` only; `encode` runs what a loss encodes beside them as the batch was encoded.
    """

    queries: EncodedQueries
    videos: EncodedVideos
    batch: TrainingBatch
    draws: Draws
    epoch: int = 0
    encode: Encode = encode_here


@runtime_checkable
class Carrier(Protocol):
    """What an attachment may use of the model that carries it."""

    name: str
    config: ModelConfig
    has_clips: ClassVar[bool] = False  # clips that meet sentences, and that an attachment may replace by others

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Queries as the method and its attachments see them."""

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Videos as the method and its attachments see them: what an index keeps."""

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video, by all branches; `fused` ranks them."""

    @property
    def text_tower(self) -> Tower | None:
        """The tower whose words attachments read, and whose form and positions they may use for one of their own.

        None by default, and for a method whose words need no tower.
        """
        return None

    def encode_words(self, queries: QueryBatch) -> Float[Tensor, "Q W D"]:
        """Contextual words, before they are pooled: by default those of the text tower."""
        if self.text_tower is None:
            raise NotImplementedError(f"{self.name} has no text_tower, so it needs encode_words")
        return self.text_tower(queries.words, queries.mask)

    def base_clips(self, videos: EncodedVideos) -> Float[Tensor, "V L D"]:
        """Clips that do not overlap, where the method `has_clips`: by default all."""
        return clips_of(videos)

    def branch_losses(
        self, branch: str, cosine: Float[Tensor, "Q V"], dot: Float[Tensor, "Q V"], step: TrainingStep
    ) -> dict[str, Float[Tensor, ""]]:
        """The method's retrieval objective for a branch that scores every query against every video.

        Attachments train the branches that they provide with it; every method with `places` has one.
        """
        raise NotImplementedError(f"{self.name} has places for branches, so it needs branch_losses")

    def branch_weight(self, branch: str) -> float:
        """What a branch weighs in the fused score, be it the method's own or provided by an attachment.

        Every method with `places` has one.
        """
        raise NotImplementedError(f"{self.name} has places for branches, so it needs branch_weight")


@dataclass(frozen=True)
class Beside:
    """Rows that layers over clips and those over frames read beside them, and what is to be kept of them by name."""

    clips: Float[Tensor, "V R D"] | None = None
    frames: Float[Tensor, "V R D"] | None = None
    kept: Mapping[str, Record] = field(default_factory=dict)


class Attachment(nn.Module):
    """What a model carries and calls at the places below; by default it does nothing there."""

    name: ClassVar[str]  # set by `register`
    Config: ClassVar[type[AttachmentConfig]] = AttachmentConfig
    reads_clips: ClassVar[bool] = False  # only for methods whose clips meet sentences
    reads_frames: ClassVar[bool] = False  # only for methods that keep frames
    joins_layers: ClassVar[bool] = False  # only for methods whose layers can read rows beside those of a video
    draws_maps: ClassVar[bool] = False  # draw all linear maps again, copies too, as the released programs do
    second_pass: ClassVar[bool] = False  # whether losses read the second pass of the queries, where there is one
    released_on: ClassVar[frozenset[str]] = frozenset()  # methods on which its authors released it

    def __init__(self, config: AttachmentConfig, model: Carrier):
        super().__init__()
        self.config = config

    def draw_weights(self, model: Carrier) -> None:
        """Draw initial weights, once, after the constructors of all; by default as `draws_maps` says."""
        if self.draws_maps:
            initialise(self, model.config.init_std)

    def encode_queries(self, model: Carrier, queries: QueryBatch, encoded: EncodedQueries) -> EncodedQueries:
        """The encoded queries with what the attachment adds to them."""
        return encoded

    def encode_videos(self, model: Carrier, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """The encoded videos with what the attachment adds to them."""
        return encoded

    def beside(self, model: Carrier, clips: Float[Tensor, "V L D"]) -> Beside:
        """What the model's layers read beside a video's own rows, made of its embedded clips; for `joins_layers`."""
        return Beside()

    def score(self, model: Carrier, queries: EncodedQueries, videos: EncodedVideos) -> Scores | None:
        """The branches that the attachment provides, and their weights in the fused score."""
        return None

    def sketch(self, model: Carrier, videos: EncodedVideos) -> Branches:
        """The vectors of videos that its branches compare, by branch."""
        return {}

    def row_tensors(self, model: Carrier) -> TensorNames:
        """Its part of `RetrievalModel.row_tensors`; the method itself then scores nothing with these tensors."""
        return {}

    def probe(self, model: Carrier, queries: EncodedQueries) -> Branches:
        """What its branches look for among them, with their weights."""
        return {}

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """How much each row of words counts, as the attachment has learned; None where it weighs none."""
        return None

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """The attachment's loss terms by name, unweighted."""
        return {}

    def watched_queries(self, model: Carrier, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """A number for each query under each name that training is to follow over its epochs."""
        return {}

    def watched_videos(self, model: Carrier, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
        """The same of videos, under other names."""
        return {}

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None] | None:
        """What stands for the method's timeline where the attachment changes what that would read, else None."""
        return None

    def released_names(self, prefix: str) -> Names:
        """The authors' names of the attachment's parameters; ours begin with `prefix`."""
        return {}


class StepLoss(Attachment, ABC):
    """A loss of one term, named as the loss is, on all that a step knows: the scores of the model, the epoch."""

    second_pass: ClassVar[bool] = True

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """The one term."""
        return {self.name: self.step_term(model, step)}

    @abstractmethod
    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """The unweighted term of one step."""


class AttachedLoss(StepLoss):
    """A loss on encodings alone."""

    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """The unweighted term of the step's batch."""
        return self.term(step.queries, step.videos, step.batch.video_index)

    @abstractmethod
    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
