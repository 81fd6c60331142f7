"""The base class of all methods: encoders, scores and loss terms. CONTRIBUTING.md has a complete method.

A method implements four hooks: `compute_query_vectors`, `compute_video_vectors`, `compute_scores` and `compute_losses`.
Callers use `encode_queries`, `encode_videos`, `score`, `timeline` and `forward`. These functions call the hook of the
method and then each attachment (`models/attachment.py`: a loss, or a part with weights such as RAL).

The constructor of a method only creates modules. Then `create_model` draws their initial weights (`draw_weights`) and
builds the attachments.

If a method needs fields that `EncodedQueries` or `EncodedVideos` do not have, define a frozen, keyword-only subclass in
the file of the method. Convert encodings to the subclass with `MyVideos.of(videos)`. `to`, `select` and `cat` handle
the new fields.

Optional hooks:

- `compute_timeline` and `similarity` are used to find moments and to draw relevance curves.
- `compute_sketch` and `compute_probe` return vectors with which an index finds candidates. If the score of a branch
  depends only on the best row of a video, `list_row_tensors` names the tensors that contain this row.
- `places` lists the branches of the score that an attachment may replace. A method with `places` does not compute the
  branches in `config.provided`. Such a method implements `branch_losses`, `branch_weight`, and `text_tower` or
  `encode_words`.
- `training_defaults` contains the loss weights and other settings of a method without a preset file.
- `draw_weights` sets special initial weights, for example an identity matrix.
- `watched_queries` and `watched_videos` return numbers per query or video. Training logs the means of these numbers in
  each epoch.
- `list_released_names` translates the authors' parameter names.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import (
    Encode,
    EncodedQueries,
    EncodedVideos,
    QueryBatch,
    TrainingBatch,
    VideoBatch,
    encode_here,
)
from untrimmed.errors import CheckpointError, ConfigError, NoTimelineError
from untrimmed.losses.draws import Draws
from untrimmed.models.attachment import Attachment, Carrier, StepLoss, TrainingStep
from untrimmed.models.released import Names
from untrimmed.models.settings import ModelConfig
from untrimmed.moments.gaussian_proposals import JSG_WINDOWS, Proposals, RowTimes
from untrimmed.moments.localise import LocateSettings, Similarities, rank_windows, window_similarities
from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked
from untrimmed.nn.init import initialise
from untrimmed.scores.max_sim import Branches, TensorNames, max_sim_sum, products
from untrimmed.scores.score import Scores


class RetrievalModel(nn.Module, Carrier):
    """A method with its attachments. It encodes videos and queries separately and scores their encodings."""

    name: str  # on the class, the method's name (set by `register`); on a model, METHOD+ATTACHMENT+...
    Config: ClassVar[type[ModelConfig]]
    # default settings, in the same sections as a preset: weights, train, features, ...
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    places: ClassVar[frozenset[str]] = frozenset()  # branches of the score that an attachment may replace
    attachments: nn.ModuleDict  # set by `create_model`, not by the constructor
    row_times: ClassVar[RowTimes] = "middle"  # the time of each row of the timeline, see `RowTimes`
    keeps_frames: ClassVar[bool] = True  # whether encoded videos can contain frames
    has_layers: ClassVar[bool] = False  # whether an attachment can add rows to the layers over clips and frames

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.name = "+".join((type(self).name, *config.attached))

    def draw_weights(self) -> None:
        """Draw initial weights, in place. This is called once, after the constructor.

        By default, weights have the same distribution as in the released programs.
        """
        initialise(self, self.config.init_std)

    @property
    def carried(self) -> list[Attachment]:
        """The attachments in the order in which they are called."""
        if "attachments" not in self._modules:
            raise ConfigError(f"{self.name} was created by its constructor; use create_model or build_model")
        return [attachment for attachment in self.attachments.values() if isinstance(attachment, Attachment)]

    @abstractmethod
    def compute_query_vectors(self, queries: QueryBatch) -> EncodedQueries:
        """Return the vectors of queries. Each query's vectors depend only on its words."""

    @abstractmethod
    def compute_video_vectors(self, videos: VideoBatch) -> EncodedVideos:
        """Return the vectors of videos.

        A video's vectors depend only on its own frames or, with some released options, on the whole batch.
        """

    @abstractmethod
    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of every query with every video, for the branches that no attachment replaces."""

    @abstractmethod
    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return the method's unweighted loss terms by name, without the terms of attachments."""

    def compute_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """Return the vectors and the mask of each video's timeline, in the space of the sentences.

        The default is the frames, or the clips if there are no frames or an attachment scores the frames. Override this
        hook if frames cannot be compared with sentences.

        Raises: NoTimelineError for a method that encodes a video as a single vector.
        """
        if videos.frames is not None and "frame" not in self.config.provided:
            return videos.frames, videos.frame_mask
        if videos.clips is None:
            raise NoTimelineError(
                f"{self.name} encodes neither frames nor clips of a video, so it cannot find moments in it"
            )
        return videos.clips, None

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return {branch: video vectors} that an index compares with `compute_probe` (see `candidate_score`).

        By default, there are no such vectors, and a search computes the full score of every video in a library.
        """
        return {}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return {branch: query vectors to compare with `compute_sketch`}, multiplied by the weight of the branch."""
        return {}

    def list_row_tensors(self) -> TensorNames:
        """Return {branch of `compute_sketch`: names of tensors of which only one row per video affects the score}.

        It must be the row whose `compute_sketch` vector has the largest dot product with the `compute_probe` vector.
        Leave out branches with a negative weight. The probe includes the weight, so with a negative weight the largest
        product would belong to the worst row.
        """
        return {}

    def list_released_names(self) -> Names:
        """Return the method's parameter names in the authors' checkpoints, each with the `Slot` of our tensor.

        Raises: CheckpointError for a method without a released checkpoint.
        """
        raise CheckpointError(f"{self.name}: no released checkpoint is known for this method")

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Encode queries with the method and its attachments."""
        encoded = self.compute_query_vectors(QueryBatch.of(queries))
        for attachment in self.carried:
            encoded = attachment.encode_queries(self, queries, encoded)
        return encoded

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Encode videos with the method and its attachments. An index stores the result."""
        encoded = self.compute_video_vectors(VideoBatch.of(videos))
        for attachment in self.carried:
            encoded = attachment.encode_videos(self, videos, encoded)
        return encoded

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of every query with every video, for all branches. Videos are ranked by `fused`."""
        scores = self.compute_scores(EncodedQueries.of(queries), EncodedVideos.of(videos))
        for attachment in self.carried:
            added = attachment.score(self, queries, videos)
            scores = scores if added is None else scores.joined(added)
        return scores

    def sketch(self, videos: EncodedVideos) -> Branches:
        """Return {branch: video vectors [V, N, D]} for a nearest-neighbour index (see `candidate_score`)."""
        return self.compute_sketch(videos) | {
            branch: rows for part in self.carried for branch, rows in part.sketch(self, videos).items()
        }

    def probe(self, queries: EncodedQueries) -> Branches:
        """Return {branch: query vectors [Q, M, D] to compare with `sketch`}, multiplied by the weight of the branch."""
        return self.compute_probe(queries) | {
            branch: rows for part in self.carried for branch, rows in part.probe(self, queries).items()
        }

    @property
    def row_tensors(self) -> TensorNames:
        """{branch of `sketch`: names of tensors of which only one row per video affects the score}.

        Removing all other rows of these tensors does not change the score if `num_frames` stays the same.
        """
        rows = dict(self.list_row_tensors())
        for part in self.carried:
            rows |= part.row_tensors(self)
        return rows

    def candidate_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Float[Tensor, "Q V"]:
        """Return an upper bound of each video's score, computed only from the vectors of `probe` and `sketch`.

        The bound is a sum over the vectors of `probe`. Each vector adds its largest dot product with a vector of the
        same branch in `sketch`. For most methods, the bound equals the score.

        Raises: ConfigError for a method without `compute_sketch`.
        """
        probe = self.probe(queries)
        sketch = self.sketch(videos)
        if not probe:
            raise ConfigError(f"{self.name} has no compute_sketch and compute_probe, so an index cannot search it")
        return torch.stack([max_sim_sum(rows, sketch[branch]) for branch, rows in probe.items()]).sum(dim=0)

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """Return the learned weight of each word, or None if the model does not weight words."""
        candidates = (part.word_weights(queries) for part in self.carried)
        return next((weights for weights in candidates if weights is not None), None)

    def watched_queries(self, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """Return named numbers for each query. Training logs their means over the validation split in metrics.jsonl.

        By default, only attachments return such numbers.
        """
        return {name: values for part in self.carried for name, values in part.watched_queries(self, queries).items()}

    def watched_videos(self, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
        """Return named numbers for each video. The names must differ from the names in `watched_queries`."""
        return {name: values for part in self.carried for name, values in part.watched_videos(self, videos).items()}

    def forward(
        self,
        batch: TrainingBatch,
        *,
        draws: Draws,
        epoch: int = 0,
        update: int = 0,
        is_rehearsal: bool = False,
        encode: Encode = encode_here,
    ) -> dict[str, Float[Tensor, ""]]:
        """Return all unweighted loss terms of a batch by name: first the method's, then the attachments' terms."""
        queries = encode(self.encode_queries, batch.queries)
        videos = encode(self.encode_videos, batch.videos)
        step = TrainingStep(queries, videos, batch, draws, epoch, encode, update, is_rehearsal)
        terms = self.compute_losses(step)
        second = None if self.training and self.config.separate_pass else step
        for attachment in self.carried:  # losses are the last entries of `carried`
            reads = step
            if attachment.second_pass:
                second = second or replace(step, queries=encode(self.encode_queries, batch.queries))
                reads = second
            terms |= attachment.losses(self, reads)
        return terms

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """Return each video's timeline and the mask of real rows.

        A timeline has one vector per time step. All steps have the same length. The vectors can be compared with the
        vectors of sentences.

        Raises: NoTimelineError for a method that encodes a video as a single vector.
        """
        for attachment in self.carried:
            replaced = attachment.timeline(videos)
            if replaced is not None:
                return replaced
        return self.compute_timeline(videos)

    def similarity(self, queries: EncodedQueries, units: Float[Tensor, "V N D"]) -> Float[Tensor, "Q V N"]:
        """Return the similarity (by default the cosine) of each query to each vector of a timeline or window.

        Moments and relevance curves are computed from these similarities. Higher is better.
        """
        return products(F.normalize(queries.sentence, dim=-1), F.normalize(units, dim=-1))

    def window_similarities(self, queries: EncodedQueries, videos: EncodedVideos) -> tuple[Proposals, Similarities]:
        """Return the windows that can become moments, and the similarity of each query to each window.

        The default windows are JSG's proposals, which need no training.
        """
        similarity = partial(self.similarity, queries)
        (units, mask) = self.timeline(videos)
        return JSG_WINDOWS, window_similarities(similarity, units, mask, JSG_WINDOWS, row_times=self.row_times)

    def locate_settings(self) -> LocateSettings:
        """Return the method's default settings for finding moments."""
        return LocateSettings()

    def rank_moments(
        self,
        queries: EncodedQueries,
        videos: EncodedVideos,
        duration_s: Float[Tensor, " V"],
        settings: LocateSettings | None = None,
    ) -> RankedMoments:
        """Return each query's best windows in all videos, including overlapping windows.

        Overlaps are not suppressed yet, so that the caller can first merge the rankings of several corpora.

        Raises: FeatureError for a video without a duration, NoTimelineError for a method without frames and clips.
        """
        settings = settings or self.locate_settings()
        proposals, similarities = self.window_similarities(queries, videos)
        video_score = settings.video_weight * self.score(queries, videos).fused if settings.video_weight else None
        return rank_windows(similarities, len(queries), proposals, duration_s, settings, video_score)

    def locate(
        self,
        queries: EncodedQueries,
        videos: EncodedVideos,
        duration_s: Float[Tensor, " V"],
        settings: LocateSettings | None = None,
    ) -> RankedMoments:
        """Return each query's best moments in all videos, in seconds.

        If moments overlap too much, only the best of them is kept.
        """
        settings = settings or self.locate_settings()
        ranked = self.rank_moments(queries, videos, duration_s, settings)
        return suppress_ranked(ranked, max_overlap=settings.max_overlap, limit=settings.limit)

    def released_names(self) -> Names:
        """Return all parameter names in the authors' checkpoints, each with the `Slot` of our tensor.

        Raises: CheckpointError if no checkpoint of the method with these attachments was released.
        """
        names = self.list_released_names()
        for attachment in self.carried:
            if isinstance(attachment, StepLoss):
                continue
            part = attachment.name
            if type(self).name not in attachment.released_on:
                released = ", ".join(f"{method}+{part}" for method in sorted(attachment.released_on)) or "none"
                raise CheckpointError(f"{self.name}: no released checkpoint is known; released with {part}: {released}")
            names |= attachment.released_names(f"attachments.{part}")
        return names
