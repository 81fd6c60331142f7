"""Compare Holmes with its released program (golden cases): the whole network, and two losses alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch
from untrimmed.losses import evidence, transport
from untrimmed.losses.draws import Draws
from untrimmed.losses.evidence import Division, dirichlet_error
from untrimmed.models.evidential_losses import EvidenceLoss, TransportLoss
from untrimmed.models.two_branches import TwoBranchModel
from untrimmed.nn.aggregation import mean_of
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import Rules, Tolerance
from untrimmed.parity.data_cases import toy_dataset
from untrimmed.parity.gmmformer import GMMFormerParity, GMMFormerV2Parity
from untrimmed.parity.lorentz import gradient_of
from untrimmed.parity.ral import word_encodings, word_scores
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import Tap
from untrimmed.running.batches import video_batch

# Evidence e is compared as log(e + 1), because the released program computes e + 1 - 1 in float32. This removes the
# last digits of a small e.
LIMITS: Rules = (
    (r"expected/(\w+\.)?evidence_", Tolerance(4e-5)),
    (r"expected/((\w+\.)?plan|(\w+\.)?similarity|transport_)", Tolerance(5e-6)),
)
BRANCHES = ("frame", "clip")


@parity_of("holmes")
class HolmesParity(GMMFormerV2Parity):
    """The golden cases of Holmes.

    The network is GMMFormer v2 with other attention windows, another token, and two additional losses (`evidence` and
    `transport`).
    """

    terms = ("clip_nce", "frame_nce", "query_diversity", "transport", "evidence")

    def common(self, case: Case) -> Case:
        """Return the case without the prefix `dual-` in its kind. The prefix marks networks with two query branches."""
        return replace(case, config=case.config | {"case": case.kind.removeprefix("dual-")})

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return the functions for cases of the two additional losses."""
        return {"evidence": _evidence, "transport": _transport}

    def rules(self, case: Case) -> Rules:
        """Return the tolerances of evidence and transport plans, followed by the common tolerances."""
        return [*LIMITS, *super().rules(case)]

    def name_of(self, case: Case) -> str:
        """Return the model's name. With two query branches, RAL's branch scores frames by words."""
        return "holmes+ral" if case.setting("query_branch") == "dual" else "holmes"

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the temperature of the temporal consolidation and the settings of the three attached losses.

        The warm-up of the losses is set to epoch 0 only. A case that was recorded during the warm-up is then computed
        at epoch 0, and a later case at epoch 1.
        """
        margin, scale, focus = case.setting("neg_factor")
        losses = {
            "query_diversity": {"margin": margin, "scale": scale, "focus": focus},
            "evidence": {
                "temperature": case.setting("edl_tau"),
                "division_bound": case.setting("division_beta"),
                "smoothing": case.setting("smooth_beta"),
                "warmup_epoch": 1,
            },
            "transport": {
                "temperature": case.setting("edl_intra_video_tau"),
                "regularisation": case.setting("pot_scale"),
                "warmup_epoch": 1,
            },
        }
        ral = {"ral": {"msra": False}} if "ral" in self.name_of(case) else {}
        return ral | {"temperature": case.setting("sft_factor"), "losses": losses}

    def epoch(self, case: Case, step: int = 0) -> int:
        """Return 0 if the step was recorded during the warm-up of the losses, otherwise 1."""
        switched = case.config.get("warmup_end_per_step")
        return int(case.setting("warmup_end") if switched is None else switched[step])

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """List the modules whose outputs are compared: GMMFormer v2's modules, tokens, and all layers of a block."""
        taps = [tap for tap in super().taps(model) if ".attn" not in tap.theirs]
        # both query towers call the same position module, whose two outputs were recorded under the same name
        if "ral" in model.attachments:
            taps = [tap for tap in taps if tap.theirs != "query_pos_embed"]
        for theirs, ours in (("clip_encoder", "clip_block"), ("frame_encoder_1", "frame_block")):
            taps.append(Tap(f"{theirs}.token", f"{ours}.layers", mean_of))
        return [
            *taps,
            Tap("clip_encoder.e_attns", "clip_block.layers", lambda outputs: outputs.transpose(0, 1)),
            Tap("frame_encoder_1.e_attns_video0", "frame_block.layers", lambda outputs: outputs[:, 0]),
        ]

    def encodings(self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return query vectors, clips and frames. If there is a second query branch, also return its word vectors."""
        words = word_encodings(model, queries) if "ral" in model.attachments else {}
        return super().encodings(model, queries, videos) | words

    def scores(
        self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the scores. If there is a second query branch, the frame branch compares words with frames."""
        words = word_scores(model, queries, videos) if "ral" in model.attachments else {}
        return super().scores(model, queries, videos, batch) | words

    def loss_arrays(
        self, case: Case, model: TwoBranchModel, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the losses of both branches, the attached losses, and intermediate values of the evidential losses."""
        arrays = GMMFormerParity.loss_arrays(self, case, model, scores, terms, draws)
        index = case.training_batch().video_index
        c = _config(model, EvidenceLoss)
        t = _config(model, TransportLoss)
        cosines = [scores[f"{branch}_scores"] for branch in BRANCHES]
        settings = {"temperature": c.temperature, "bound": c.division_bound, "smoothing": c.smoothing}
        arrays |= evidence_arrays(cosines, index, is_switched=bool(self.epoch(case)), **settings)
        query = scores["query_vectors"]
        clips = scores["encoded_clips"]
        share = case.setting("pot_prompt_ratio")
        plan = plan_arrays(query, clips, index, share, regularisation=t.regularisation, iterations=t.iterations)
        arrays |= {f"transport_{name}": array for name, array in plan.items()}
        return arrays | {"intra_video": terms["transport"]}

    def watched(self, case: Case, model: TwoBranchModel, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        """Return which queries are ambiguous at this step.

        The result is empty during the warm-up, because queries are classified only after the warm-up.
        """
        if not self.epoch(case, step):
            return {}
        scores = model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
        c = _config(model, EvidenceLoss)
        cosines = [scores[branch].value for branch in BRANCHES]
        parts = _divisions(cosines, batch.video_index, temperature=c.temperature, bound=c.division_bound)
        return {"ambiguous_per_step": evidence.ambiguous(parts).long()}

    def align(
        self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray, exact: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log(e + 1) for evidence e, and transport plans without rows of padding."""
        array = name.rpartition(".")[2].removeprefix("expected/")
        if array.startswith("evidence_"):
            return np.log1p(ours.astype(np.float64)), np.log1p(theirs.astype(np.float64))
        mask = name.removesuffix(array) + ("transport_mask" if "transport_" in array else "mask")
        if array.removeprefix("transport_") in ("similarity", "plan"):
            real = case.expected[mask.removeprefix("expected/")] > 0
            return ours[real], theirs[real]
        return super().align(case, name, ours, theirs, exact)

    def _evaluation(self, case: Case) -> Arrays:
        """Return the results of an evaluation, and its input clips."""
        dataset = toy_dataset(case, case.config.get("eval_split", "val"))
        batch = video_batch(dataset, np.arange(len(dataset.video_ids)))
        return super()._evaluation(case) | {"expected/clip_video_features": batch.clips.numpy()}

    def _row_mask(self, case: Case, name: str) -> np.ndarray | None:
        """Return the mask of the rows to compare, or None for all rows.

        Padding of frames is also compared, because the token depends on the padding.
        """
        if name.startswith("expected/mid.frame"):
            return None
        return case.batch["text_mask"] > 0 if name == "expected/frame_query_tokens" else super()._row_mask(case, name)


def _config(model: TwoBranchModel, loss: type[EvidenceLoss] | type[TransportLoss]) -> Any:
    """Return the settings of a loss that is attached to the model."""
    return model.attachments[loss.name].config


def _divisions(cosines: Sequence[Tensor], index: Tensor, *, temperature: float, bound: float) -> list[Division]:
    return [
        evidence.divide(cosine, evidence.evidence(cosine, temperature=temperature), index, bound=bound)
        for cosine in cosines
    ]


def evidence_arrays(
    cosines: Sequence[Tensor], index: Tensor, *, temperature: float, bound: float, smoothing: float, is_switched: bool
) -> dict[str, Tensor]:
    """Return evidence, errors, groups and labels by recorded name, computed from the cosines of frames and of clips."""
    pairs = zip(BRANCHES, cosines, strict=True)
    values = {branch: evidence.evidence(cosine, temperature=temperature) for branch, cosine in pairs}
    values["combined"] = evidence.combine(*values.values())
    parts = _divisions(cosines, index, temperature=temperature, bound=bound)
    is_ambiguous = evidence.ambiguous(parts) & is_switched
    target = evidence.smoothed_labels(cosines, index, is_ambiguous, smoothing=smoothing)
    arrays = {"final_labels": target, "ambiguous": is_ambiguous.long()}
    for name, e in values.items():
        arrays |= {f"evidence_{name}": e, f"edl_{name}": dirichlet_error(target, e).mean()}
    for branch, part in zip(BRANCHES, parts, strict=True):
        arrays |= {
            f"division_{branch}": part.group,
            f"uncertainty_{branch}": part.uncertainty,
            f"consensus_{branch}": part.consensus,
            f"expected_entropy_{branch}": part.entropy,
            f"uncertainty_limit_{branch}": part.uncertainty_limit,
            f"consensus_limit_{branch}": part.consensus_limit,
            f"median_entropy_{branch}": part.entropy_limit,
        }
    return arrays


def plan_arrays(
    query: Tensor, clips: Tensor, index: Tensor, share: float, *, regularisation: float, iterations: int
) -> dict[str, Tensor]:
    """Return the similarities, the transport plan and the dustbin value, by recorded name.

    The dustbin value is the k-th smallest similarity. The released program computes this value but does not use it.
    """
    shared = transport.similarities(query, clips, index)
    plan = transport.transport_plan(
        shared.similarity, shared.mask, regularisation=regularisation, iterations=iterations
    )
    buckets = []
    for similarity, mask in zip(shared.similarity, shared.mask, strict=True):
        real = similarity[mask].flatten()
        buckets.append(real.kthvalue(max(1, int(share * len(real)))).values)
    mask = shared.mask.to(plan.dtype)
    return {"similarity": shared.similarity, "plan": plan, "mask": mask, "bucket": torch.stack(buckets)}


def _evidence(case: Case) -> dict[str, Tensor]:
    arrays: dict[str, Tensor] = {}
    for block, settings in case.setting("blocks").items():
        index, cosines = _block(case, block, [f"{branch}_scores" for branch in BRANCHES])
        constants = {
            "temperature": settings["edl_tau"],
            "bound": settings["division_beta"],
            "smoothing": settings["smooth_beta"],
        }
        total = evidence.between_videos(cosines, index, divides=settings["warmup_end"], **constants)
        total.backward()
        terms = evidence_arrays(cosines, index, is_switched=settings["warmup_end"], **constants) | {"total": total}
        terms |= {f"grad_{name}_scores": gradient_of(cosine) for name, cosine in zip(BRANCHES, cosines, strict=True)}
        arrays |= {f"{block}.{name}": array for name, array in terms.items()}
    return arrays


def _transport(case: Case) -> dict[str, Tensor]:
    arrays: dict[str, Tensor] = {}
    iterations = TransportLoss.Config().iterations
    for block, settings in case.setting("blocks").items():
        index, (query, clips) = _block(case, block, ["query_vectors", "clips"])
        constants = {"regularisation": settings["pot_scale"], "iterations": iterations}
        loss = transport.inside_videos(query, clips, index, temperature=settings["edl_intra_video_tau"], **constants)
        loss.backward()
        terms = plan_arrays(query, clips, index, settings["pot_prompt_ratio"], **constants) | {"loss": loss}
        terms |= {"grad_query_vectors": gradient_of(query), "grad_clips": gradient_of(clips)}
        arrays |= {f"{block}.{name}": array for name, array in terms.items()}
    return arrays


def _block(case: Case, block: str, names: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
    """Return each query's video index, and the named inputs (with gradients) of one block of the case."""
    stored = [f"{block}.{name}" for name in ("text_labels", *names)]
    case.require(stored)
    index, *arrays = (torch.from_numpy(case.batch[name]) for name in stored)
    return index.long(), [array.requires_grad_() for array in arrays]
