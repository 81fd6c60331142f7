"""Match the queries of a video one-to-one with clips, and pull matched pairs together."""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def matched_pairs(
    query: Float[Tensor, "Q D"],
    clips: Float[Tensor, "V L D"],
    video_index: Int[Tensor, " Q"],
    mask: Bool[Tensor, "V L"] | None = None,
    *,
    min_queries: int = 2,
) -> Int[Tensor, "N 3"]:
    """Return rows (video, query, clip): the one-to-one assignment of queries to clips with the largest total cosine.

    This is Eq. 6 of GMMFormer v2. Videos with fewer than `min_queries` queries are skipped. If a video has more queries
    than clips, some queries stay unmatched. If it has more clips than queries, some clips stay unmatched. SciPy
    computes the exact assignment on the CPU, in about 10 microseconds per video.
    """
    unit_query = F.normalize(query.detach(), dim=-1)
    unit_clips = F.normalize(clips.detach(), dim=-1)
    cosine = torch.einsum("qd,qld->ql", unit_query, unit_clips[video_index]).float().cpu().numpy()
    real = None if mask is None else mask.cpu().numpy()
    index = video_index.cpu().numpy()
    order = np.argsort(index, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(index[order])) + 1)
    pairs = [np.zeros((0, 3), dtype=np.int64)]
    for group in (g for g in groups if len(g) >= min_queries):
        video = index[group[0]]
        allowed = np.arange(cosine.shape[1]) if real is None else np.flatnonzero(real[video])
        rows, columns = linear_sum_assignment(cosine[np.ix_(group, allowed)], maximize=True)
        pairs.append(np.stack([np.full(len(rows), video), group[rows], allowed[columns]], axis=1))
    return torch.from_numpy(np.concatenate(pairs)).to(query.device)


def optimal_matching(
    query: Float[Tensor, "Q D"],
    clips: Float[Tensor, "V L D"],
    video_index: Int[Tensor, " Q"],
    mask: Bool[Tensor, "V L"] | None = None,
    *,
    reduction: Literal["released", "paper"] = "released",
) -> Float[Tensor, ""]:
    """Return the mean of 1 - cosine over matched pairs (GMMFormer v2, Eq. 7), in [0, 2], or 0 if there are no pairs.

    - `released` averages over all pairs of the batch, and skips videos with one query.
    - `paper` includes these videos. With `paper`, the mean is over the pairs of each video and then over videos. This
      is our choice, because Eq. 7 does not specify the mean.

    >>> query, clips = torch.eye(3), torch.eye(3)[None, :2].expand(2, -1, -1)
    >>> index = torch.tensor([0, 0, 1])
    >>> optimal_matching(query, clips, index), optimal_matching(query, clips, index, reduction="paper")
    (tensor(0.), tensor(0.5000))
    """
    min_queries = 2 if reduction == "released" else 1
    video, row, clip = matched_pairs(query, clips, video_index, mask, min_queries=min_queries).unbind(1)
    if len(row) == 0:
        return 0 * (query.sum() + clips.sum())
    distance = 1 - F.cosine_similarity(query[row], clips[video, clip], dim=-1, eps=1e-12)
    if reduction == "released":
        return distance.mean()
    pairs_of_video = torch.bincount(video, minlength=len(clips))
    return (distance / pairs_of_video[video]).sum() / (pairs_of_video > 0).sum()
