"""Attachments extend any method. An attachment is a loss, or a part with its own weights, encodings, scores and losses.

A loss is an `AttachedLoss`, or a `StepLoss` if it needs more than the encodings. CONTRIBUTING.md has an example.

- Switch a loss on by name, `create_model("ms_sl+my_loss")`, or by its settings: `losses: {my_loss: {margin: 0.2}}` in a
  preset, or `losses.my_loss.margin=0.2`. `losses.my_loss=null` switches it off.
- `weights: {my_loss: 0.1}` sets the weight of a loss.
- As in the authors' programs, training encodes the queries a second time with different dropout, and attached losses
  read this second encoding. `separate_pass: false` avoids the second pass.

A part is an `Attachment` whose constructor takes `(config, model)`.

- Register the part like a method, and override the hooks that it needs. Switch it on by name.
- The settings of an attachment are a section of the model's settings: `my_part.size=4`, or in a preset
  `model: {my_part: {size: 4}}`.
- The constructor and the hooks get the model as a `Carrier`. The model already has its initial weights, so a part may
  copy the model's encoders.
- Store the part's encodings as a `Record` with `encoded.attach(self.name, record)`. Read them with
  `MyRecord.of(encoded.attached[self.name])`.

`presets/attachments/<name>/<dataset>.yaml` contains settings and weights for a data set. Without such a file, settings
and weights come from `training_defaults` of the class, or from options of `untrimmed train` (`weights.my_loss=0.1`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

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
    """The input of losses: the encodings of a batch, the batch, and the progress of training.

    - `batch` contains features, ids of videos and captions, and moments.
    - `draws`: losses must take random numbers only from here.
    - `encode`: losses must encode other videos or queries only with this function.
    - `epoch` and `update` (the number of finished weight updates) are counted from 0.
    - `is_rehearsal` is True in the check before training, whose losses are discarded. A loss that stores values of
      earlier steps must not store values of such a step.
    """

    queries: EncodedQueries
    videos: EncodedVideos
    batch: TrainingBatch
    draws: Draws
    epoch: int = 0
    encode: Encode = encode_here
    update: int = 0
    is_rehearsal: bool = False


@runtime_checkable
class Carrier(Protocol):
    """The members of a model that its attachments may use."""

    name: str
    config: ModelConfig
    # whether the model compares clips with sentences; an attachment may then replace the clips
    has_clips: ClassVar[bool] = False

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Encode queries with the method and its attachments."""

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Encode videos with the method and its attachments. An index stores the result."""

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Score every query against every video with all branches. `fused` ranks the videos."""

    @property
    def text_tower(self) -> Tower | None:
        """The text tower, or None if the method has none.

        Attachments read the encoded words, and may build a tower of the same form.
        """
        return None

    def encode_words(self, queries: QueryBatch) -> Float[Tensor, "Q W D"]:
        """Return the contextual word vectors before pooling, by default from the text tower."""
        if self.text_tower is None:
            raise NotImplementedError(f"{self.name} has no text_tower, so it needs encode_words")
        return self.text_tower(queries.words, queries.mask)

    def base_clips(self, videos: EncodedVideos) -> Float[Tensor, "V L D"]:
        """Return clips that do not overlap, by default all clips. Only for methods with `has_clips`."""
        return clips_of(videos)

    def branch_losses(
        self, branch: str, cosine: Float[Tensor, "Q V"], dot: Float[Tensor, "Q V"], step: TrainingStep
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the method's retrieval losses for the scores of one branch.

        Attachments call this method to train a branch that they provide. Every model with `places` implements it.
        """
        raise NotImplementedError(f"{self.name} has places for branches, so it needs branch_losses")

    def branch_weight(self, branch: str) -> float:
        """Return the weight of a branch in the fused score. The branch may belong to an attachment.

        Every model with `places` implements this method.
        """
        raise NotImplementedError(f"{self.name} has places for branches, so it needs branch_weight")


@dataclass(frozen=True)
class ExtraRows:
    """Extra rows for the layers over clips and over frames, and records to store with the encoded video."""

    clips: Float[Tensor, "V R D"] | None = None
    frames: Float[Tensor, "V R D"] | None = None
    records: Mapping[str, Record] = field(default_factory=dict)


class Attachment(nn.Module):
    """Base class of attachments. A model calls the hooks of its attachments. By default, the hooks change nothing."""

    name: ClassVar[str]  # set by `register`
    Config: ClassVar[type[AttachmentConfig]] = AttachmentConfig
    # default settings, in the same sections as a preset: {"weights": {"my_loss": 0.1}}
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    loss_hook: ClassVar[str] = "losses"  # the method that computes its loss, for messages
    reads_clips: ClassVar[bool] = False  # needs a method that compares clips with sentences
    reads_frames: ClassVar[bool] = False  # needs a method whose encoded videos can contain frames
    joins_layers: ClassVar[bool] = False  # needs a method whose layers can read extra rows
    # whether new initial weights are drawn for all linear maps, even for copied maps, as in the released programs
    draws_maps: ClassVar[bool] = False
    # whether losses read the queries of the second pass, if there is one
    second_pass: ClassVar[bool] = False
    released_on: ClassVar[frozenset[str]] = frozenset()  # methods with which the authors of the attachment combine it

    def __init__(self, config: AttachmentConfig, model: Carrier):
        super().__init__()
        self.config = config

    def draw_weights(self, model: Carrier) -> None:
        """Draw initial weights, in place. This is called once, after all constructors.

        By default, weights are drawn only if `draws_maps` is set.
        """
        if self.draws_maps:
            initialise(self, model.config.init_std)

    def encode_queries(self, model: Carrier, queries: QueryBatch, encoded: EncodedQueries) -> EncodedQueries:
        """Return the encoded queries with the attachment's additions."""
        return encoded

    def encode_videos(self, model: Carrier, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """Return the encoded videos with the attachment's additions."""
        return encoded

    def extra_rows(self, model: Carrier, clips: Float[Tensor, "V L D"]) -> ExtraRows:
        """Return extra rows for the model's layers, given embedded clips. Called only if `joins_layers` is set."""
        return ExtraRows()

    def score(self, model: Carrier, queries: EncodedQueries, videos: EncodedVideos) -> Scores | None:
        """Return the branches that the attachment provides, and their weights in the fused score."""
        return None

    def sketch(self, model: Carrier, videos: EncodedVideos) -> Branches:
        """Return {branch of the attachment: video vectors to compare with `probe`}."""
        return {}

    def row_tensors(self, model: Carrier) -> TensorNames:
        """Return {branch of `sketch`: names of tensors of which an index needs only the best row}.

        The retrieval method must not compute its own scores from these tensors.
        """
        return {}

    def probe(self, model: Carrier, queries: EncodedQueries) -> Branches:
        """Return {branch: query vectors to compare with `sketch`}. The vectors include the weight of the branch."""
        return {}

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """Return the learned weight of each word, or None if the attachment does not weight words."""
        return None

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return the unweighted loss terms of the attachment by name."""
        return {}

    def watched_queries(self, model: Carrier, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """Return named numbers for each query. Training logs their means after each epoch."""
        return {}

    def watched_videos(self, model: Carrier, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
        """Return named numbers for each video. The names must differ from the names in `watched_queries`."""
        return {}

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None] | None:
        """Return a timeline that replaces the method's timeline, or None to keep that timeline."""
        return None

    def released_names(self, prefix: str) -> Names:
        """Return {name in the authors' checkpoints: our tensor} for the parameters. Our names begin with `prefix`."""
        return {}


class StepLoss(Attachment, ABC):
    """A loss with one term, which has the name of the loss.

    The term may depend on the whole training step, for example on the epoch.
    """

    second_pass: ClassVar[bool] = True
    loss_hook: ClassVar[str] = "step_term"

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return {name of the loss: its term}."""
        return {self.name: self.step_term(model, step)}

    @abstractmethod
    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """Return the unweighted term of one step."""


class AttachedLoss(StepLoss):
    """A loss that reads only encodings."""

    loss_hook: ClassVar[str] = "term"

    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """Return the unweighted term of the step's batch."""
        return self.term(step.queries, step.videos, step.batch.video_index)

    @abstractmethod
    def term(self, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[Tensor, " Q"]) -> Float[Tensor, ""]:
        """Return the unweighted term of one batch."""
