"""Transport inside a video: its queries share out its clips, what fits none goes to a dustbin (Holmes).

The plan says how much each clip belongs to each query (arXiv 2605.06083); evidence for clips (`losses/evidence.py`) is
held against it. As in the released program throughout.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.losses.evidence import dirichlet_error, evidence

TINY = 1e-8


@dataclass(frozen=True)
class Shared:
    """What the queries of each video are to its clips: N places for queries, as many as any video has.

    `similarity` runs from 0 to 1 over all that a video's queries are to its clips.
    """

    similarity: Float[Tensor, "V N L"]
    mask: Bool[Tensor, "V N"]
    row: Int[Tensor, " Q"]  # the video of each query
    place: Int[Tensor, " Q"]


def similarities(query: Float[Tensor, "Q D"], clips: Float[Tensor, "V L D"], video_index: Int[Tensor, " Q"]) -> Shared:
    """Cosines of queries with the clips of their own video, brought to 0 to 1 by the video's smallest and largest.

    Gradients flow through these two. As released, empty places count with a cosine of 0, so that a video depends on the
    largest number of queries in the batch.
    """
    own = F.one_hot(video_index, len(clips))
    place = (own.cumsum(dim=0) * own).sum(dim=1) - 1
    count = own.sum(dim=0)
    places = torch.arange(int(count.max()), device=query.device)
    unit = F.normalize(query, dim=-1)
    placed = unit.new_zeros(len(clips), len(places), unit.shape[1]).index_put((video_index, place), unit)
    cosine = placed @ F.normalize(clips, dim=-1).mT
    low, high = (bound(dim=(1, 2), keepdim=True) for bound in (cosine.amin, cosine.amax))
    return Shared((cosine - low) / (high - low + TINY), places < count[:, None], video_index, place)


@torch.no_grad()
def transport_plan(
    similarity: Float[Tensor, "V N L"], mask: Bool[Tensor, "V N"], *, regularisation: float, iterations: int
) -> Float[Tensor, "V N L"]:
    """Which share of each query goes to which clip, rows of sum 1; 0 in places that the mask leaves empty.

    Entropic optimal transport by alternating scaling, in logarithms. M queries have the mass of M clips among L, a
    dustbin row takes the rest. What moving to the dustbin costs cancels, as it costs the same from every clip.
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
    """The error of each query's evidence for clips against its row of the plan: mean over a video's, then over videos.

    Videos without a query are left out.
    """
    shared = similarities(query, clips, video_index)
    plan = transport_plan(shared.similarity, shared.mask, regularisation=regularisation, iterations=iterations)
    found = evidence(shared.similarity[shared.row, shared.place], temperature=temperature)
    error = dirichlet_error(plan[shared.row, shared.place], found)
    count = shared.mask.sum(dim=1)
    return (error / count[video_index]).sum() / (count > 0).sum()
