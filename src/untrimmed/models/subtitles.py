"""Subtitles of TVR (arXiv 2001.09099) as a second stream: a learned weight adds the score of the best passage.

This late fusion is ours, and works with any method. The score of a video is f + w max_p cos(q, p). Here f is the
method's score, q is the mean of the query's word vectors, and p is the vector of a passage. The vectors of words and
passages must come from the same network.

The weight w is learned by InfoNCE of this score. The gradient of this loss does not reach the method. The temperature
of the loss is also learned. With a fixed temperature, w would also have to scale the scores.

A video without subtitles has a passage of zeros, and its subtitle score is 0. `untrimmed index --model` and searches
use only the method's score, because a library stores no subtitle vectors.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, Record, VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.losses.nce import nce
from untrimmed.models.attachment import Attachment, AttachmentConfig, Carrier, TrainingStep
from untrimmed.models.registry import register
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import Score, Scores


@dataclass(frozen=True, kw_only=True)
class SubtitleQueries(Record):
    """The mean of each query's word vectors."""

    text: Float[Tensor, "Q E"]


@dataclass(frozen=True, kw_only=True)
class SubtitleVideos(Record):
    """The vectors of each video's passages."""

    passages: Float[Tensor, "V P E"]
    mask: Bool[Tensor, "V P"]


@register("subtitles")
class SubtitleScore(Attachment):
    """Adds the best passage's cosine to the score with a learned weight."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the attachment.

        The weight is learned and starts at `initial_weight`. The loss divides scores by a learned temperature, which
        starts at `temperature`.
        """

        max_passages: int = 128  # largest number of passages per video; more are averaged like frames
        initial_weight: float = 0.5
        temperature: float = 0.05

        def __post_init__(self) -> None:
            if self.max_passages < 1:
                raise ConfigError(f"subtitles.max_passages is {self.max_passages}, expected at least 1")
            if not self.temperature > 0:
                raise ConfigError(f"subtitles.temperature is {self.temperature}, expected more than 0")

        @property
        def passages_read(self) -> int:
            """The largest number of passages per video."""
            return self.max_passages

    config: Config

    def __init__(self, config: Config, model: Carrier):
        super().__init__(config, model)
        self.weight = nn.Parameter(torch.tensor(float(config.initial_weight)))
        self.log_temperature = nn.Parameter(torch.tensor(config.temperature).log())

    def encode_queries(self, model: Carrier, queries: QueryBatch, encoded: EncodedQueries) -> EncodedQueries:
        """Attach the mean of the word vectors."""
        words = queries.words.masked_fill(~queries.mask[..., None], 0)
        mean = words.sum(dim=1) / queries.mask.sum(dim=1, keepdim=True)
        return encoded.attach(self.name, SubtitleQueries(text=mean))

    def encode_videos(self, model: Carrier, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """Attach the vectors of passages, unless the batch has no subtitles."""
        if videos.passages is None or videos.passage_mask is None:
            return encoded
        return encoded.attach(self.name, SubtitleVideos(passages=videos.passages, mask=videos.passage_mask))

    def score(self, model: Carrier, queries: EncodedQueries, videos: EncodedVideos) -> Scores | None:
        """Return the cosine of the best passage and the learned weight, or None if the batch has no subtitles."""
        if self.name not in videos.attached:
            return None
        return Scores({self.name: self.best_passage(queries, videos)}, {self.name: self.weight.item()})

    def best_passage(self, queries: EncodedQueries, videos: EncodedVideos) -> Score:
        """Return the cosine of each query with the best passage of each video."""
        text = SubtitleQueries.of(queries.attached[self.name]).text
        record = SubtitleVideos.of(videos.attached[self.name])
        return max_sim(text, record.passages, record.mask)

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE of the fused score. The gradient reaches only the weight and the temperature."""
        if self.name not in step.videos.attached:
            raise ConfigError(f"{model.name}: the videos of the batch have no passages; set them in VideoBatch")
        with torch.no_grad():
            scores = model.score(step.queries, step.videos)
            method = scores.fused - scores.weights[self.name] * scores[self.name].value
        fused = method + self.weight * self.best_passage(step.queries, step.videos).value
        return {self.name: nce(fused / self.log_temperature.exp(), step.batch.video_index)}
