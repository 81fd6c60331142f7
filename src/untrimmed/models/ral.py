"""The attachment RAL, robust alignment learning (EMNLP 2025, arXiv 2509.01383).

RAL has two parts, named as in the paper:

- CSA (confidence-aware set-to-set alignment) is a frame branch. A second text tower encodes the words. Each word is
  compared with its best frame, and the score is a mean over words, weighted by learned confidences.
- MSRA (alignment of distributions) affects only training. MSRA represents each video by a Gaussian, and all captions of
  the video together (the support set) by another Gaussian. One loss contrasts samples of the Gaussians, and another
  loss aligns their parameters.

Released code: zhanglong-ustc/RAL-PRVR, which has RAL only for GMMFormer v2. If paper and release differ, we follow the
release. The paper's versions and the release's constants are settings.

For GMMFormer, MS-SL and CLIP4Clip, the paper reports only results (Table 5), and the following is our interpretation:

- With GMMFormer and MS-SL, CSA replaces the frame branch of the method. CSA compares words with the encoded frames of
  the method, and is trained with the method's InfoNCE and triplet loss.
- With CLIP4Clip, words are the projected token features, and CSA is added to mean pooling. We did not reproduce the
  paper's results.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, Record, frames_of, num_frames_of
from untrimmed.errors import ConfigError
from untrimmed.losses.distribution import Form, kl_between, kl_to_normal, proxy_matching
from untrimmed.losses.draws import Draws
from untrimmed.models import released
from untrimmed.models.attachment import Attachment, AttachmentConfig, Carrier, TrainingStep
from untrimmed.models.ral_distribution import (
    Aggregation,
    Gaussian,
    Rows,
    SeparateHead,
    SharedHead,
    pooled_rows,
    pooled_videos,
)
from untrimmed.models.registry import register
from untrimmed.nn.tower import SiblingTower
from untrimmed.scores.max_sim import Branches, Padding, Similarity, TensorNames, units, zero_floor
from untrimmed.scores.score import Score, Scores
from untrimmed.scores.word_max_sim import Confidences, WordMaxSim


@dataclass(frozen=True, kw_only=True)
class RALConfig(AttachmentConfig):
    """The settings of RAL. Tables 2 to 4 vary the first five settings and the weights of the two losses.

    Without CSA, there is no second text tower, and distributions use the words of the method. The following settings
    have the values `released` (as in the authors' program) and `paper` (as in the equations). With `paper`, the
    settings select:

    - `distribution_form`: one aggregator and two linear maps (Eq. 3, 6, 7), not separate poolings for mean and spread.
    - `alignment_form`: divergences of means and deviations (Eq. 8).
    - `proxy_form`: cosines divided by a temperature (Eq. 10).
    - `confidences`: confidences without normalisation (Eq. 12). With `even`, all words have equal confidences
      (Fig. 8c).
    """

    reads_frames: ClassVar[bool] = True

    csa: bool = True  # off: the method keeps its own frame score and words (Table 2)
    msra: bool = True
    support: Literal["set", "single"] = "set"  # single: a distribution for each query (Table 4)
    aggregation: Aggregation = "both"
    num_proxies: int = 6  # number of samples; 0: use the means (Table 3, w/o sampling)
    distribution_form: Form = "released"
    confidences: Confidences = "released"
    word_tower: Literal["own", "shared"] = "own"  # text tower of CSA; shared: the tower of the method, as in the paper
    padding_scores: Padding = "zero"  # excluded: only the video's frames, as in Eq. 11
    pooling_rows: Literal["padded", "real"] = "padded"  # rows that attention pooling averages; real: Eq. 6
    support_captions: int = 26  # number of captions in the padded buffer of the released program
    proxy_form: Form = "released"
    proxy_temperature: float = 0.05  # for `proxy_form: paper`; the paper does not state its value
    alignment_form: Form = "released"

    def __post_init__(self) -> None:
        if not (self.csa or self.msra):
            raise ConfigError("ral has neither csa nor msra, so it has no effect; turn one on, or leave ral out")
        if self.num_proxies < 0 or self.support_captions < 1 or self.proxy_temperature <= 0:
            raise ConfigError(
                f"ral: num_proxies {self.num_proxies}, support_captions {self.support_captions}, proxy_temperature "
                f"{self.proxy_temperature}: expected at least 0, at least 1, and more than 0"
            )

    @property
    def provides(self) -> frozenset[str]:
        """The frame branch, unless CSA is off."""
        return frozenset({"frame"}) if self.csa else frozenset()

    @property
    def absent_terms(self) -> frozenset[str]:
        """Both losses on distributions, if MSRA is off."""
        return frozenset() if self.msra else frozenset({"proxy_matching", "distribution_alignment"})


@dataclass(frozen=True, kw_only=True)
class RALQueries(Record):
    """Encoded words. Masked words have arbitrary values.

    `word_weights` are the confidences of words, or None without CSA. As in the authors' program, the confidences sum to
    1, except with `confidences: paper`. `uncertainty` is larger for less specific queries. `uncertainty` is None
    without MSRA and in training.
    """

    words: Float[Tensor, "Q W D"]
    word_mask: Bool[Tensor, "Q W"]
    word_weights: Float[Tensor, "Q W"] | None = None
    uncertainty: Float[Tensor, " Q"] | None = None


@dataclass(frozen=True)
class Distributions:
    """The Gaussians of texts and videos in a batch, and samples of them. `video_index` is the video of each text."""

    text: Gaussian
    video: Gaussian
    text_samples: Float[Tensor, "N K D"]
    video_samples: Float[Tensor, "V K D"]
    video_index: Int[Tensor, " N"]


@register("ral")
class RAL(Attachment):
    """The word tower, confidence-aware alignment (CSA) and Gaussian alignment (MSRA)."""

    Config = RALConfig
    draws_maps: ClassVar[bool] = True
    released_on: ClassVar[frozenset[str]] = frozenset({"gmmformer_v2", "holmes"})

    config: RALConfig

    def __init__(self, config: RALConfig, model: Carrier):
        super().__init__(config, model)
        dim = model.config.dim
        tower = model.text_tower
        has_own_words = config.csa and config.word_tower == "own"
        self.word_tower = SiblingTower(tower) if has_own_words and tower is not None else None
        self.csa = WordMaxSim(dim, config.confidences) if config.csa else None
        head = SeparateHead if config.distribution_form == "released" else SharedHead
        self.text_head = head(dim, config.aggregation) if config.msra else None
        self.video_head = head(dim, config.aggregation) if config.msra else None

    def encode_queries(self, model: Carrier, queries: QueryBatch, encoded: EncodedQueries) -> EncodedQueries:
        """Attach words, their confidences (Fig. 8) and, except in training, the uncertainty of queries (Fig. 3)."""
        mask = queries.mask
        zeroed = dataclasses.replace(queries, words=queries.words.masked_fill(~mask[..., None], 0))
        if self.word_tower is None or model.text_tower is None:
            words = model.encode_words(zeroed)
        else:
            words = self.word_tower(zeroed.words, mask, model.text_tower.positions)
        predicts = self.text_head is not None and not self.training
        record = RALQueries(
            words=words,
            word_mask=mask,
            word_weights=None if self.csa is None else self.csa.weights(words, mask),
            uncertainty=self.uncertainty(model, words, mask) if predicts else None,
        )
        return encoded.attach(self.name, record)

    def record_of(self, queries: EncodedQueries) -> RALQueries:
        """Return the record that `encode_queries` attached."""
        return RALQueries.of(queries.attached[self.name])

    def uncertainty(
        self, model: Carrier, words: Float[Tensor, "Q W D"], mask: Bool[Tensor, "Q W"]
    ) -> Float[Tensor, " Q"]:
        """Return the standard deviation of each query's distribution, as the geometric mean over the width (Fig. 3).

        Each query is treated as a support set of one caption, and is padded with zero rows to the longest possible
        query. The uncertainty therefore does not depend on the batch, unlike in the release.
        """
        assert self.text_head is not None
        length = model.config.max_words * self._captions
        zeros = length - mask.sum(dim=1) if self.config.pooling_rows == "padded" else torch.zeros_like(mask.sum(dim=1))
        rows = Rows(words, torch.arange(len(words), device=words.device), mask, zeros.to(words.dtype))
        return Gaussian(words[:, 0], self.text_head.log_scale(rows, pooled_rows(rows, mask))).sigma

    def word_weights(self, queries: EncodedQueries) -> Float[Tensor, "Q W"] | None:
        """Return the confidence of each word in the frame branch (CSA, Fig. 8), or None without this branch."""
        return self.record_of(queries).word_weights

    def watched_queries(self, model: Carrier, queries: EncodedQueries) -> dict[str, Float[Tensor, " Q"]]:
        """Return the uncertainty of queries (Fig. 10)."""
        uncertainty = self.record_of(queries).uncertainty
        return {} if uncertainty is None else {"query_uncertainty": uncertainty}

    def watched_videos(self, model: Carrier, videos: EncodedVideos) -> dict[str, Float[Tensor, " V"]]:
        """Return each video's uncertainty: the standard deviation, as the geometric mean over the width (Fig. 10)."""
        return {} if self.video_head is None else {"video_uncertainty": self.of_videos(model, videos).sigma}

    @property
    def _captions(self) -> int:
        return self.config.support_captions if self.config.support == "set" else 1

    def score(self, model: Carrier, queries: EncodedQueries, videos: EncodedVideos) -> Scores | None:
        """Return the cosine scores of CSA, and the weight of the frame branch."""
        if self.csa is None:
            return None
        return Scores({"frame": self.word_score(model, queries, videos)}, {"frame": model.branch_weight("frame")})

    def sketch(self, model: Carrier, videos: EncodedVideos) -> Branches:
        """Return the frames with which words are compared."""
        return {} if self.csa is None else {"frame": units(*self._frames(model, videos))}

    def row_tensors(self, model: Carrier) -> TensorNames:
        """Return the names of the frame tensors, because the score depends only on each word's best frame.

        If the branch's weight or a confidence can be negative, the score may depend on the worst frame, and no names
        are returned. Confidences can be negative with `confidences: paper`.
        """
        is_best = self.csa is not None and self.config.confidences != "paper" and model.branch_weight("frame") >= 0
        return {"frame": ("frames", "frame_mask")} if is_best else {}

    def probe(self, model: Carrier, queries: EncodedQueries) -> Branches:
        """Return words multiplied by their confidences. Padding is 0."""
        record = self.record_of(queries)
        if record.word_weights is None:
            return {}
        weights = model.branch_weight("frame") * record.word_weights * record.word_mask
        return {"frame": weights[..., None] * F.normalize(record.words, dim=-1)}

    def word_score(
        self,
        model: Carrier,
        queries: EncodedQueries,
        videos: EncodedVideos,
        similarity: Similarity = "cosine",
    ) -> Score:
        """Return the score of CSA (Eq. 11-12) with cosines, or with dot products for InfoNCE."""
        assert self.csa is not None
        frames, mask, floor = self._frames(model, videos)
        record = self.record_of(queries)
        return self.csa(record.words, record.word_mask, frames, mask, similarity=similarity, zero_floor=floor)

    def _frames(
        self, model: Carrier, videos: EncodedVideos
    ) -> tuple[Float[Tensor, "V T D"], Bool[Tensor, "V T"], Bool[Tensor, " V"] | None]:
        """Return the frames, the mask of real frames, and a mask of videos whose score cannot be negative."""
        frames, mask = frames_of(videos)
        return frames, mask, zero_floor(num_frames_of(videos), model.config.max_frames, self.config.padding_scores)

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return the method's InfoNCE and triplet loss for scores of CSA, and both losses of MSRA (Eq. 8 and 10)."""
        terms: dict[str, Tensor] = {}
        if self.csa is not None:
            cosine = self.word_score(model, step.queries, step.videos).value
            dot = self.word_score(model, step.queries, step.videos, "dot").value
            terms |= model.branch_losses("frame", cosine, dot, step)
        if self.text_head is None:
            return terms
        both = self.distributions(model, step)
        return terms | {
            "proxy_matching": proxy_matching(
                both.video_samples,
                both.text_samples,
                both.video_index,
                form=self.config.proxy_form,
                temperature=self.config.proxy_temperature,
            ),
            "distribution_alignment": torch.stack(self.alignment_parts(both)).sum(),
        }

    def distributions(self, model: Carrier, step: TrainingStep) -> Distributions:
        """Return the Gaussians of a batch and their samples.

        As in the authors' program, noise is drawn for texts first.
        """
        assert self.text_head is not None
        texts, owner = self.text_rows(step.queries, step.batch.video_index)
        text = self.text_head(texts, pooled_rows(texts, self.record_of(step.queries).word_mask))
        video = self.of_videos(model, step.videos)
        text_samples = self._samples("text_proxies", text, step.draws)
        return Distributions(text, video, text_samples, self._samples("video_proxies", video, step.draws), owner)

    def of_videos(self, model: Carrier, videos: EncodedVideos) -> Gaussian:
        """Return the Gaussian of each video."""
        assert self.video_head is not None
        frames, mask = frames_of(videos)
        rows = self.video_rows(model, frames, mask)
        is_released = self.config.distribution_form == "released"
        return self.video_head(rows, pooled_videos(frames, mask) if is_released else pooled_rows(rows, mask))

    def _samples(self, term: str, gaussian: Gaussian, draws: Draws) -> Float[Tensor, "N K D"]:
        if self.config.num_proxies == 0:
            return gaussian.mean[:, None]
        num, dim = gaussian.mean.shape
        return gaussian.samples(draws.normal(term, num, self.config.num_proxies, dim).to(gaussian.mean))

    def text_rows(self, queries: EncodedQueries, video_index: Int[Tensor, " Q"]) -> tuple[Rows, Int[Tensor, " N"]]:
        """Return the words of each support set or query, and the index of its video.

        As in the authors' program, attention pooling includes padding: the encoder's outputs for padding words, and
        rows of zeros that pad each set to the largest number of captions (26).
        """
        record = self.record_of(queries)
        words = record.words
        mask = record.word_mask
        if self.config.support == "set":
            owner, group = video_index.unique(return_inverse=True)
        else:
            owner = video_index
            group = torch.arange(len(words), device=words.device)
        if self.config.pooling_rows == "real":
            return Rows(words, group, mask, words.new_zeros(len(owner))), owner
        num_captions = torch.bincount(group, minlength=len(owner))
        zeros = (self._captions - num_captions).clamp_min(0) * words.shape[1]
        return Rows(words, group, torch.ones_like(mask), zeros.to(words.dtype)), owner

    def video_rows(self, model: Carrier, frames: Float[Tensor, "V T D"], mask: Bool[Tensor, "V T"]) -> Rows:
        """Return the frames of each video.

        As in the authors' program, each video is padded with zero rows to `max_frames` rows, unless `pooling_rows` is
        `real`.
        """
        num_zeros = model.config.max_frames - mask.sum(dim=1)
        if self.config.pooling_rows == "real":
            num_zeros = torch.zeros_like(num_zeros)
        return Rows(frames, torch.arange(len(frames), device=frames.device), mask, num_zeros.to(frames.dtype))

    def alignment_parts(self, both: Distributions) -> tuple[Tensor, Tensor, Tensor]:
        """Return the three divergences of Eq. 8.

        The first two are the divergences of videos and of texts from the standard normal distribution. The third is the
        divergence of texts from videos. As in the authors' program, the mean of the samples replaces the distribution's
        mean, except with `alignment_form: paper`.
        """
        form = self.config.alignment_form
        if form == "released":
            text_mean = both.text_samples.mean(dim=1)
            video_mean = both.video_samples.mean(dim=1)
        else:
            text_mean = both.text.mean
            video_mean = both.video.mean
        own_mean = video_mean[both.video_index]
        own_scale = both.video.log_scale[both.video_index]
        return (
            kl_to_normal(video_mean, both.video.log_scale, form=form),
            kl_to_normal(text_mean, both.text.log_scale, form=form),
            kl_between(text_mean, both.text.log_scale, own_mean, own_scale),
        )

    def released_names(self, prefix: str) -> released.Names:
        """Return the parameter names in checkpoints of zhanglong-ustc/RAL-PRVR; ours begin with `prefix`.

        Checkpoints of Holmes with its second query branch have the same names, without MSRA.
        """
        names = released.input_layer(f"{prefix}.word_tower.input", "frame_branch_query_proj")
        names |= released.ffn_layer(f"{prefix}.word_tower.blocks.0.layers", "frame_branch_query_encoder", block=0)
        names |= released.pair(f"{prefix}.csa.hidden", "text_weight_fc.0")
        names |= released.pair(f"{prefix}.csa.confidence", "text_weight_fc.2")
        for side in ("text", "video") if self.config.msra else ():
            names |= released.distribution_head(f"{prefix}.{side}_head", f"pie_net_{side}", f"uncertain_net_{side}")
        return names
