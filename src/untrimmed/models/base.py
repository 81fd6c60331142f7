"""The base class of all methods: encoders, scores and loss terms. CONTRIBUTING.md has a complete method.

A method implements hooks: `compute_query_vectors`, `compute_video_vectors`, `compute_scores` and `compute_losses`.
Callers use `encode_queries`, `encode_videos`, `score`, `timeline` and `forward`. These call the method's hook, then
each attachment (`models/attachment.py`: a loss, or a part with weights such as RAL). A constructor only creates
modules. Afterwards, `create_model` draws their weights (`draw_weights`) and builds the attachments. If a method needs
more fields than `EncodedQueries` or `EncodedVideos` have, define a subclass of these (frozen, keyword-only) in the
method's file, and convert with `MyVideos.of(videos)`. `to`, `select` and `cat` handle the new fields.

Optional hooks:

- `Score.best` gives the frame or clip of the best score. `compute_timeline` and `similarity` give moments and curves.
- `compute_sketch` and `compute_probe` give vectors with which an index finds candidates. `list_row_tensors` names the
  tensors of branches whose score depends only on their best row.
- `places` are branches of the score that an attachment may provide. A method with `places` leaves out the branches in
  `config.provided`, and has `branch_losses`, `branch_weight`, and a `text_tower` or `encode_words`.
- `training_defaults` has the weights of losses and other settings, for a method without a preset file.
- `draw_weights` sets initial weights that are not random.
- `watched_queries` and `watched_videos` give numbers whose means training logs for each epoch.
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
    # defaults in the form of a preset's sections: weights, train, features, ...
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    places: ClassVar[frozenset[str]] = frozenset()  # branches of the score that an attachment may provide
    attachments: nn.ModuleDict  # set by `create_model`, not by the constructor
    row_times: ClassVar[RowTimes] = "middle"  # which times the rows of a timeline have when windows pool them
    keeps_frames: ClassVar[bool] = True  # whether encoded videos can contain frames
    has_layers: ClassVar[bool] = False  # whether layers over clips and frames can read extra rows of an attachment

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.name = "+".join((type(self).name, *config.attached))

    def draw_weights(self) -> None:
        """Draw initial weights, once, after the constructor.

        By default, weights are distributed as in the released programs.
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

        Except with some released options, a video's vectors depend only on its own frames.
        """

    @abstractmethod
    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Score every query against every video, using only the branches that no attachment provides."""

    @abstractmethod
    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return the method's loss terms by name, unweighted, without those of attachments."""

    def compute_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """Return the frames by default, or the clips if there are no frames or an attachment scores the frames.

        A method whose frames are not in the space of its sentences overrides this.

        Raises: NoTimelineError for a method that encodes a video as one vector only.
        """
        if videos.frames is not None and "frame" not in self.config.provided:
            return videos.frames, videos.frame_mask
        if videos.clips is None:
            raise NoTimelineError(
                f"{self.name} encodes neither frames nor clips of a video, so it cannot find moments in it"
            )
        return videos.clips, None

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return the vectors of videos that `compute_scores` compares, by branch; see `candidate_score`.

        By default there are no branches. Every video of a library is then scored in full.
        """
        return {}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the vectors of queries to compare with `compute_sketch`, by branch and multiplied by weights."""
        return {}

    def list_row_tensors(self) -> TensorNames:
        """Return the names of tensors by branch, if the branch's score depends only on their best row.

        The branches are those of `compute_sketch`. A branch with a negative weight is left out: its score depends on
        its best row, but the probe, which contains the weight, would find its worst row.
        """
        return {}

    def list_released_names(self) -> Names:
        """Return the authors' names of the method's parameters, each with its tensor's `Slot`.

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
        """Score every query against every video with all branches. `fused` ranks the videos."""
        scores = self.compute_scores(EncodedQueries.of(queries), EncodedVideos.of(videos))
        for attachment in self.carried:
            added = attachment.score(self, queries, videos)
            scores = scores if added is None else scores.joined(added)
        return scores

    def sketch(self, videos: EncodedVideos) -> Branches:
        """Return videos as vectors for a nearest-neighbour index, of shape `V N D` by branch; see `candidate_score`."""
        return self.compute_sketch(videos) | {
            branch: rows for part in self.carried for branch, rows in part.sketch(self, videos).items()
        }

    def probe(self, queries: EncodedQueries) -> Branches:
        """Return queries as vectors to compare with `sketch`, multiplied by weights, of shape `Q M D` by branch."""
        return self.compute_probe(queries) | {
            branch: rows for part in self.carried for branch, rows in part.probe(self, queries).items()
        }

    @property
    def row_tensors(self) -> TensorNames:
        """The names of tensors by branch of `sketch`, if the branch's score depends only on their best row.

        The score of a video does not change if all other rows are removed and `num_frames` is still the original number
        of frames.
        """
        rows = dict(self.list_row_tensors())
        for part in self.carried:
            rows |= part.row_tensors(self)
        return rows

    def candidate_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Float[Tensor, "Q V"]:
        """Return an upper bound of each video's score, which finds candidates without computing all scores.

        The upper bound is the sum, over the vectors of `probe`, of each vector's best dot product with the branch's
        `sketch`. For most methods, it equals the score; the tests of all methods list these methods.

        Raises: ConfigError for a method without `compute_sketch`.
        """
        probe = self.probe(queries)
        sketch = self.sketch(videos)
        if not probe:
            raise ConfigError(f"{self.name} has no compute_sketch and compute_probe, so an index cannot search it")
        return torch.stack([max_sim_sum(rows, sketch[branch]) for branch, rows in probe.items()]).sum(dim=0)

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """Return the weight of each word, to show to users; None if no part of the model weights words."""
        candidates = (part.word_weights(queries) for part in self.carried)
        return next((weights for weights in candidates if weights is not None), None)

    def watched_queries(self, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """Return named numbers for each query. Training logs their means over the validation split in metrics.jsonl.

        By default these are the numbers of the attachments. A method can add its own.
        """
        return {name: values for part in self.carried for name, values in part.watched_queries(self, queries).items()}

    def watched_videos(self, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
        """Return named numbers for each video. Their names differ from those of `watched_queries`."""
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
        """Return all loss terms of a batch by name, unweighted: first the method's, then the attachments'."""
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
        """Return vectors of each video in the space of sentences, in temporal order at equal steps, and their mask.

        Raises: NoTimelineError for a method that encodes a video as one vector only.
        """
        for attachment in self.carried:
            replaced = attachment.timeline(videos)
            if replaced is not None:
                return replaced
        return self.compute_timeline(videos)

    def similarity(self, queries: EncodedQueries, units: Float[Tensor, "V N D"]) -> Float[Tensor, "Q V N"]:
        """Return the similarity of each query to each vector of a timeline or of its windows, by default the cosine.

        Higher is better. Moments and relevance curves use it. A method that does not compare by cosine overrides it.
        """
        return products(F.normalize(queries.sentence, dim=-1), F.normalize(units, dim=-1))

    def window_similarities(self, queries: EncodedQueries, videos: EncodedVideos) -> tuple[Proposals, Similarities]:
        """Return the windows of every video and their similarities.

        The default windows are JSG's, which need no training.
        """
        similarity = partial(self.similarity, queries)
        (units, mask) = self.timeline(videos)
        return JSG_WINDOWS, window_similarities(similarity, units, mask, JSG_WINDOWS, row_times=self.row_times)

    def locate_settings(self) -> LocateSettings:
        """Return the default numbers of moments and the default overlap."""
        return LocateSettings()

    def rank_moments(
        self,
        queries: EncodedQueries,
        videos: EncodedVideos,
        duration_s: Float[Tensor, " V"],
        settings: LocateSettings | None = None,
    ) -> RankedMoments:
        """Return each query's best windows of all videos.

        Overlaps are not suppressed, so rankings of several corpora can be merged.

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
        """Return the best moments of all videos for each query, in seconds, after suppression of overlaps.

        See `moments/localise.py`.
        """
        settings = settings or self.locate_settings()
        ranked = self.rank_moments(queries, videos, duration_s, settings)
        return suppress_ranked(ranked, max_overlap=settings.max_overlap, limit=settings.limit)

    def released_names(self) -> Names:
        """Return the authors' names of all parameters, with attachments, each with its tensor's `Slot`.

        Raises: CheckpointError for a method or composition without a released checkpoint.
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
