"""Compare MS-SL with its released program (golden cases)."""

from operator import itemgetter
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch
from untrimmed.losses.draws import Draws
from untrimmed.losses.triplet import negative_videos, triplet_square_rows
from untrimmed.models.ms_sl import MSSL, MSSLVideos
from untrimmed.parity.case import Case
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import RetrievalParity, Tap, branch_losses
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import required_best


@parity_of("ms-sl")
class MSSLParity(RetrievalParity[MSSL]):
    """The golden cases of MS-SL.

    In training, the frame branch computes a query x query matrix of scores. The entry in row i and column j compares
    query i with the video of query j. Negatives are drawn from the rows and from the columns.
    """

    model_name = "ms_sl"
    probe_sign = 1
    recorded_ranks: ClassVar[dict[str, str]] = {
        "foreign clip": "rank_neg_query_for_video_clip",
        "candidate clip": "rank_neg_video_for_query_clip",
        "candidate frame_rows": "rank_neg_column_for_row_frame",
        "candidate frame_columns": "rank_neg_row_for_column_frame",
    }

    def settings(self, case: Case) -> dict[str, Any]:
        """Return no settings, because `shared_settings` contains all of them."""
        return {}

    def loss_weights(self, case: Case) -> dict[str, float]:
        """Return the weights of the loss terms from the settings of the case."""
        terms = ("nce_clip", "triplet_clip", "nce_frame", "triplet_frame")
        return {"_".join(reversed(term.split("_"))): case.setting("loss_weights")[term] for term in terms}

    def taps(self, model: MSSL) -> list[Tap]:
        """List the modules whose outputs are compared: input layers, positions, attentions and encoders of the towers.

        The output of an attention layer is compared before the output projection.
        """
        taps = [Tap("modular_vector_mapping", "query_tower.pooling.score")]
        for theirs, tower in (("query", "query_tower.tower"), ("clip", "clip_tower"), ("frame", "frame_tower")):
            taps += [
                Tap(f"{theirs}_input_proj", f"{tower}.input"),
                Tap(f"{theirs}_pos_embed", f"{tower}.positions"),
                Tap(f"{theirs}_encoder.self", f"{tower}.blocks.0.layers.attention", itemgetter(0)),
                Tap(f"{theirs}_encoder", f"{tower}.blocks.0"),
            ]
        return taps

    def encodings(self, model: MSSL, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return query vectors, clips, proposals and frames. The first proposals span one clip and equal the clips."""
        videos = MSSLVideos.of(videos)
        clips = videos.clips
        return {
            "query_vectors": queries.sentence,
            "encoded_clips": clips[:, : model.config.num_clips],
            "clip_proposals": clips,
            "proposals": clips,
            "encoded_frames": videos.frames,
            "videos_mask": videos.frame_mask.float(),
        }

    def scores(
        self, model: MSSL, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the scores of both branches, the frame branch's query x query matrices, and the pooled frames.

        The frames are pooled by attention to the best clip.
        """
        scores = model.score(queries, videos)
        videos = MSSLVideos.of(videos)
        sentence = queries.sentence
        clips = videos.clips
        key_clip = required_best(scores["clip"])
        assert model.guided_attention is not None, "the golden cases are of MS-SL with its own frame branch"
        seen = model.positive_frames(videos, key_clip, batch.video_index)
        return {
            "clip_scores": scores["clip"].value,
            "clip_scores_raw": max_sim(sentence, clips, similarity="dot").value,
            "frame_scores": scores["frame"].value,
            "fused_scores": scores.fused,
            "key_clip_index": key_clip,
            "key_clip_of_positive": key_clip.gather(1, batch.video_index[:, None])[:, 0],
            "train_frame_features": seen,
            "train_frame_scores": F.normalize(sentence, dim=-1) @ F.normalize(seen, dim=-1).T,
            "train_frame_scores_raw": sentence @ seen.T,
            "frame_features": model.guided_attention.of_all_pairs(videos.frames, videos.frame_mask, clips, key_clip),
        }

    def loss_arrays(
        self, case: Case, model: MSSL, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the losses of both branches; losses of the frame branch are computed over rows and over columns."""
        index = case.training_batch().video_index
        margin = model.config.margin
        arrays = branch_losses("clip", scores["clip_scores"], scores["clip_scores_raw"], index, draws, margin)
        square = scores["train_frame_scores"]
        rows = draws.candidate_ranks("frame_rows", *square.shape)
        columns = draws.candidate_ranks("frame_columns", *square.shape)
        diagonal = torch.arange(len(square))
        return arrays | {
            "nce_clip": terms["clip_nce"],
            "triplet_clip": terms["clip_triplet"],
            "nce_frame": terms["frame_nce"],
            "triplet_frame": terms["frame_triplet"],
            "triplet_frame_row": triplet_square_rows(square, rows, margin=margin),
            "triplet_frame_col": triplet_square_rows(square.T, columns, margin=margin),
            "neg_column_for_row_frame": negative_videos(square, diagonal, rows),
            "neg_row_for_column_frame": negative_videos(square.T, diagonal, columns),
        }
