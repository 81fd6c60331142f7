"""CLIP4Clip (arXiv 2104.08860), mean pooling: a video is the mean of its frames, compared with the sentence by cosine.

CLIP4Clip is a method for ordinary text-to-video retrieval (RAL, Table 5). Our version reads the features of an
image-text encoder and does not train this encoder. Instead, it trains one linear map for text and one for video. A map
with equal input and output width starts as the identity. An untrained model then computes the cosine of the sentence
and the mean frame of the encoder. We implemented the method from the papers and did not reproduce their results.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch, frames_of
from untrimmed.errors import ConfigError
from untrimmed.losses.nce import nce
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import register
from untrimmed.scores.max_sim import Branches, units, vector_sim
from untrimmed.scores.score import Scores

MAX_LOGIT_SCALE = math.log(100.0)  # CLIP limits its learned scale to this value


@dataclass(frozen=True, kw_only=True)
class CLIP4ClipVideos(EncodedVideos):
    """`frames` after the linear map, and `video`: the mean of the normalised frames."""

    frames: Float[Tensor, "V T D"]
    frame_mask: Bool[Tensor, "V T"]
    video: Float[Tensor, "V D"]


@register("clip4clip")
class CLIP4Clip(RetrievalModel):
    """Two linear maps and a learned temperature."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Settings of the method.

        `sentence`: `last` uses the vector of the last token, as in CLIP. `mean` uses the mean of the words, for other
        encoders.
        """

        dim: int = 512
        max_frames: int = 12
        max_words: int = 32
        sentence: Literal["last", "mean"] = "last"
        temperature: float = 0.01  # initial value of the learned temperature; CLIP ended its training with 0.01
        video_weight: float = 1.0
        frame_weight: float = 1.0  # weight of a frame branch that an attachment provides

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.temperature < 0.01:
                raise ConfigError(f"temperature is {self.temperature}, expected at least 0.01, CLIP's limit")

    config: Config
    places: ClassVar[frozenset[str]] = frozenset({"frame"})

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.query_map = nn.Linear(c.query_dim, c.dim, bias=False)
        self.frame_map = nn.Linear(c.video_dim, c.dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(c.temperature)))

    def draw_weights(self) -> None:
        """Draw initial weights. A map with equal input and output width starts as the identity."""
        super().draw_weights()
        for linear in (self.query_map, self.frame_map):
            if linear.in_features == linear.out_features:
                nn.init.eye_(linear.weight)

    def compute_query_vectors(self, queries: QueryBatch) -> EncodedQueries:
        """Return the vector of the last word, or the mean of all words, after the linear map."""
        words = self.encode_words(queries)
        mask = queries.mask
        if self.config.sentence == "mean":
            return EncodedQueries(sentence=_mean(words, mask))
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(dim=1)
        return EncodedQueries(sentence=words[torch.arange(len(words), device=words.device), last])

    def compute_video_vectors(self, videos: VideoBatch) -> CLIP4ClipVideos:
        """Return the frames after the linear map, and the mean of the normalised frames."""
        frames = self.frame_map(videos.frames)
        mask = videos.frame_mask
        return CLIP4ClipVideos(frames=frames, frame_mask=mask, video=_mean(F.normalize(frames, dim=-1), mask))

    def encode_words(self, queries: QueryBatch) -> Float[Tensor, "Q W D"]:
        """Return the word features after the linear map.

        The word features are contextual, because they come from a text encoder.
        """
        return self.query_map(queries.words)

    def compute_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"]]:
        """Return the frames, which are always in the space of the sentences."""
        return frames_of(videos)

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the cosine of the sentence and the mean frame."""
        video = vector_sim(queries.sentence, CLIP4ClipVideos.of(videos).video)
        return Scores({"video": video}, {"video": self.branch_weight("video")})

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return the mean frame as the only vector of a video."""
        return {"video": units(CLIP4ClipVideos.of(videos).video[:, None])}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the vector of the sentence as the only vector of a query."""
        return {"video": self.branch_weight("video") * F.normalize(queries.sentence, dim=-1)[:, None]}

    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return the mean of two cross-entropies: from queries to videos, and from videos to queries."""
        cosine = self.compute_scores(step.queries, step.videos)["video"].value
        return self.branch_losses("video", cosine, cosine, step)

    def branch_losses(
        self, branch: str, cosine: Float[Tensor, "Q V"], dot: Float[Tensor, "Q V"], step: TrainingStep
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the mean of the cross-entropies of both directions. Cosines are divided by the learned temperature.

        `dot` is ignored.
        """
        logits = cosine * self.logit_scale.clamp_max(MAX_LOGIT_SCALE).exp()
        return {f"{branch}_nce": nce(logits, step.batch.video_index) / 2}

    def branch_weight(self, branch: str) -> float:
        """Return the weight of the mean-frame branch, or of a frame branch that an attachment provides."""
        return {"video": self.config.video_weight, "frame": self.config.frame_weight}[branch]


def _mean(x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"]) -> Float[Tensor, "N D"]:
    """Return the mean of the rows that are not padding."""
    return x.masked_fill(~mask[..., None], 0).sum(dim=1) / mask.sum(dim=1).clamp_min(1)[:, None]
