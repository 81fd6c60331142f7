"""A video is as good as its best clip or frame."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from untrimmed.scores.score import Score

Similarity = Literal["cosine", "dot"]
Padding = Literal["excluded", "zero"]


def max_sim(
    query: Float[Tensor, "Q D"],
    clips: Float[Tensor, "V L D"],
    mask: Bool[Tensor, "V L"] | None = None,
    *,
    similarity: Similarity = "cosine",
    zero_floor: Bool[Tensor, " V"] | None = None,
) -> Score:
    """Score a video by its best clip (GMMFormer Eq. 4, v2 Eq. 9-10); padding never wins.

    `zero_floor` marks videos that score at least 0: in the released GMMFormer v2 and RAL the zeroed padding of a video
    shorter than the maximum takes part in the maximum. `best` is the best real clip even then.

    >>> clips = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    >>> max_sim(torch.tensor([[0.0, 3.0]]), clips)
    Score(value=tensor([[1.]]), best=tensor([[1]]))
    """
    sim = cosines(query, clips) if similarity == "cosine" else products(query, clips)
    if mask is not None:
        sim = sim.masked_fill(~mask, -torch.inf)
    value, best = sim.max(dim=-1)
    if zero_floor is not None:
        value = torch.where(zero_floor & (value < 0), torch.zeros_like(value), value)
    return Score(value, best)


def products(query: Float[Tensor, "Q D"], rows: Float[Tensor, "V L D"]) -> Float[Tensor, "Q V L"]:
    """The dot product of each query with each row."""
    return (query @ rows.flatten(0, 1).T).unflatten(1, rows.shape[:2])


def cosines(query: Float[Tensor, "Q D"], rows: Float[Tensor, "V L D"]) -> Float[Tensor, "Q V L"]:
    """The cosine of each query with each row; 0 with a row that is 0.

    Few queries divide their products by the rows' lengths: that reads the rows twice and writes nothing of their size,
    which for one query takes a quarter of the time of unit rows.
    """
    unit_query = F.normalize(query, dim=-1)
    needs_gradient = torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad)
    if needs_gradient or len(query) >= rows.shape[-1]:
        return products(unit_query, F.normalize(rows, dim=-1))
    return products(unit_query, rows).div_(torch.linalg.vector_norm(rows, dim=-1).clamp_min(1e-12))


def vector_sim(query: Float[Tensor, "Q D"], video: Float[Tensor, "V D"], *, similarity: Similarity = "cosine") -> Score:
    """Score a video by its one vector (GMMFormer Eq. 3); there is no best clip."""
    if similarity == "cosine":
        query, video = F.normalize(query, dim=-1), F.normalize(video, dim=-1)
    return Score(query @ video.T)


def zero_floor(mask: Bool[Tensor, "V T"], max_frames: int, padding: Padding) -> Bool[Tensor, " V"] | None:
    """Which videos have padding that competes with similarity 0: those with fewer than `max_frames` real frames."""
    return mask.sum(dim=1) < max_frames if padding == "zero" else None
