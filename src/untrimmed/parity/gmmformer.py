"""Compare GMMFormer and GMMFormer v2 with their released programs (golden cases)."""

from operator import itemgetter
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch, clips_of, frames_of
from untrimmed.losses.draws import Draws
from untrimmed.losses.matching import matched_pairs
from untrimmed.models.two_branches import TwoBranchModel, TwoBranchVideos
from untrimmed.parity.case import Case
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import RetrievalParity, Tap, branch_losses


@parity_of("gmmformer")
class GMMFormerParity(RetrievalParity[TwoBranchModel]):
    """The golden cases of GMMFormer, which has two blocks in each branch and four parallel layers in each block."""

    model_name = "gmmformer"
    terms: ClassVar[tuple[str, ...]] = ("clip_nce", "frame_nce", "query_diversity_v1")

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the settings of the query diversity loss."""
        margin, scale = case.setting("neg_factor") if "neg_factor" in case.config else (0.15, 32.0)
        return {"losses": {"query_diversity_v1": {"margin": margin, "scale": scale}}}

    def loss_weights(self, case: Case) -> dict[str, float]:
        """Return the recorded weights of the loss terms. The triplet terms have weight 1."""
        weights = dict(zip(self.terms, case.setting("loss_factor"), strict=True))
        return {"clip_triplet": 1.0, "frame_triplet": 1.0} | weights

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """List the modules whose outputs are compared: towers, blocks, and the layers of each branch's first block."""
        taps = [
            *_common_taps(),
            Tap("clip_encoder", "clip_tower.blocks.0"),
            Tap("clip_encoder_2", "clip_tower.blocks.1"),
            Tap("frame_encoder_1", "frame_tower.blocks.0"),
            Tap("frame_encoder_2", "frame_tower.blocks.1"),
            Tap("modular_vector_mapping_2", "frame_pooling.score"),
        ]
        num_layers = len(model.config.gaussian_widths)
        for theirs, ours in (("clip_encoder", "clip_tower"), ("frame_encoder_1", "frame_tower")):
            taps += _layer_taps(theirs, f"{ours}.blocks.0.layers", num_layers)
        return taps

    def encodings(self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return the query vectors, the clips, and one pooled vector per video."""
        pooled = TwoBranchVideos.of(videos).video
        assert pooled is not None, "the golden cases are of GMMFormer with its own frame branch"
        return {"query_vectors": queries.sentence, "encoded_clips": clips_of(videos), "video_vectors": pooled}

    def scores(
        self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the scores of both branches by cosine and by dot product, and the fused score."""
        arrays = {"fused_scores": model.score(queries, videos).fused}
        for branch, score in model.branch_sims(queries, videos).items():
            arrays[f"{branch}_scores"] = score.value
        for branch, score in model.branch_sims(queries, videos, "dot").items():
            arrays[f"{branch}_scores_raw"] = score.value
        return arrays

    def loss_arrays(
        self, case: Case, model: TwoBranchModel, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the losses of both branches and the query diversity loss."""
        index = case.training_batch().video_index
        arrays = {"query_diverse": terms[self.terms[2]]}
        for branch in ("clip", "frame"):
            arrays[f"nce_{branch}"] = terms[f"{branch}_nce"]
            arrays[f"triplet_{branch}"] = terms[f"{branch}_triplet"]
            cosine = scores[f"{branch}_scores"]
            dot = scores[f"{branch}_scores_raw"]
            arrays |= branch_losses(branch, cosine, dot, index, draws, model.config.margin)
        return arrays


class ConsolidatedParity(GMMFormerParity):
    """Base class for GMMFormer v2 and for methods that extend it.

    These methods have one block of parallel layers in each branch. *Temporal consolidation* mixes the outputs of the
    layers at each time point. A token determines the weights of the layers.
    """

    blocks: ClassVar[tuple[tuple[str, str], ...]] = (("clip_encoder", "clip_block"), ("frame_encoder_1", "frame_block"))
    tokens: ClassVar[str] = "cross_tokens"  # the released name of the token that determines the weights of the layers

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the temperature of the temporal consolidation and the settings of the query diversity loss."""
        margin, scale, focus = case.setting("neg_factor") if "neg_factor" in case.config else (0.15, 32.0, 1.0)
        diversity = {"margin": margin, "scale": scale, "focus": focus}
        return {"temperature": case.setting("sft_factor"), "losses": {"query_diversity": diversity}}

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """List the modules whose outputs are compared: towers, blocks, and the parts of temporal consolidation."""
        taps = _common_taps()
        for theirs, ours in self.blocks:
            taps += [
                Tap(theirs, ours),
                Tap(f"{theirs}.{self.tokens}", f"{ours}.aggregation.reader", lambda read: read.transpose(0, 1)),
                Tap(f"{theirs}.layer2", f"{ours}.aggregation.weights", lambda weights: weights.transpose(0, 1)),
            ]
        return taps

    def encodings(self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return query vectors, clips, and frames. As in the authors' program, frames are padded to full length."""
        frames = frames_of(videos)[0]
        padding = model.config.max_frames - frames.shape[1]
        return {
            "query_vectors": queries.sentence,
            "encoded_clips": clips_of(videos),
            "encoded_frames": F.pad(frames, (0, 0, 0, padding)),
        }


@parity_of("gmmformer-v2")
class GMMFormerV2Parity(ConsolidatedParity):
    """The golden cases of GMMFormer v2. In each block, a learned token determines the weights of eight layers."""

    model_name = "gmmformer_v2"
    terms: ClassVar[tuple[str, ...]] = ("clip_nce", "frame_nce", "query_diversity", "optimal_matching")
    tokens = "tcm_tokens"

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the settings of `ConsolidatedParity`, and an empty entry that adds the matching loss."""
        values = super().settings(case)
        values["losses"] |= {"optimal_matching": {}}
        return values

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """List the modules whose outputs are compared: the modules of `ConsolidatedParity`, and the parallel layers."""
        num_layers = len(model.config.gaussian_widths)
        layers = (_layer_taps(theirs, f"{ours}.layers", num_layers) for theirs, ours in self.blocks)
        return super().taps(model) + [tap for taps in layers for tap in taps]

    def loss_arrays(
        self, case: Case, model: TwoBranchModel, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the losses of GMMFormer, the matching loss and the matched pairs."""
        arrays = super().loss_arrays(case, model, scores, terms, draws)
        index = case.training_batch().video_index
        pairs = matched_pairs(scores["query_vectors"], scores["encoded_clips"], index)
        return arrays | {"optimal_matching": terms["optimal_matching"], "om_pairs": pairs}


def _common_taps() -> list[Tap]:
    taps = [
        Tap("modular_vector_mapping", "query_tower.pooling.score"),
        Tap("query_encoder", "query_tower.tower.blocks.0"),
    ]
    for theirs, tower in (("query", "query_tower.tower"), ("clip", "clip_tower"), ("frame", "frame_tower")):
        taps += [Tap(f"{theirs}_input_proj", f"{tower}.input"), Tap(f"{theirs}_pos_embed", f"{tower}.positions")]
    return taps


def _layer_taps(theirs: str, ours: str, num_layers: int) -> list[Tap]:
    return [Tap(f"{theirs}.attn{k}", ours, itemgetter(k)) for k in range(num_layers)]
