"""The retrieval losses of one branch: InfoNCE of dot products and triplet ranking loss of cosines."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.draws import Draws
from untrimmed.losses.nce import Contrast, nce, nce_of_shares, nce_square
from untrimmed.losses.triplet import (
    num_foreign_queries,
    triplet_of_pairs,
    triplet_of_queries,
    triplet_of_videos,
    triplet_square_rows,
)

SquareContrast = Literal["released", "per_direction", "paper"]
TripletForm = Literal["released", "paper"]


def branch_terms(
    branch: str,
    cosine: Float[Tensor, "Q V"],
    dot: Float[Tensor, "Q V"],
    video_index: Int[Tensor, " Q"],
    *,
    margin: float,
    draws: Draws,
    triplet: TripletForm = "released",
    contrast: Contrast = "released",
) -> dict[str, Float[Tensor, ""]]:
    """Return the terms `<branch>_nce` and `<branch>_triplet` (GMMFormer v2 Eq. 19).

    The triplet loss is the sum of `triplet_of_queries` and a loss over videos.

    - `released`: the loss over videos is `triplet_of_videos`, and InfoNCE is `nce` of dot products.
    - `paper`: the loss over videos is `triplet_of_pairs`, and InfoNCE is `nce_of_shares` of cosines.

    `draws` selects the negatives.
    """
    num_foreign = num_foreign_queries(video_index, cosine.shape[1])
    if triplet == "released":
        hinges = triplet_of_videos(cosine, video_index, draws.foreign_ranks(branch, num_foreign), margin=margin)
    else:
        ranks = draws.foreign_ranks(branch, num_foreign[video_index])
        hinges = triplet_of_pairs(cosine, video_index, ranks, margin=margin)
    query_ranks = draws.candidate_ranks(branch, len(cosine), cosine.shape[1])
    hinges = hinges + triplet_of_queries(cosine, video_index, query_ranks, margin=margin)
    info = nce(dot, video_index) if contrast == "released" else nce_of_shares(cosine, video_index)
    return {f"{branch}_nce": info, f"{branch}_triplet": hinges}


def square_branch_terms(
    branch: str,
    cosine: Float[Tensor, "Q Q"],
    dot: Float[Tensor, "Q Q"],
    *,
    margin: float,
    draws: Draws,
    contrast: SquareContrast = "released",
) -> dict[str, Float[Tensor, ""]]:
    """Return the terms of `branch_terms` for a matrix with one column per query and positives on the diagonal.

    `contrast` selects InfoNCE:

    - `released` has a common denominator for row i and column i (`nce_square`).
    - `per_direction` has separate denominators for rows and columns (`nce`).
    - `paper` is JSG Eq. 7, with cosines instead of exponentials (`nce_of_shares`).
    """
    row_ranks = draws.candidate_ranks(f"{branch}_rows", *cosine.shape)
    column_ranks = draws.candidate_ranks(f"{branch}_columns", *cosine.shape)
    triplet = triplet_square_rows(cosine, row_ranks, margin=margin) + triplet_square_rows(
        cosine.T, column_ranks, margin=margin
    )
    diagonal = torch.arange(len(dot), device=dot.device)
    if contrast == "released":
        info = nce_square(dot)
    else:
        info = nce(dot, diagonal) if contrast == "per_direction" else nce_of_shares(cosine, diagonal)
    return {f"{branch}_nce": info, f"{branch}_triplet": triplet}
