"""Push apart the queries of a video, so that sentences about different moments stay different."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Scale = Literal["released", "paper"]


def cosines_of_siblings(
    query: Float[Tensor, "Q D"], video_index: Int[Tensor, " Q"]
) -> tuple[Float[Tensor, "Q Q"], Bool[Tensor, "Q Q"]]:
    """Return the cosines between queries, and a mask of the pairs of different queries of the same video."""
    unit = F.normalize(query, dim=-1)
    siblings = video_index[:, None] == video_index[None, :]
    return unit @ unit.T, siblings & ~torch.eye(len(query), dtype=torch.bool, device=query.device)


def query_diversity(
    query: Float[Tensor, "Q D"],
    video_index: Int[Tensor, " Q"],
    *,
    margin: float,
    scale: float,
    focus: float,
    reduction: Scale = "released",
) -> Float[Tensor, ""]:
    """Return the second version of the loss (GMMFormer v2, Eq. 4-5), which pushes similar pairs apart more strongly.

    - `released` sums over ordered pairs and divides by the number of queries in the batch.
    - `paper` weights the pairs of a video with M queries by 2 / (M (M - 1)), and averages over videos with pairs.

    Without pairs, the loss is 0.

    >>> query_diversity(torch.eye(2), torch.tensor([0, 0]), margin=0.0, scale=1.0, focus=1.0)
    tensor(0.6931)
    """
    cosine, siblings = cosines_of_siblings(query, video_index)
    # rounding can make 1 + cosine slightly negative, and a fractional power would then be NaN
    push = (1 + cosine).clamp_min(1e-7) ** focus * F.softplus(scale * (cosine + margin))
    push = push * siblings
    if reduction == "released":
        return push.sum() / len(query)
    num_siblings = siblings.sum(dim=1)  # number of other queries of the same video: M - 1
    per_query = 2 * push.sum(dim=1) / ((num_siblings + 1) * num_siblings).clamp_min(1)
    num_videos = (num_siblings.gt(0) / (num_siblings + 1)).sum().round().clamp_min(1)
    return per_query.sum() / num_videos


def query_diversity_v1(
    query: Float[Tensor, "Q D"],
    video_index: Int[Tensor, " Q"],
    *,
    margin: float,
    scale: float,
    reduction: Scale = "released",
) -> Float[Tensor, ""]:
    """Return the first version of the loss (GMMFormer Eq. 13), averaged over queries. Without pairs, the loss is 0.

    A pair is two queries of the same video.

    - `released` takes one logarithm per query: log(1 + sum of exponentials over the query's pairs).
    - `paper` (Eq. 13) takes one logarithm per pair, and adds the logarithms of each query.

    >>> query_diversity_v1(torch.eye(2), torch.tensor([0, 0]), margin=0.0, scale=1.0)
    tensor(0.6931)
    """
    cosine, siblings = cosines_of_siblings(query, video_index)
    logits = (scale * (cosine + margin)).masked_fill(~siblings, -torch.inf)
    if reduction == "paper":
        return F.softplus(logits).sum() / len(query)
    return F.pad(logits, (1, 0)).logsumexp(dim=1).mean()
