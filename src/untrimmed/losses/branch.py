"""The retrieval objective of one branch: InfoNCE on dot products and triplet ranking on cosines."""

from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.draws import Draws
from untrimmed.losses.nce import nce
from untrimmed.losses.triplet import num_foreign_queries, triplet_of_queries, triplet_of_videos


def branch_terms(
    branch: str,
    cosine: Float[Tensor, "Q V"],
    dot: Float[Tensor, "Q V"],
    video_index: Int[Tensor, " Q"],
    *,
    margin: float,
    draws: Draws,
) -> dict[str, Float[Tensor, ""]]:
    """The terms `<branch>_nce` and `<branch>_triplet` (GMMFormer v2 Eq. 19); negatives are drawn anew per branch."""
    video_ranks = draws.foreign_ranks(branch, num_foreign_queries(video_index, cosine.shape[1]))
    query_ranks = draws.candidate_ranks(branch, len(cosine), cosine.shape[1])
    triplet = triplet_of_videos(cosine, video_index, video_ranks, margin=margin) + triplet_of_queries(
        cosine, video_index, query_ranks, margin=margin
    )
    return {f"{branch}_nce": nce(dot, video_index), f"{branch}_triplet": triplet}
