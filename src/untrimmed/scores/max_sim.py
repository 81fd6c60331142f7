"""A video is as good as its best clip or frame."""

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
Branches = dict[str, Tensor]  # vectors `N M D` by the branch of a score that compares them
TensorNames = Mapping[str, tuple[str, ...]]  # names of tensors that have the same rows, by branch
SIMILARITIES_AT_A_TIME = 2**25  # queries times rows held at once: 128 MB
TILE_QUERIES = 512  # with TILE_VIDEOS: a tile of similarities in bfloat16 stays in the cache
TILE_VIDEOS = 16
_in_bfloat16: ContextVar[bool] = ContextVar("in_bfloat16", default=False)


@contextmanager
def best_rows_in_bfloat16(wanted: bool) -> Iterator[None]:
    """Whether best rows are looked for by products in bfloat16 meanwhile: on the CPU, and where none needs a gradient.

    Everything else of a score stays in its own format.
    """
    before = _in_bfloat16.set(wanted)
    try:
        yield
    finally:
        _in_bfloat16.reset(before)


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
    value, best = best_rows(query, clips, mask, similarity=similarity)
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


def max_sim_sum(probe: Float[Tensor, "Q M D"], sketch: Float[Tensor, "V N D"]) -> Float[Tensor, "Q V"]:
    """For each video the sum of what each vector of a query finds best in it, by dot product: what an index can search.

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
    """Rows of length 1 to compare by dot products without a mask: padding repeats its video's first real row.

    With `zero_floor` (see `max_sim`) a row stands before them, which is 0 in the videos that it marks.
    """
    if mask is not None:
        first = rows[torch.arange(len(rows)), mask.int().argmax(dim=1)][:, None]
        rows = rows.where(mask[..., None], first)
        if zero_floor is not None:
            rows = torch.cat([first.where(~zero_floor[:, None, None], torch.zeros_like(first)), rows], dim=1)
    return F.normalize(rows, dim=-1)


def vector_sim(query: Float[Tensor, "Q D"], video: Float[Tensor, "V D"], *, similarity: Similarity = "cosine") -> Score:
    """Score a video by its one vector (GMMFormer Eq. 3); there is no best clip."""
    if similarity == "cosine":
        query = F.normalize(query, dim=-1)
        video = F.normalize(video, dim=-1)
    return Score(query @ video.T)


def zero_floor(num_frames: Int[Tensor, " V"], max_frames: int, padding: Padding) -> Bool[Tensor, " V"] | None:
    """Which videos have padding that competes with similarity 0: those with fewer than `max_frames` real frames."""
    return num_frames < max_frames if padding == "zero" else None


def best_rows(
    query: Float[Tensor, "Q D"],
    rows: Float[Tensor, "V L D"],
    mask: Bool[Tensor, "V L"] | None = None,
    *,
    similarity: Similarity = "cosine",
) -> tuple[Float[Tensor, "Q V"], Int[Tensor, "Q V"]]:
    """The similarity of each query (or word) with its best row of each video, and which that is; padding never wins."""
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
    """`best_rows` without a gradient, some videos at a time."""
    similarities = cosines if similarity == "cosine" else products
    at_once = max(1, SIMILARITIES_AT_A_TIME // max(1, len(query) * rows.shape[1]))
    maxima = []
    for start in range(0, max(len(rows), 1), at_once):
        part = slice(start, start + at_once)
        found = similarities(query, rows[part])
        if mask is not None:
            found = found.masked_fill_(~mask[part], -torch.inf)
        maxima.append(found.max(dim=-1))
    value, best = (torch.cat(parts, dim=1) for parts in zip(*maxima, strict=True))
    return value, best


def _best_rows_in_tiles(
    query: Float[Tensor, "Q D"],
    rows: Float[Tensor, "V L D"],
    mask: Bool[Tensor, "V L"] | None,
    similarity: Similarity,
) -> tuple[Float[Tensor, "Q V"], Int[Tensor, "Q V"]]:
    """`best_rows` without a gradient by products in bfloat16, tiles of which stay in the cache.

    Rows are compared by how they differ from their video's mean, whose product is in float32: what rounding loses is
    then a share of these differences. Padding repeats the first real row. A product's 16 bits become the upper half of
    a float32 and its row's place the lower, so that one maximum finds both.
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
            found = (tile @ narrow_query[part].T).float().view(len(videos), length, -1)
            found.view(torch.int32).bitwise_or_(places)
            top = found.amax(dim=1).view(torch.int32)
            value[videos, part] += (top & -65536).view(torch.float32)
            best[videos, part] = (top & 65535).long()
    return value.masked_fill_(lengths[:, None] == 0, -torch.inf).T, best.T


class _BestRows(torch.autograd.Function):
    """Maxima of dot products.

    Only one row in L gets a gradient from a query, so the backward pass sums the rows that won: L times less work than
    through the dense similarities, which are never kept.
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
        row = (best + torch.arange(num_videos, device=best.device) * length).flatten()  # for each query and video
        asking = torch.arange(len(query), device=best.device).repeat_interleave(num_videos)
        of_query = of_rows = None
        if ctx.needs_input_grad[0]:
            of_query = _weighted_sums(rows.flatten(0, 1), row, weight, asking, len(query))
        if ctx.needs_input_grad[1]:
            order = row.argsort()
            of_rows = _weighted_sums(query, asking[order], weight[order], row[order], num_videos * length)
            of_rows = of_rows.view_as(rows)
        return of_query, of_rows, None


def _weighted_sums(
    rows: Float[Tensor, "R D"],
    row: Int[Tensor, " P"],
    weight: Float[Tensor, " P"],
    target: Int[Tensor, " P"],
    num_targets: int,
) -> Float[Tensor, "S D"]:
    """For each target the weighted sum of the rows that go to it; `target` must ascend."""
    count = torch.bincount(target, minlength=num_targets)
    return F.embedding_bag(row, rows, count.cumsum(0) - count, mode="sum", per_sample_weights=weight)
