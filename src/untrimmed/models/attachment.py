"""What a method can carry: a loss, or a part with weights, encodings, scores and losses of its own.

CONTRIBUTING.md has a complete loss. It is switched on by its name, `create_model("ms_sl+my_loss")`, or by its settings,
`losses: {my_loss: {margin: 0.2}}` in a preset or `losses.my_loss.margin=0.2`; off by `losses.my_loss=null`; and weighed
by `weights: {my_loss: 0.1}`. As released, attached losses read a second pass of the query encoder with its own dropout
(`separate_pass: false`: the first). It is an `AttachedLoss`, or a `StepLoss` where it needs more than the encodings.

A part is an `Attachment` whose constructor takes `(config, model)`, registered like a method. It overrides the hooks
below that it needs: `encode_queries`, `encode_videos`, `beside`, `score`, `sketch`, `probe` and `rows`, `word_weights`,
`losses`, `timeline`, `watched_queries` and `watched_videos`. It is switched on by its name only; its settings are the
section of that name among the model's: `my_part.size=4`, in a preset `model: {my_part: {size: 4}}`. Each hook gets the
model that carries the part, so that it can use the model's encoders (again), its retrieval objective (`branch_losses`)
and its sizes. What a part encodes is a `Record` of its own that the method's encodings keep: `encoded.attach(self.name,
record)`, then `MyRecord.of(encoded.attached[self.name])`.

Settings and weights that hold for a data set stand in `presets/attachments/<name>/<dataset>.yaml`; without such a file
they are given where the model is trained (`weights.my_loss=0.1`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

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
    encode_here,
)
from untrimmed.config import Checked
from untrimmed.losses.draws import Draws
from untrimmed.models.released import Names
from untrimmed.scores.max_sim import Branches, TensorNames
from untrimmed.scores.score import Scores

if TYPE_CHECKING:
    from untrimmed.models.base import RetrievalModel


@dataclass(frozen=True, kw_only=True)
class AttachmentConfig(metaclass=Checked):
    """The settings of an attachment, all with defaults, and what follows from them for the method that carries it."""

    @property
    def provides(self) -> frozenset[str]:
        """Branches of the score that the attachment computes in place of the method."""
        return frozenset()

    @property
    def reads_frames(self) -> bool:
        """Whether encoded videos must hold frames even if the method's own score does not read them."""
        return False

    @property
    def absent_terms(self) -> frozenset[str]:
        """Those of the attachment's loss terms that these settings leave out."""
        return frozenset()

    @property
    def first_epoch(self) -> int:
        """The epoch, counted from 0, before which all its loss terms are 0."""
        return 0


@dataclass(frozen=True)
class Step:
    """What losses read: encodings, the batch they came from (teacher features, words, frames), and the epoch.

    Random numbers come from `draws` only; `encode` runs what a loss encodes beside them as the batch was encoded.
    """

    queries: EncodedQueries
    videos: EncodedVideos
    batch: TrainingBatch
    draws: Draws
    epoch: int = 0
    encode: Encode = encode_here


@dataclass(frozen=True)
class Beside:
    """Rows that layers over clips and those over frames read beside them, and what is to be kept of them by name."""

    clips: Float[Tensor, "V R D"] | None = None
    frames: Float[Tensor, "V R D"] | None = None
    kept: Mapping[str, Record] = field(default_factory=dict)


Losses = Mapping[str, AttachmentConfig | None]  # settings of attached losses by name; None: off


class Attachment(nn.Module):
    """What a model carries and calls at the places below; by default it does nothing there."""

    name: ClassVar[str]  # set by `register`
    Config: ClassVar[type[AttachmentConfig]] = AttachmentConfig
    replaces_clips: ClassVar[bool] = False  # only for methods whose clips meet sentences and may be any vectors
    reads_clips: ClassVar[bool] = False  # only for methods whose clips meet sentences
    reads_frames: ClassVar[bool] = False  # only for methods that keep frames
    joins_layers: ClassVar[bool] = False  # only for methods whose layers can read rows beside those of a video
    second_pass: ClassVar[bool] = False  # whether losses read the second pass of the queries, where there is one
    released_on: ClassVar[frozenset[str]] = frozenset()  # methods on which its authors released it

    def __init__(self, config: AttachmentConfig, model: RetrievalModel):
        super().__init__()
        self.config = config

    def encode_queries(self, model: RetrievalModel, queries: QueryBatch, encoded: EncodedQueries) -> EncodedQueries:
        """The encoded queries with what the attachment adds to them."""
        return encoded

    def encode_videos(self, model: RetrievalModel, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """The encoded videos with what the attachment adds to them."""
        return encoded

    def beside(self, model: RetrievalModel, clips: Float[Tensor, "V L D"]) -> Beside:
        """What the model's layers read beside a video's own rows, made of its embedded clips; for `joins_layers`."""
        return Beside()

    def score(self, model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos) -> Scores | None:
        """The branches that the attachment provides, and their weights in the fused score."""
        return None

    def sketch(self, model: RetrievalModel, videos: EncodedVideos) -> Branches:
        """The vectors of videos that its branches compare, by branch."""
        return {}

    def rows(self, model: RetrievalModel) -> TensorNames:
        """Its branches of `RetrievalModel.rows_of_branches`, of whose tensors the method itself scores nothing then."""
        return {}

    def probe(self, model: RetrievalModel, queries: EncodedQueries) -> Branches:
        """What its branches look for among them, with their weights."""
        return {}

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """How much each row of words counts, as the attachment has learned; None where it weighs none."""
        return None

    def losses(self, model: RetrievalModel, step: Step) -> dict[str, Float[Tensor, ""]]:
        """The attachment's loss terms by name, unweighted."""
        return {}

    def watched_queries(self, model: RetrievalModel, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """A number for each query under each name that training is to follow over its epochs."""
        return {}

    def watched_videos(self, model: RetrievalModel, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
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

    def losses(self, model: RetrievalModel, step: Step) -> dict[str, Float[Tensor, ""]]:
        """The one term."""
        return {self.name: self.step_term(model, step)}

    @abstractmethod
    def step_term(self, model: RetrievalModel, step: Step) -> Float[Tensor, ""]:
        """The unweighted term of one step."""


class AttachedLoss(StepLoss):
    """A loss on encodings alone."""

    def step_term(self, model: RetrievalModel, step: Step) -> Float[Tensor, ""]:
        """The unweighted term of the step's batch."""
        return self.term(step.queries, step.videos, step.batch.video_index)

    @abstractmethod
    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """The unweighted term of one batch."""
