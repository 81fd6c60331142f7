"""Compare RAL, attached to GMMFormer v2, with its released program (golden cases)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch, frames_of
from untrimmed.data.resampling import prepare_video
from untrimmed.evaluation.recall import ranks, recall
from untrimmed.losses.distribution import proxies_of_texts, proxies_of_videos
from untrimmed.losses.draws import Draws
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.ral import RAL, RALQueries
from untrimmed.models.ral_distribution import pooled_rows, pooled_videos
from untrimmed.models.two_branches import TwoBranchModel
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.draws import NoisyDraws
from untrimmed.parity.gmmformer import GMMFormerV2Parity
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import Tap
from untrimmed.scores.max_sim import Similarity

NOISE = {"text_proxies": "noise_text", "video_proxies": "noise_video"}


@parity_of("ral")
class RALParity(GMMFormerV2Parity):
    """The golden cases of RAL: GMMFormer v2 with RAL's frame branch and its two losses on distributions.

    RAL represents each query and each video by a Gaussian distribution and draws samples from the distribution.
    """

    model_name = "gmmformer_v2+ral"

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return the functions for cases of features and metrics."""
        return {"feature-pipeline": _feature_pipeline, "retrieval-metrics": _retrieval_metrics}

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the number of samples per distribution and the maximum number of captions per video."""
        ral = {"num_proxies": case.setting("n_samples"), "support_captions": case.setting("support_set_multiplier")}
        return super().settings(case) | {"ral": ral}

    def loss_weights(self, case: Case) -> dict[str, float]:
        """Return the weights of the loss terms, including the weights of RAL's two losses."""
        weights = {name: case.setting(f"{name}_weight") for name in ("proxy_matching", "distribution_alignment")}
        return super().loss_weights(case) | weights

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """Return an empty list, because these cases record no intermediate results."""
        return []

    def draws(self, case: Case) -> Draws:
        """Return draws that replay the recorded negatives and noise."""
        case.require(NOISE.values())
        return NoisyDraws(case, self.recorded_ranks, NOISE)

    def encodings(self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return encodings, and the word vectors and word weights of RAL's frame branch."""
        return super().encodings(model, queries, videos) | word_encodings(model, queries)

    def scores(
        self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the scores of GMMFormer v2's clip branch and of RAL's frame branch."""
        return super().scores(model, queries, videos, batch) | word_scores(model, queries, videos)

    def loss_arrays(
        self, case: Case, model: TwoBranchModel, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the losses of both branches, the attached losses, and intermediate values of RAL's two losses."""
        batch = case.training_batch()
        ral = _ral(model)
        queries = model.encode_queries(batch.queries)
        videos = model.encode_videos(batch.videos)
        both = ral.distributions(model, TrainingStep(queries, videos, batch, self.draws(case)))
        texts, _ = ral.text_rows(queries, batch.video_index)
        kl_video, kl_text, kl_between = ral.alignment_parts(both)
        record = ral.record_of(queries)
        tokens, mask = _support_buffers(record, batch.video_index, len(videos), ral.config.support_captions)
        return super().loss_arrays(case, model, scores, terms, draws) | {
            "support_tokens": tokens,
            "support_mask": mask,
            "support_pooled": pooled_rows(texts, record.word_mask),
            "visual_pooled": pooled_videos(*frames_of(videos)),
            "text_mean": both.text.mean,
            "text_logsigma": both.text.log_scale,
            "text_samples": both.text_samples,
            "video_mean": both.video.mean,
            "video_logsigma": both.video.log_scale,
            "video_samples": both.video_samples,
            "proxy_matching": terms["proxy_matching"],
            "proxy_matching_from_video": proxies_of_videos(both.video_samples, both.text_samples, both.video_index),
            "proxy_matching_from_text": proxies_of_texts(both.video_samples, both.text_samples, both.video_index),
            "distribution_alignment": terms["distribution_alignment"],
            "kl_video_prior": kl_video,
            "kl_text_prior": kl_text,
            "kl_text_to_video": kl_between,
        }

    def _row_mask(self, case: Case, name: str) -> np.ndarray | None:
        if name == "expected/frame_query_tokens":
            return case.batch["text_mask"] > 0
        return super()._row_mask(case, name)


def word_encodings(model: TwoBranchModel, queries: EncodedQueries) -> dict[str, Tensor]:
    """Return the word vectors and word weights of RAL's frame branch, by recorded name."""
    csa = _ral(model).csa
    record = _ral(model).record_of(queries)
    assert csa is not None
    assert record.word_weights is not None
    return {
        "frame_query_tokens": record.words,
        "word_confidence": record.word_weights,
        "word_confidence_raw": csa.weights(record.words, record.word_mask, "dot"),
    }


def word_scores(model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
    """Return the scores of RAL's frame branch, which compares words with frames, by recorded name."""
    scores: dict[str, Similarity] = {"frame_scores": "cosine", "frame_scores_raw": "dot"}
    return {name: _ral(model).word_score(model, queries, videos, by).value for name, by in scores.items()}


def _ral(model: TwoBranchModel) -> RAL:
    part = model.attachments["ral"]
    assert isinstance(part, RAL)
    return part


def _support_buffers(queries: RALQueries, video_index: Tensor, num_videos: int, room: int) -> tuple[Tensor, Tensor]:
    """Return the words of each video's captions, padded with zeros to `room` captions, and the mask of the words.

    Our pooling needs no padding. The arrays are only built for the comparison with the recorded arrays.
    """
    words = queries.words
    mask = queries.word_mask
    tokens = words.new_zeros(num_videos, room, *words.shape[1:])
    masks = words.new_zeros(num_videos, room, mask.shape[1])
    for video in range(num_videos):
        matches = video_index == video
        tokens[video, : matches.sum()] = words[matches]
        masks[video, : matches.sum()] = mask[matches].to(words.dtype)
    return tokens.flatten(1, 2), masks.flatten(1, 2)


def _feature_pipeline(case: Case) -> Arrays:
    arrays = {}
    for name, frames in case.batch.items():
        count = name.removeprefix("features_")
        for length in case.setting("frame_lengths"):
            clips, sampled = prepare_video(frames, num_clips=case.setting("clip_length"), max_frames=length)
            arrays[f"clip{case.setting('clip_length')}_{count}"] = clips
            arrays[f"frame{length}_{count}"] = sampled
    return arrays


def _retrieval_metrics(case: Case) -> dict[str, float]:
    case.require(("scores", "ground_truth"))
    at = case.setting("recall_at")
    values = recall(ranks(case.batch["scores"], case.batch["ground_truth"]), at)
    return {f"recall_at_{k}": values[f"R@{k}"] for k in at} | {"sum_of_recalls": values["SumR"]}
