"""The base class of all methods: encoders, scores and loss terms. CONTRIBUTING.md has a complete method.

A method implements hooks: `compute_query_vectors`, `compute_video_vectors`, `compute_scores` and `compute_losses`.
Callers use `encode_queries`, `encode_videos`, `score`, `timeline` and `forward`. These call the method's hook, then
each attachment (`models/attachment.py`: a loss, or a part with weights such as RAL). A constructor only creates
modules: `create_model` then draws their weights (`draw_weights`) and builds the attachments. A method that needs more
fields than `EncodedQueries` or `EncodedVideos` have defines a subclass (frozen, keyword-only) beside its own class and
converts with `MyVideos.of(videos)`. `to`, `select` and `cat` handle the new fields.

Optional hooks:

- `Score.best` gives the frame or clip of the best score. `compute_timeline` and `similarity` give moments and curves.
- `compute_sketch` and `compute_probe` give vectors with which an index finds candidates. `list_row_tensors` names the
  tensors of branches whose score depends only on their best row.
- `places` are branches of the score that an attachment may provide. The method then leaves out the branches in
  `config.provided`, and has `branch_losses`, `branch_weight`, and a `text_tower` or `encode_words`.
- `draw_weights` sets initial weights that are not random.
- `watched_queries` and `watched_videos` give numbers that training logs for each epoch.
- `list_released_names` translates the authors' parameter names.
"""

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import ClassVar

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
    """A method with what is attached to it: videos and queries are encoded apart and scored by their encodings."""

    name: str  # of the class, set by `register`: the method's; of a model: METHOD+ATTACHMENT+...
    Config: ClassVar[type[ModelConfig]]
    places: ClassVar[frozenset[str]] = frozenset()  # branches of the score that an attachment may provide
    attachments: nn.ModuleDict  # of a model that `create_model` made
    row_times: ClassVar[RowTimes] = "middle"  # where windows pool the rows of a timeline
    keeps_frames: ClassVar[bool] = True  # or a vector of them, in encoded videos
    has_layers: ClassVar[bool] = False  # over clips and frames, which read what an attachment puts beside those

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.name = "+".join((type(self).name, *config.attached))

    def draw_weights(self) -> None:
        """Draw initial weights, once, after the constructor; by default as the released programs do."""
        initialise(self, self.config.init_std)

    @property
    def carried(self) -> list[Attachment]:
        """The attachments in the order in which they are called."""
        if "attachments" not in self._modules:
            raise ConfigError(f"{self.name} was made by its class alone; use create_model or build_model")
        return [attachment for attachment in self.attachments.values() if isinstance(attachment, Attachment)]

    @abstractmethod
    def compute_query_vectors(self, queries: QueryBatch) -> EncodedQueries:
        """Vectors of queries; each depends on its own words only."""

    @abstractmethod
    def compute_video_vectors(self, videos: VideoBatch) -> EncodedVideos:
        """Vectors of videos; each depends on its own frames only, unless a released option says otherwise."""

    @abstractmethod
    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video, by the branches that no attachment provides."""

    @abstractmethod
    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """The method's own loss terms by name, unweighted."""

    def compute_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """By default the frames, else the clips; a method whose frames are not in the space of its sentences overrides
        it, and frames whose score an attachment provides are not compared with sentences either.

        Raises: NoTimelineError for a method that encodes a video as one vector only.
        """
        if videos.frames is not None and "frame" not in self.config.provided:
            return videos.frames, videos.frame_mask
        if videos.clips is None:
            raise NoTimelineError(
                f"{self.name} keeps neither frames nor clips of a video, so it cannot find moments in it"
            )
        return videos.clips, None

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """The vectors of each video that the branches of `compute_scores` compare, by branch; see `candidate_score`.

        By default none: then every video of a library is scored in full.
        """
        return {}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """What each branch looks for among them, with its weight."""
        return {}

    def list_row_tensors(self) -> TensorNames:
        """By branch of `compute_sketch`, of which the score reads the best row alone, the tensors with these rows.

        A branch with a weight below 0 is left out: its probe looks for the worst row, its score reads the best.
        """
        return {}

    def list_released_names(self) -> Names:
        """The authors' names of the method's own parameters, and where each tensor lives here.

        Raises: CheckpointError for a method whose authors released none.
        """
        raise CheckpointError(f"{self.name}: no released checkpoint is known for this method")

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Queries as the method and its attachments see them."""
        encoded = self.compute_query_vectors(QueryBatch.of(queries))
        for attachment in self.carried:
            encoded = attachment.encode_queries(self, queries, encoded)
        return encoded

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Videos as the method and its attachments see them: what an index keeps."""
        encoded = self.compute_video_vectors(VideoBatch.of(videos))
        for attachment in self.carried:
            encoded = attachment.encode_videos(self, videos, encoded)
        return encoded

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video, by all branches; `fused` ranks them."""
        scores = self.compute_scores(EncodedQueries.of(queries), EncodedVideos.of(videos))
        for attachment in self.carried:
            added = attachment.score(self, queries, videos)
            scores = scores if added is None else scores.joined(added)
        return scores

    def sketch(self, videos: EncodedVideos) -> Branches:
        """Videos as vectors that an index of nearest vectors can hold, `V N D` by branch; see `candidate_score`."""
        return self.compute_sketch(videos) | {
            branch: rows for part in self.carried for branch, rows in part.sketch(self, videos).items()
        }

    def probe(self, queries: EncodedQueries) -> Branches:
        """Queries as vectors that are looked for among those of `sketch`, each with its weight, `Q M D` by branch."""
        return self.compute_probe(queries) | {
            branch: rows for part in self.carried for branch, rows in part.probe(self, queries).items()
        }

    @property
    def row_tensors(self) -> TensorNames:
        """By branch of `sketch`, of which the score reads the best row alone, the tensors of videos with these rows.

        A video with some of them, the best among them, scores the same, if `num_frames` says how many frames it has.
        """
        rows = dict(self.list_row_tensors())
        for part in self.carried:
            rows |= part.row_tensors(self)
        return rows

    def candidate_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Float[Tensor, "Q V"]:
        """How well each vector of `probe` is met by the best of its branch in `sketch`, added up: it finds candidates.

        No video's `score` is above it, so that the videos which may be among the best are known without the score of
        all; of most methods it is the score (the tests of all methods say of which).

        Raises: ConfigError for a method without `compute_sketch`.
        """
        probe = self.probe(queries)
        sketch = self.sketch(videos)
        if not probe:
            raise ConfigError(f"{self.name} has no compute_sketch and compute_probe, so an index cannot search it")
        return torch.stack([max_sim_sum(rows, sketch[branch]) for branch, rows in probe.items()]).sum(dim=0)

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """How much each row of words counts, for people to see; None where no part of the model weighs them."""
        weighed = (part.word_weights(queries) for part in self.carried)
        return next((weights for weights in weighed if weights is not None), None)

    def watched_queries(self, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """A number for each query under each name that training is to follow: metrics.jsonl has the mean of every epoch
        over the validation split. By default those of what is attached; a method adds its own.
        """
        return {name: own for part in self.carried for name, own in part.watched_queries(self, queries).items()}

    def watched_videos(self, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
        """The same of videos, under other names."""
        return {name: own for part in self.carried for name, own in part.watched_videos(self, videos).items()}

    def forward(
        self, batch: TrainingBatch, *, draws: Draws, epoch: int = 0, encode: Encode = encode_here
    ) -> dict[str, Float[Tensor, ""]]:
        """All loss terms of a batch by name, unweighted: the method's own, those of parts, and the attached ones."""
        queries = encode(self.encode_queries, batch.queries)
        videos = encode(self.encode_videos, batch.videos)
        step = TrainingStep(queries, videos, batch, draws, epoch, encode)
        terms = self.compute_losses(step)
        second = None if self.training and self.config.separate_pass else step
        for attachment in self.carried:  # losses come last
            reads = step
            if attachment.second_pass:
                second = second or replace(step, queries=encode(self.encode_queries, batch.queries))
                reads = second
            terms |= attachment.losses(self, reads)
        return terms

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """A video's vectors in temporal order at equal steps that compare with queries, and which of them are real.

        Raises: NoTimelineError for a method that encodes a video as one vector only.
        """
        for attachment in self.carried:
            replaced = attachment.timeline(videos)
            if replaced is not None:
                return replaced
        return self.compute_timeline(videos)

    def similarity(self, queries: EncodedQueries, units: Float[Tensor, "V N D"]) -> Float[Tensor, "Q V N"]:
        """How each query fits each vector of a timeline, or of a window of it; higher is better. By default the cosine.

        Moments and curves of relevance come from it, so that a method in another space than that of cosines has them.
        """
        return products(F.normalize(queries.sentence, dim=-1), F.normalize(units, dim=-1))

    def window_similarities(self, queries: EncodedQueries, videos: EncodedVideos) -> tuple[Proposals, Similarities]:
        """The windows tried in every video and how they fit: by default those of JSG, which need no training."""
        similarity = partial(self.similarity, queries)
        (units, mask) = self.timeline(videos)
        return JSG_WINDOWS, window_similarities(similarity, units, mask, JSG_WINDOWS, row_times=self.row_times)

    def locate_settings(self) -> LocateSettings:
        """How many moments are kept where the caller does not say."""
        return LocateSettings()

    def rank_moments(
        self,
        queries: EncodedQueries,
        videos: EncodedVideos,
        duration_s: Float[Tensor, " V"],
        settings: LocateSettings | None = None,
    ) -> RankedMoments:
        """The windows of all videos that fit each query best, before suppression, so that parts of a corpus can be
        ranked apart and joined.

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
        """The moments of all videos that fit each query best, in seconds, none twice; see `moments/localise.py`."""
        settings = settings or self.locate_settings()
        ranked = self.rank_moments(queries, videos, duration_s, settings)
        return suppress_ranked(ranked, max_overlap=settings.max_overlap, limit=settings.limit)

    def released_names(self) -> Names:
        """The authors' parameter names of the whole, and where each tensor lives here.

        Raises: CheckpointError for a method whose authors released none, and for a composition that was not released.
        """
        names = self.list_released_names()
        for attachment in self.carried:
            if isinstance(attachment, StepLoss):
                continue
            part = attachment.name
            if type(self).name not in attachment.released_on:
                known = ", ".join(f"{other}+{part}" for other in sorted(attachment.released_on)) or "none"
                raise CheckpointError(f"{self.name}: no released checkpoint is known; of {part}: {known}")
            names |= attachment.released_names(f"attachments.{part}")
        return names
