"""Score a video by its best clip or frame."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.scores.score import Score

Similarity = Literal["cosine", "dot"]
Padding = Literal["excluded", "zero"]
Branches = dict[str, Tensor]  # {branch of a score: vectors [N, M, D]}
# {branch: names of the encoded tensors that have one entry per row of `Branches`}
TensorNames = Mapping[str, tuple[str, ...]]
SIMILARITIES_AT_A_TIME = 2**25  # queries x rows in a chunk: 128 MB
TILE_QUERIES = 512  # a tile of TILE_QUERIES x TILE_VIDEOS similarities in bfloat16 fits the processor's cache
TILE_VIDEOS = 16
_in_bfloat16: ContextVar[bool] = ContextVar("in_bfloat16", default=False)


@contextmanager
def best_rows_in_bfloat16(enabled: bool) -> Iterator[None]:
    """Return a context in which `best_rows` uses products in bfloat16 if `enabled`, because they are faster.

    This affects only computations on the CPU without gradients. All other parts of a score keep their dtype.
    """
    token = _in_bfloat16.set(enabled)
    try:
        yield
    finally:
        _in_bfloat16.reset(token)


def max_sim(
    query: Float[Tensor, "Q D"],
    clips: Float[Tensor, "V L D"],
    mask: Bool[Tensor, "V L"] | None = None,
    *,
    similarity: Similarity = "cosine",
    zero_floor: Bool[Tensor, " V"] | None = None,
) -> Score:
    """Return the similarity of each query with the best clip of each video (GMMFormer Eq. 4, v2 Eq. 9-10).

    Padding is never the best clip. `zero_floor` marks videos whose scores are raised to at least 0. In the released
    GMMFormer v2 and RAL, these are the videos with padding, because padding has similarity 0 there. `best` is always
    the best real clip.

    >>> clips = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    >>> max_sim(torch.tensor([[0.0, 3.0]]), clips)
    Score(value=tensor([[1.]]), best=tensor([[1]]))
    """
    value, best = best_rows(query, clips, mask, similarity=similarity)
    if zero_floor is not None:
        value = torch.where(zero_floor & (value < 0), torch.zeros_like(value), value)
    return Score(value, best)


def products(query: Float[Tensor, "Q D"], rows: Float[Tensor, "V L D"]) -> Float[Tensor, "Q V L"]:
    """Return the dot product of each query with each row."""
    return (query @ rows.flatten(0, 1).T).unflatten(1, rows.shape[:2])


def cosines(query: Float[Tensor, "Q D"], rows: Float[Tensor, "V L D"]) -> Float[Tensor, "Q V L"]:
    """Return the cosine of each query with each row, or 0 if the row is 0.

    For few queries, products are divided by the lengths of the rows. This is up to four times as fast as normalising
    the rows.
    """
    unit_query = F.normalize(query, dim=-1)
    needs_gradient = torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad)
    if needs_gradient or len(query) >= rows.shape[-1]:
        return products(unit_query, F.normalize(rows, dim=-1))
    return products(unit_query, rows).div_(torch.linalg.vector_norm(rows, dim=-1).clamp_min(1e-12))


def max_sim_sum(probe: Float[Tensor, "Q M D"], sketch: Float[Tensor, "V N D"]) -> Float[Tensor, "Q V"]:
    """Return the sum, over a query's vectors, of the largest dot product with a vector of the video.

    >>> max_sim_sum(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.tensor([[[0.5, 0.0], [0.0, 0.5], [0.25, 0.25]]]))
    tensor([[1.5000]])
    """
    best, _ = best_rows(probe.flatten(0, 1), sketch, similarity="dot")
    return best.unflatten(0, probe.shape[:2]).sum(dim=1)


def units(
    rows: Float[Tensor, "V N D"],
    mask: Bool[Tensor, "V N"] | None = None,
    zero_floor: Bool[Tensor, " V"] | None = None,
) -> Float[Tensor, "V M D"]:
    """Return rows scaled to length 1. Padding repeats the first real row, so that a maximum over rows needs no mask.

    With `zero_floor` (see `max_sim`), a row is added at the beginning. This row is 0 in the marked videos.
    """
    if mask is not None:
        first = rows[torch.arange(len(rows)), mask.int().argmax(dim=1)][:, None]
        rows = rows.where(mask[..., None], first)
        if zero_floor is not None:
            rows = torch.cat([first.where(~zero_floor[:, None, None], torch.zeros_like(first)), rows], dim=1)
    return F.normalize(rows, dim=-1)


def vector_sim(query: Float[Tensor, "Q D"], video: Float[Tensor, "V D"], *, similarity: Similarity = "cosine") -> Score:
    """Return the similarity of each query with the single vector of each video (GMMFormer Eq. 3). `best` is None."""
    if similarity == "cosine":
        query = F.normalize(query, dim=-1)
        video = F.normalize(video, dim=-1)
    return Score(query @ video.T)


def zero_floor(num_frames: Int[Tensor, " V"], max_frames: int, padding: Padding) -> Bool[Tensor, " V"] | None:
    """Return a mask of the videos with fewer than `max_frames` frames, or None if padding is excluded."""
    return num_frames < max_frames if padding == "zero" else None


def best_rows(
    query: Float[Tensor, "Q D"],
    rows: Float[Tensor, "V L D"],
    mask: Bool[Tensor, "V L"] | None = None,
    *,
    similarity: Similarity = "cosine",
) -> tuple[Float[Tensor, "Q V"], Int[Tensor, "Q V"]]:
    """Return the similarity of each query (or word) with the best real row of each video, and the index of this row."""
    if torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad):
        if similarity == "cosine":
            query = F.normalize(query, dim=-1)
            rows = F.normalize(rows, dim=-1)
        value, best = _BestRows.apply(query, rows, mask)
        return value, best
    if _in_bfloat16.get() and rows.device.type == "cpu":
        return _best_rows_in_tiles(query, rows, mask, similarity)
    return _best_rows(query, rows, mask, similarity)


def _best_rows(
    query: Float[Tensor, "Q D"], rows: Float[Tensor, "V L D"], mask: Bool[Tensor, "V L"] | None, similarity: Similarity
) -> tuple[Float[Tensor, "Q V"], Int[Tensor, "Q V"]]:
    """Return the result of `best_rows` without a gradient, computed in chunks of videos."""
    similarities = cosines if similarity == "cosine" else products
    chunk = max(1, SIMILARITIES_AT_A_TIME // max(1, len(query) * rows.shape[1]))
    maxima = []
    for start in range(0, max(len(rows), 1), chunk):
        part = slice(start, start + chunk)
        values = similarities(query, rows[part])
        if mask is not None:
            values = values.masked_fill_(~mask[part], -torch.inf)
        maxima.append(values.max(dim=-1))
    value, best = (torch.cat(parts, dim=1) for parts in zip(*maxima, strict=True))
    return value, best


def _best_rows_in_tiles(
    query: Float[Tensor, "Q D"],
    rows: Float[Tensor, "V L D"],
    mask: Bool[Tensor, "V L"] | None,
    similarity: Similarity,
) -> tuple[Float[Tensor, "Q V"], Int[Tensor, "Q V"]]:
    """Return the result of `best_rows` without a gradient, computed in bfloat16 and in tiles that fit the cache.

    To keep rounding errors small, each row is split into the video's mean row and a difference. The product with the
    difference is computed in bfloat16, and the product with the mean row in float32. Padding repeats the first real
    row.

    The 16 bits of a product are the upper half of a float32, and the index of the row is the lower half. One maximum
    therefore returns both.
    """
    if similarity == "cosine":
        query = F.normalize(query, dim=-1)
        rows = F.normalize(rows, dim=-1)
    real = rows.new_ones(rows.shape[:2], dtype=torch.bool) if mask is None else mask
    place = torch.arange(rows.shape[1], dtype=torch.int32).expand(real.shape)
    lengths = torch.where(real, place + 1, 0).amax(dim=1)
    if mask is not None:
        first = mask.int().argmax(dim=1)
        place = torch.where(mask, place, first[:, None].int())
        rows = rows.where(mask[..., None], rows[torch.arange(len(rows)), first][:, None])
    mean = torch.bmm(real[:, None] / real.sum(dim=1).clamp_min(1)[:, None, None], rows)[:, 0]
    narrow_query = query.bfloat16()
    narrow_rows = (rows - mean[:, None]).bfloat16()
    value = mean @ query.T
    best = torch.empty(len(rows), len(query), dtype=torch.int64)
    for videos in lengths.argsort().split(TILE_VIDEOS):
        length = int(lengths[videos].max().clamp_min(1))
        tile = narrow_rows[videos, :length].flatten(0, 1)
        places = place[videos, :length, None]
        for start in range(0, len(query), TILE_QUERIES):
            part = slice(start, start + TILE_QUERIES)
            packed = (tile @ narrow_query[part].T).float().view(len(videos), length, -1)
            packed.view(torch.int32).bitwise_or_(places)
            top = packed.amax(dim=1).view(torch.int32)
            value[videos, part] += (top & -65536).view(torch.float32)
            best[videos, part] = (top & 65535).long()
    return value.masked_fill_(lengths[:, None] == 0, -torch.inf).T, best.T


class _BestRows(torch.autograd.Function):
    """The largest dot product of each query with the rows of each video.

    Only the best of the L rows of a video gets a gradient. Therefore the backward pass takes 1 / L of the time of a
    pass through all similarities. The similarities are not stored.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, rows: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        value, best = _best_rows(query, rows, mask, "dot")
        ctx.save_for_backward(query, rows, best)
        ctx.mark_non_differentiable(best)
        return value, best

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, rows, best = ctx.saved_tensors
        weight = gradients[0].to(query.dtype).flatten()
        num_videos, length = rows.shape[:2]
        # index of the best row for each query and video
        row = (best + torch.arange(num_videos, device=best.device) * length).flatten()
        query_index = torch.arange(len(query), device=best.device).repeat_interleave(num_videos)
        d_query = d_rows = None
        if ctx.needs_input_grad[0]:
            d_query = _weighted_sums(rows.flatten(0, 1), row, weight, query_index, len(query))
        if ctx.needs_input_grad[1]:
            order = row.argsort()
            d_rows = _weighted_sums(query, query_index[order], weight[order], row[order], num_videos * length)
            d_rows = d_rows.view_as(rows)
        return d_query, d_rows, None


def _weighted_sums(
    rows: Float[Tensor, "R D"],
    row: Int[Tensor, " P"],
    weight: Float[Tensor, " P"],
    target: Int[Tensor, " P"],
    num_targets: int,
) -> Float[Tensor, "S D"]:
    """Return the weighted sum of rows for each target. `target` must be sorted."""
    count = torch.bincount(target, minlength=num_targets)
    return F.embedding_bag(row, rows, count.cumsum(0) - count, mode="sum", per_sample_weights=weight)
