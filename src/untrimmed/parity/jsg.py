"""Compare JSG with its released program (golden cases): two network variants, proposals, features, metrics."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch, clips_of
from untrimmed.data.annotations import Annotation
from untrimmed.data.dataset import dataset_of_arrays
from untrimmed.data.packed import PackSettings
from untrimmed.evaluation.events import event_recall
from untrimmed.evaluation.recall import retrieval_metrics
from untrimmed.losses.draws import Draws
from untrimmed.models.jsg import JSG, JSGVideos
from untrimmed.moments.gaussian_proposals import (
    WIDTHS_PER_DEVIATION,
    centered_proposals,
    gaussian_windows,
    pooling_weights,
    side_windows,
    sliding_proposals,
    time_grid,
)
from untrimmed.moments.localise import LocateSettings, top_windows
from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import Rules, Tolerance
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import WITH_CLIPS, RetrievalParity, expected, is_updated, sum_of_rates
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import required_best

BRANCHES = ("glance", "attention", "gaze")
CONV_BIAS = "global_conv1d.conv_layer.bias"
CONV_WEIGHT = "global_conv1d.conv_layer.weight"
RECALL = "video_recall_at_"
TIE = 1e-5  # if the cosines of the two best proposals differ by less, the best proposal is ambiguous


@parity_of("jsg")
class JSGParity(RetrievalParity[JSG]):
    """The golden cases of JSG's two variants, `event` and `video`.

    If a case runs a network, its kind begins with the variant.
    """

    model_name = "jsg"
    shared_settings = WITH_CLIPS | {"glance_weight": "clip_scale_w", "gaze_weight": "frame_scale_w"}
    recorded_ranks: ClassVar[dict[str, str]] = {
        "foreign glance": "rank_neg_query_for_video_glance",
        "candidate glance": "rank_neg_video_for_query_glance",
        **{
            f"candidate {branch}_{axis}": f"rank_neg_{name}_{branch}"
            for branch in ("glance", "attention", "gaze")
            for axis, name in (("rows", "video_for_query"), ("columns", "query_for_video"))
        },
    }

    def common(self, case: Case) -> Case:
        """Return the case without the variant at the beginning of its kind."""
        kind = case.kind.removeprefix(f"{case.config.get('variant')}-")
        return dataclasses.replace(case, config=case.config | {"case": kind})

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return the functions for cases of proposals, features and metrics."""
        return {"proposals": proposals, "feature-pipeline": feature_pipeline, "metrics": metrics}

    def rules(self, case: Case) -> Rules:
        """Return the tolerances.

        Tolerances of spans are in seconds. Recalls were recorded in percent with two decimals.

        The bias of the convolution has no effect, because a layer norm follows. Therefore the true gradient of this
        bias is zero. The recorded gradient is the rounding error of a large sum, and its tolerance is 1e-3. BertAdam's
        first update from such noise is 0.1 / sqrt(0.001) = 3.2 times the learning rate in either direction. The
        tolerance of the final bias is therefore 6.4 times the sum of the learning rates.

        The gradients of the convolution's four weights have large rounding errors for the same reason. At gradients of
        0.16, float32 differs from float64 by 5e-6 in a direct implementation and by 7e-6 in ours. The tolerance is
        therefore 1e-4 of the largest entry.
        """
        rates = sum_of_rates(case)
        cosines = r"expected/(glance|gaze|attention|fused|gaze_proposal)_scores|expected/matched_.*"
        events = r"expected/(topk_scores|ranked_score|nms_score)"
        noise = [
            (rf"grads/{re.escape(CONV_BIAS)}", Tolerance(1e-3)),
            (rf"grads/{re.escape(CONV_WEIGHT)}", Tolerance(1e-6, 1e-4)),
            (rf"weights_final/{re.escape(CONV_BIAS)}", Tolerance(6.4 * rates)),
        ]
        limits = [
            (cosines, Tolerance(5e-6 if is_updated(case) else 1e-6)),
            (events, Tolerance(1e-6)),
            (r"expected/(ranked|nms)_span_seconds", Tolerance(1e-4)),
            (r"expected/(glance|gaze)_proposals|expected/encoded_.*", Tolerance(2e-5)),
            (r"expected/intra_.*", Tolerance(1e-7, 1e-5)),
            (r"expected/.*recall.*", Tolerance(1e-4)),
        ]
        return [*noise, *limits, *super().rules(case)]

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the settings of the case by their names in our model."""
        case.require_constant("sigma", WIDTHS_PER_DEVIATION)
        names = {
            "variant": "variant",
            "num_centers": "num_gauss_center",
            "num_widths": "num_gauss_width",
            "min_width": "width_lower_bound",
            "max_width": "width_upper_bound",
            "sliding_step": "window_size_inc",
            "num_focus_widths": "num_props",
            "pool_size": "pooling_ksize",
            "pool_stride": "pooling_stride",
            "conv_size": "conv_ksize",
            "conv_stride": "conv_stride",
            "intra_margin": "intra_margin",
            "whole_margin": "intra_whole_margin",
        }
        return {ours: case.setting(theirs) for ours, theirs in names.items()} | {
            "proposals": "centered" if case.setting("clip_proposal") == "center_based" else "sliding",
            "glance_input": "coarse" if case.setting("global_sample") else "clips",
            "shared_encoder": str(case.setting("shared_trans")).lower() == "true",
            "frame_sampling": "padded",
        }

    def loss_weights(self, case: Case) -> dict[str, float]:
        """Return the weights of the loss terms.

        The variant `event` has no losses of the attention branch. The variant `video` has no InfoNCE loss of the gaze
        branch, and no losses that compare spans of the same video.
        """
        c = case.config
        if case.setting("variant") == "video":
            return dict.fromkeys(("gaze_nce", "intra_left", "intra_right", "intra_whole"), 0.0) | {
                "glance_nce": c["nce_glance_weight"],
                "glance_triplet": 1.0,
                "attention_nce": c["nce_attention_weight"],
                "attention_triplet": c["triplet_attention_weight"],
                "gaze_triplet": 1.0,
            }
        sides = c["alpha3"] * c["beta1"]
        return {
            "glance_nce": c["alpha1"] * c["nce_glance_weight"],
            "glance_triplet": c["alpha1"],
            "attention_nce": 0.0,
            "attention_triplet": 0.0,
            "gaze_nce": c["alpha2"] * c["nce_gaze_weight"],
            "gaze_triplet": c["alpha2"],
            "intra_left": sides,
            "intra_right": sides,
            "intra_whole": c["alpha3"] * c["beta2"],
        }

    def encodings(self, model: JSG, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return query vectors, the coarse video rows of the glance branch, and the frames."""
        return {
            "query_vectors": queries.sentence,
            "encoded_coarse": clips_of(videos),
            "encoded_fine": JSGVideos.of(videos).frames,
        }

    def scores(
        self, model: JSG, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the scores.

        The scores of the gaze branch have the same names in training and evaluation, but are computed differently.
        """
        if model.training:
            return self._training_scores(model, queries, videos, batch)
        scores = model.score(queries, videos)
        sentence = queries.sentence
        videos = JSGVideos.of(videos)
        glance_proposals = model.glance_pooled(videos)
        gaze_proposals = model.gaze_pooled(videos)
        return {
            "proposal_center": model.proposals.center,
            "proposal_width": model.proposals.width,
            "glance_proposals": glance_proposals,
            "gaze_proposals": gaze_proposals,
            "glance_scores": scores["glance"].value,
            "glance_scores_raw": max_sim(sentence, glance_proposals, similarity="dot").value,
            "glance_best_is_unique": lead_of_best(sentence, glance_proposals) > TIE,
            "glance_best_proposal": required_best(scores["glance"]),
            "gaze_scores": scores["gaze"].value,
            "gaze_scores_raw": max_sim(sentence, gaze_proposals, similarity="dot").value,
            "attention_scores": model.attention_score(queries, videos).value,
            "fused_scores": scores.fused,
        }

    def _training_scores(
        self, model: JSG, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        sentence = queries.sentence
        index = batch.video_index
        videos = JSGVideos.of(videos)
        glance = max_sim(sentence, model.glance_pooled(videos))
        own_best = required_best(glance).gather(1, index[:, None])[:, 0]
        gaze = model.gaze(sentence, videos, own_best, index)
        unit_query = F.normalize(sentence, dim=-1)
        unit_proposals = F.normalize(gaze.proposals, dim=-1)
        return {
            "focus_center": gaze.focus,
            "focus_width": gaze.widths,
            "gaze_proposal_scores": torch.einsum("nd,mkd->nmk", unit_query, unit_proposals),
            "gaze_scores": gaze.cosine.value,
            "gaze_scores_raw": gaze.dot,
            "matched_left": gaze.left,
            "matched_right": gaze.right,
            "matched_whole": gaze.whole,
        }

    def loss_arrays(
        self, case: Case, model: JSG, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the loss terms under their recorded names."""
        contrastive = {f"{kind}_{b}": terms[f"{b}_{kind}"] for b in BRANCHES for kind in ("nce", "triplet")}
        return contrastive | {name: term for name, term in terms.items() if name.startswith("intra_")}

    def _network(self, case: Case) -> Arrays:
        arrays = super()._network(case)
        if case.kind.startswith("forward"):
            arrays |= expected(self._events(case))
        return arrays

    @torch.no_grad()
    def _events(self, case: Case) -> Arrays:
        """Return the down-sampled inputs, and one ranking of all videos' moments, with and without suppression."""
        case.require(("durations",))
        model = self.model(case).eval()
        batch = case.training_batch()
        assert isinstance(model, JSG)
        frames = batch.videos.frames
        mask = batch.videos.frame_mask
        arrays: dict[str, Tensor] = {}
        if model.down_sampling is not None:
            arrays["pooled_features"], arrays["pooled_mask"] = model.down_sampling.pooled(frames, mask)
            arrays["coarse_input"], arrays["coarse_mask"] = model.down_sampling(frames, mask)
        queries = model.encode_queries(batch.queries)
        videos = model.encode_videos(batch.videos)
        settings = LocateSettings(
            per_video=case.setting("npev"),
            before_suppression=case.setting("max_vcmr_props"),
            max_overlap=case.setting("nms_threshold"),
        )
        proposals, similarities = model.window_similarities(queries, videos)
        top = top_windows(similarities(slice(None)), settings.per_video)
        duration_s = torch.from_numpy(case.batch["durations"])
        ranked = model.rank_moments(queries, videos, duration_s, settings)
        located = model.locate(queries, videos, duration_s, settings)
        return {name: tensor.numpy().astype(np.float32) for name, tensor in arrays.items()} | {
            "topk_spans": proposals.spans[top.window].numpy(),
            "topk_scores": top.score.numpy(),
            "ranked_video": ranked.video_index,
            "ranked_span_seconds": ranked.span_s,
            "ranked_score": ranked.score,
            "nms_count": located.count,
            "nms_video": located.video_index,
            "nms_span_seconds": located.span_s,
            "nms_score": located.score,
        }

    def align(
        self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray, exact: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both arrays without the best proposals whose cosine nearly equals the cosine of another proposal."""
        if not name.startswith("expected/"):
            return super().align(case, name, ours, theirs, exact)
        if ours.shape != theirs.shape or not name.startswith("expected/glance_best_"):
            return ours, theirs
        if name.endswith("_proposal"):
            counted = case.expected["glance_best_is_unique"]
        else:
            recorded = (torch.from_numpy(case.expected[part]) for part in ("query_vectors", "glance_proposals"))
            counted = ((lead_of_best(*recorded) - TIE).abs() > TIE / 5).numpy()
        return ours[counted], theirs[counted]


def lead_of_best(query: Tensor, proposals: Tensor) -> Tensor:
    """Return the difference between the two largest proposal cosines, for each query and video [Q, V]."""
    unit_query = F.normalize(query.double(), dim=-1)
    unit_proposals = F.normalize(proposals.double(), dim=-1)
    best = torch.einsum("qd,vpd->qvp", unit_query, unit_proposals).topk(2).values
    return best[..., 0] - best[..., 1]


def proposals(case: Case) -> dict[str, Tensor]:
    """Return the centers, widths and pooling weights of proposals.

    The array `sliding_UNITS_STEP` lists the sliding windows over UNITS units with step STEP.
    """
    arrays: dict[str, Tensor] = {}
    scale = float(case.setting("sigma"))
    for setting in case.setting("settings"):
        bounds = {"min_width": setting["width_lower_bound"], "max_width": setting["width_upper_bound"]}
        centered = centered_proposals(setting["num_gauss_center"], setting["num_gauss_width"], **bounds)
        name = setting["name"]
        arrays |= {f"{name}/center": centered.center, f"{name}/width": centered.width}
        for length in setting["lengths"]:
            weights = pooling_weights(centered.center, centered.width, time_grid(length), scale=scale)
            arrays[f"{name}/pooling_weight_{length}"] = weights
    for name in {key.partition("/")[0] for key in case.expected if key.startswith("sliding_")}:
        _, units, step = name.split("_")
        sliding = sliding_proposals(int(units), step=int(step), min_width=0.05, max_width=1.0)
        arrays |= {f"{name}/center": sliding.center, f"{name}/width": sliding.width}
    center, width = (torch.from_numpy(case.batch[f"negative_{part}"]) for part in ("center", "width"))
    windows = side_windows(center, width, "released")
    side_scale = scale * windows.scale / WIDTHS_PER_DEVIATION
    for length in {int(key.rpartition("_")[2]) for key in case.expected if key.startswith("negative_")}:
        side = gaussian_windows(windows.center, windows.width, time_grid(length), scale=side_scale)
        arrays |= {f"negative_left_weight_{length}": side[:, 0], f"negative_right_weight_{length}": side[:, 1]}
    return arrays


def feature_pipeline(case: Case) -> Arrays:
    """Return the packed clips and frames of a data set with one video, in float32 as in JSG's program."""
    arrays = {}
    for name in case.expected:
        kind, _, count = name.partition("_")
        size = int("".join(c for c in kind if c.isdigit()))
        fixed = not kind.startswith("notfixed")
        settings = PackSettings(num_clips=size, max_frames=size, fixed_frames=fixed, precision="float32")
        frames = {"v": case.batch[f"features_{count}"]}
        words = {"v#0": np.ones((1, 1), np.float32)}
        features = dataset_of_arrays(frames, words, [Annotation("v", "v#0", "?")], settings).features
        arrays[name] = features.clips[0] if kind.startswith("clip") else features.frames.rows
    return arrays


def metrics(case: Case) -> Arrays:
    """Return the moments after suppression, event recall with and without suppression, and the video metrics."""
    ranked = RankedMoments(*(case.batch[f"prediction_{name}"] for name in ("video", "span", "score")))
    candidates = RankedMoments(*(array[:, : case.setting("max_before_nms")] for array in dataclasses.astuple(ranked)))
    limit = case.setting("max_after_nms")
    best = suppress_ranked(candidates, max_overlap=case.setting("nms_threshold"), limit=limit)
    counts = case.batch["ground_truth_count"]
    spans = case.batch["ground_truth_span"]
    truth = [rows[:count] for rows, count in zip(spans, counts, strict=True)]
    arrays = {"nms_count": best.count, "nms_video": best.video_index, "nms_span": best.span_s, "nms_score": best.score}
    for name, moments in (("recall_with_nms", best), ("recall_without_nms", ranked)):
        recalls = event_recall(
            moments.video_index,
            moments.span_s,
            case.batch["ground_truth_video"],
            truth,
            at=case.setting("recall_at"),
            min_iou=case.setting("iou_thresholds"),
        )
        arrays[name] = np.array(list(recalls.values())).round(2).reshape(-1, len(case.setting("recall_at")))
    video_cutoffs = [int(name.removeprefix(RECALL)) for name in case.expected if name.startswith(RECALL)]
    videos = retrieval_metrics(case.batch["video_scores"], case.batch["video_ground_truth"], at=video_cutoffs)
    names = {f"R@{k}": f"{RECALL}{k}" for k in video_cutoffs}
    names |= {"median_rank": "video_median_rank", "mean_rank": "video_mean_rank", "mAP": "video_mean_average_precision"}
    return arrays | {theirs: np.array(videos[ours], dtype=np.float32) for ours, theirs in names.items()}
