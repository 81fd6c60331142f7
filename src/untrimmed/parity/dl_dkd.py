"""Compare DL-DKD with its released program (golden cases). The kinds of DL-DKD++ cases begin with `pp-`."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, get_args

import numpy as np
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch
from untrimmed.data.packed import TeacherRule
from untrimmed.losses.distillation import MASKED_LOGIT, distillation_per_query, own_frame_cosines
from untrimmed.losses.draws import Draws
from untrimmed.losses.soft_nce import soft_nce_parts
from untrimmed.models.dl_dkd import DLDKD, DLDKDQueries, DLDKDVideos
from untrimmed.models.dl_dkd_decay import SIGMOID_SCALE, Decay, ShareDecay, distillation_decay, share_decay
from untrimmed.parity.case import Case
from untrimmed.parity.compare import Rules, Tolerance
from untrimmed.parity.data_cases import training_arrays
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import SIZES, RetrievalParity, Tap, branch_losses, is_updated
from untrimmed.scores.max_sim import max_sim

VERSIONS: dict[str, TeacherRule] = {"iccv": "conference", "pp": "later"}
DECAY_WAYS: tuple[Decay, ...] = get_args(Decay)  # the released program selects a decay by its index in this tuple
SCHEDULE_CONSTANTS = {
    "exponential_k": 0.95,
    "linear_k": -0.01,
    "linear_b": 1.0,
    "sigmoid_k": SIGMOID_SCALE,
    "selfDistil_sigmoid_k": SIGMOID_SCALE,
}
DECAY_NAMES: dict[str, ShareDecay] = {
    "exp": "exponential",
    "linear": "linear",
    "sigmoid": "sigmoid",
    "cosine": "cosine",
    "None": "constant",
}
# the common rules have no tolerance for these arrays, which only DL-DKD records
SCORES = r"expected/(inheritance|exploration|teacher)(_frame)?_scores"


@parity_of("dl-dkd")
class DLDKDParity(RetrievalParity[DLDKD]):
    """The golden cases of DL-DKD.

    The method has two branches. Only the inheritance branch learns from the teacher.
    """

    model_name = "dl_dkd"
    probe_sign = 1
    shared_settings = SIZES
    recorded_ranks: ClassVar[dict[str, str]] = {
        f"{side} {branch}": f"rank_neg_{name}_{branch}"
        for branch in ("inheritance", "exploration")
        for side, name in (("candidate", "video_for_query"), ("foreign", "query_for_video"))
    }

    def common(self, case: Case) -> Case:
        """Return the case without the prefix `pp-` in its kind, and with a number of clips.

        The released program never reads clips, so any number gives the same results.
        """
        kind = case.kind.removeprefix("pp-")
        return dataclasses.replace(case, config={"map_size": 32} | case.config | {"case": kind})

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return the functions for batches with a teacher, and for values that change with the epoch."""
        return {
            "schedules": lambda case: {name: _schedule(case, name) for name in case.expected},
            "collate": lambda case: training_arrays(
                case, teacher=VERSIONS[case.setting("variant")], sort_by="captions"
            ),
        }

    def rules(self, case: Case) -> Rules:
        """Return the tolerances. Scores of frames and of the teacher have the same tolerances as other cosines."""
        limit = 5e-6 if is_updated(case) else 1e-6
        return [(SCORES, Tolerance(limit)), (r"expected/kl", Tolerance(1e-7, 1e-5)), *super().rules(self.common(case))]

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the model's settings for branches and labels.

        The decays are switched off, because the recorded weight of distillation and the recorded shares of labels
        already include the decay.
        """
        soft = {"labels": "soft", "hard_share": case.config.get("alpha"), "label_share": case.config.get("belta")}
        return {
            "version": VERSIONS[case.setting("variant")],
            "dim": case.setting("inheritance_hidden"),
            "exploration_dim": case.setting("exploration_hidden") if case.setting("double_branch") else None,
            "two_branches": case.setting("double_branch"),
            "inheritance_weight": case.setting("fusion")["inheritance"],
            "exploration_weight": case.setting("fusion")["exploration"],
            "distillation_decay": "constant",
            "share_decay": "constant",
        } | (soft if case.config.get("label_style") == "soft" else {})

    def loss_weights(self, case: Case) -> dict[str, float]:
        """Return the weights of the loss terms, in the order in which the case recorded the terms."""
        weights = {
            "inheritance_triplet": 1.0,
            "inheritance_nce": case.setting("nce_weight_inheritance"),
            "distillation": case.setting("kl_weight") * case.setting("kl_decay_factor"),
        }
        if not case.setting("double_branch"):
            return weights
        return weights | {"exploration_triplet": 1.0, "exploration_nce": case.setting("nce_weight_exploration")}

    def taps(self, model: DLDKD) -> list[Tap]:
        """List the modules whose outputs are compared: each branch's input layer, positions, attention and encoder.

        The output of an attention layer is compared before the output projection.
        """
        is_later = model.config.version == "later"
        prefixes = (
            {"inheritance": "", "exploration": "exp_"} if is_later else {"inheritance": "B_", "exploration": "A_"}
        )
        frame = "visual" if is_later else "frame"
        taps = []
        for branch in ("inheritance", "exploration") if model.config.two_branches else ("inheritance",):
            prefix = prefixes[branch]
            tower = f"{branch}.frame_tower"
            taps += [
                Tap(f"{prefix}{frame}_input_proj", f"{tower}.input"),
                Tap(f"{prefix}{frame}_pos_embed", f"{tower}.positions"),
                Tap(f"{prefix}{frame}_encoder.self", f"{tower}.blocks.0.layers.attention", itemgetter(0)),
                Tap(f"{prefix}{frame}_encoder", f"{tower}.blocks.0"),
                Tap(f"{prefix}query_pos_embed", f"{branch}.query_positions"),
                Tap(f"{prefix}query_encoder.self", f"{branch}.query_layer.layers.attention", itemgetter(0)),
                Tap(f"{prefix}query_encoder", f"{branch}.query_layer"),
                Tap(f"{prefix}modular_vector_mapping", f"{branch}.query_pooling.score"),
            ]
            if model.get_submodule(branch).query_input is not None:
                taps.append(Tap(f"{prefix}query_input_proj", f"{branch}.query_input"))
        return taps

    def encodings(self, model: DLDKD, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return the query and frame vectors of each branch."""
        queries = DLDKDQueries.of(queries)
        videos = DLDKDVideos.of(videos)
        arrays = {"inheritance_query": queries.sentence, "inheritance_frames": videos.frames}
        if queries.exploration is not None and videos.exploration_frames is not None:
            arrays["exploration_query"] = queries.exploration
            arrays["exploration_frames"] = videos.exploration_frames
        return arrays

    def scores(
        self, model: DLDKD, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the scores of each branch and of the teacher, and the cosines of all frames.

        A score is the largest cosine or dot product of the query with a frame of the video.
        """
        scores = model.score(queries, videos)
        dot = model.branch_sims(queries, videos, "dot")
        sentence = batch.queries.teacher
        frames = batch.videos.teacher
        mask = batch.videos.frame_mask
        assert sentence is not None
        assert frames is not None
        arrays = {
            "fused_scores": scores.fused,
            "teacher_scores": max_sim(sentence, frames, mask).value,
            "teacher_scores_raw": max_sim(sentence, frames, mask, similarity="dot").value,
            "teacher_frame_scores": _frame_cosines(sentence, frames, mask),
        }
        encoded = self.encodings(model, queries, videos)
        for name, score in scores.branches.items():
            arrays[f"{name}_scores"] = score.value
            arrays[f"{name}_scores_raw"] = dot[name].value
            arrays[f"{name}_frame_scores"] = _frame_cosines(encoded[f"{name}_query"], encoded[f"{name}_frames"], mask)
        return arrays

    def loss_arrays(
        self, case: Case, model: DLDKD, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return each branch's losses and their parts, and each query's divergence from the scores of the teacher."""
        batch = case.training_batch()
        c = model.config
        index = batch.video_index
        mask = batch.videos.frame_mask
        assert batch.queries.teacher is not None
        assert batch.videos.teacher is not None
        student = own_frame_cosines(scores["inheritance_query"], scores["inheritance_frames"], index)
        taught = own_frame_cosines(batch.queries.teacher, batch.videos.teacher, index)
        arrays = {
            "kl": terms["distillation"],
            "kl_per_query": distillation_per_query(student, taught, mask[index], temperature=c.temperature),
        }
        for branch in ("inheritance", "exploration") if c.two_branches else ("inheritance",):
            cosine = scores[f"{branch}_scores"]
            dot = scores[f"{branch}_scores_raw"]
            arrays |= branch_losses(branch, cosine, dot, index, draws, c.margin)
            guide = scores["teacher_scores_raw"] if branch == "inheritance" else dot
            parts = soft_nce_parts(dot, guide, index, hard_share=c.hard_share, label_share=c.label_share)
            for side in ("hard", "soft"):
                arrays[f"nce_{branch}_{side}_t2v"] = getattr(parts, f"{side}_queries")
                arrays[f"nce_{branch}_{side}_v2t"] = getattr(parts, f"{side}_videos")
            arrays[f"nce_{branch}"] = terms[f"{branch}_nce"]
            arrays[f"triplet_{branch}"] = terms[f"{branch}_triplet"]
        return arrays

    def _row_mask(self, case: Case, name: str) -> np.ndarray | None:
        if not name.startswith("expected/mid."):
            return case.batch["videos_mask"] > 0 if name.startswith("expected/") and name.endswith("_frames") else None
        is_text = "query_" in name or "modular_vector_mapping" in name
        return case.batch["text_mask" if is_text else "videos_mask"] > 0


def _frame_cosines(query: Tensor, frames: Tensor, mask: Tensor) -> Tensor:
    """Return the cosine of every query and frame [Q, T, V]. Padding has the same value as in the released program."""
    rows = frames.flatten(0, 1)[:, None]
    real = mask.flatten()
    cosine = max_sim(query, rows).value.masked_fill(~real, MASKED_LOGIT)
    return cosine.unflatten(1, mask.shape).transpose(1, 2)


def _schedule(case: Case, name: str) -> np.ndarray:
    """Return one number per epoch: the distillation weight, or a share of the labels."""
    num_epochs = case.setting("n_epoch")
    for constant, value in SCHEDULE_CONSTANTS.items():
        case.require_constant(constant, value)
    what, _, way = name.rpartition("_")
    if what == "kl_decay":
        kind = DECAY_WAYS[int(way.removeprefix("way"))] if way.startswith("way") else DECAY_NAMES[way]
        return np.array([distillation_decay(kind, epoch) for epoch in range(num_epochs)])  # type: ignore[arg-type]
    start = case.setting({"alpha": "alpha", "beta": "belta"}[what])
    floor = 0.5 if what == "beta" and start >= 0.5 else 0.0
    course = partial(share_decay, DECAY_NAMES[way], start=start, floor=floor, num_epochs=num_epochs)
    return np.array([course(epoch) for epoch in range(num_epochs)])
