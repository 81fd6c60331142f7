"""Optimal transport between the queries and clips of a video (Holmes, arXiv 2605.06083), as in the authors' code.

The transport plan assigns each query to clips, with weights that sum to 1. Clips that match no query are assigned to a
dustbin. The loss trains the evidence of clips (`losses/evidence.py`) to predict this plan.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.losses.evidence import dirichlet_error, evidence

TINY = 1e-8


@dataclass(frozen=True)
class GroupedSimilarities:
    """Similarities in [0, 1] between the queries and the clips of each video.

    N is the largest number of queries of a video in the batch. Videos with fewer queries are padded.
    """

    similarity: Float[Tensor, "V N L"]
    mask: Bool[Tensor, "V N"]
    row: Int[Tensor, " Q"]  # index of each query's video
    place: Int[Tensor, " Q"]  # position of each query among the queries of its video


def similarities(
    query: Float[Tensor, "Q D"], clips: Float[Tensor, "V L D"], video_index: Int[Tensor, " Q"]
) -> GroupedSimilarities:
    """Return the cosines of queries with the clips of their video, rescaled to the range [0, 1] in each video.

    Gradients also flow through the smallest and the largest cosine. As in the authors' program, padding counts as a
    cosine of 0. The result can therefore depend on the other videos of the batch.
    """
    is_member = F.one_hot(video_index, len(clips))
    place = (is_member.cumsum(dim=0) * is_member).sum(dim=1) - 1
    count = is_member.sum(dim=0)
    places = torch.arange(int(count.max()), device=query.device)
    unit = F.normalize(query, dim=-1)
    placed = unit.new_zeros(len(clips), len(places), unit.shape[1]).index_put((video_index, place), unit)
    cosine = placed @ F.normalize(clips, dim=-1).mT
    low, high = (bound(dim=(1, 2), keepdim=True) for bound in (cosine.amin, cosine.amax))
    return GroupedSimilarities((cosine - low) / (high - low + TINY), places < count[:, None], video_index, place)


@torch.no_grad()
def transport_plan(
    similarity: Float[Tensor, "V N L"], mask: Bool[Tensor, "V N"], *, regularisation: float, iterations: int
) -> Float[Tensor, "V N L"]:
    """Return the distribution of each query over clips. Rows sum to 1, but rows of padding are 0.

    This is entropic optimal transport, solved by Sinkhorn iterations in log space. With M queries and L clips, the mass
    of a query is 1 / (M + L), the mass of a clip 1 / L, and the mass of the dustbin L / (M + L). The cost of the
    dustbin has no effect, because it is the same for all clips.
    """
    num_queries = mask.sum(dim=1, keepdim=True)
    num_clips = similarity.shape[2]
    logits = F.pad(similarity / regularisation, (0, 0, 0, 1))
    real = F.pad(mask, (0, 1), value=True)
    dustbin = F.one_hot(torch.tensor(mask.shape[1], device=mask.device), mask.shape[1] + 1)
    mass = (1 + (num_clips - 1) * dustbin) / (num_queries + num_clips).to(logits.dtype)
    row_mass = mass.log().masked_fill(~real, -torch.inf)
    columns = logits.new_zeros(len(logits), num_clips)
    for _ in range(iterations):
        rows = row_mass - (logits + columns[:, None]).logsumexp(dim=2)
        columns = -torch.tensor(num_clips).log().to(logits) - (logits + rows[..., None]).logsumexp(dim=1)
    plan = num_clips * (logits + rows[..., None] + columns[:, None]).exp()[:, :-1]
    return plan / (plan.sum(dim=2, keepdim=True) + TINY)


def inside_videos(
    query: Float[Tensor, "Q D"],
    clips: Float[Tensor, "V L D"],
    video_index: Int[Tensor, " Q"],
    *,
    temperature: float,
    regularisation: float,
    iterations: int,
) -> Float[Tensor, ""]:
    """Return the evidential loss within videos: the error of the evidence for clips, compared with the transport plan.

    The loss is averaged over the queries of each video, and then over videos that have queries.
    """
    grouped = similarities(query, clips, video_index)
    plan = transport_plan(grouped.similarity, grouped.mask, regularisation=regularisation, iterations=iterations)
    counts = evidence(grouped.similarity[grouped.row, grouped.place], temperature=temperature)
    error = dirichlet_error(plan[grouped.row, grouped.place], counts)
    count = grouped.mask.sum(dim=1)
    return (error / count[video_index]).sum() / (count > 0).sum()
