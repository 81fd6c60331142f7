"""Moments for any method: windows pooled over what it encodes, scored against the query, ranked over a corpus.

JSG's event retrieval (section 3.5), whose windows need no training: a method only has to encode a video as vectors in
temporal order that compare with its sentence vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.errors import ConfigError, FeatureError
from untrimmed.scores.gaussian_proposals import Pooling, Proposals, centered_proposals, pool, pooling_weights
from untrimmed.scores.ranked_moments import RankedMoments, suppress_ranked

Similarities = Callable[[slice], Float[Tensor, "Q C P"]]  # of some videos of the corpus
NUMBERS_AT_A_TIME = 2**24  # similarities or pooling weights held at once: 64 MB


@dataclass(frozen=True, kw_only=True)
class LocateSettings:
    """How many moments are kept and when two are one; defaults are those of JSG's release.

    `per_video` best windows of each video enter the ranking (40 on DiDeMo), of which the best `before_suppression` go
    through suppression and `limit` come out.
    """

    per_video: int = 10
    before_suppression: int = 1000
    max_overlap: float = 0.5
    limit: int = 100

    def __post_init__(self) -> None:
        for name in ("per_video", "before_suppression", "limit"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least 1")
        if not 0 <= self.max_overlap <= 1:
            raise ConfigError(f"max_overlap is {self.max_overlap}, wanted a share between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """The windows tried in every video: centres by widths (shares of its length), as JSG has them on ActivityNet."""

    num_centers: int = 32
    num_widths: int = 10
    min_width: float = 0.05
    max_width: float = 1.0
    pooling: Pooling = "gaussian"

    def proposals(self) -> Proposals:
        """The windows."""
        return centered_proposals(self.num_centers, self.num_widths, min_width=self.min_width, max_width=self.max_width)


def localise(
    query: Float[Tensor, "Q D"],
    units: Float[Tensor, "V N D"],
    mask: Bool[Tensor, "V N"] | None,
    duration_s: Float[Tensor, " V"],
    *,
    windows: WindowSettings | None = None,
    settings: LocateSettings | None = None,
    video_score: Float[Tensor, "Q V"] | None = None,
) -> RankedMoments:
    """The moments of a corpus that fit each query best, in seconds within each video's length.

    `units` are a video's vectors in temporal order at equal steps, of which `mask` says which are real. A moment
    scores its cosine with the query, plus the whole video's `video_score` where given.

    Raises: FeatureError for a video without a duration.
    """
    windows = windows or WindowSettings()
    proposals = windows.proposals()
    unit_query = F.normalize(query, dim=-1)

    def similarities(videos: slice) -> Float[Tensor, "Q C P"]:
        own_mask = None if mask is None else mask[videos]
        pooled = pool_masked(units[videos], own_mask, proposals, windows.pooling)
        values = torch.einsum("qd,vpd->qvp", unit_query, F.normalize(pooled, dim=-1))
        return values if video_score is None else values + video_score[:, videos, None]

    return locate(similarities, len(query), proposals, duration_s, settings or LocateSettings())


def pool_masked(
    units: Float[Tensor, "V N D"], mask: Bool[Tensor, "V N"] | None, proposals: Proposals, pooling: Pooling
) -> Float[Tensor, "V P D"]:
    """One vector for each window of each video; windows span the real units of a video only."""
    if mask is None:
        return pool(units, proposals, pooling)
    center, width = proposals.center.to(units.device), proposals.width.to(units.device)
    num_real = mask.sum(dim=1, keepdim=True)
    step = torch.arange(units.shape[1], device=units.device)
    grid = (step + 1) / num_real if pooling == "density" else step / (num_real - 1).clamp_min(1)
    grid = grid.masked_fill(~mask, torch.inf)
    weights = pooling_weights(center, width, grid[:, None], pooling=pooling)
    # Rows at padding may hold anything, NaN included, so a weight of 0 alone does not exclude them.
    weights, units = weights.masked_fill(~mask[:, None], 0), units.masked_fill(~mask[..., None], 0)
    return weights.to(units.dtype) @ units


@torch.no_grad()
def locate(
    similarities: Similarities,
    num_queries: int,
    proposals: Proposals,
    duration_s: Float[Tensor, " V"],
    settings: LocateSettings,
) -> RankedMoments:
    """The ranked moments after suppression within each video.

    Raises: FeatureError for a video without a duration.
    """
    ranked = rank_windows(similarities, num_queries, proposals, duration_s, settings)
    return suppress_ranked(
        ranked, max_overlap=settings.max_overlap, limit_per_video=settings.limit, limit=settings.limit
    )


@torch.no_grad()
def rank_windows(
    similarities: Similarities,
    num_queries: int,
    proposals: Proposals,
    duration_s: Float[Tensor, " V"],
    settings: LocateSettings,
) -> RankedMoments:
    """The best windows of every video, all videos in one list for each query, before suppression."""
    if not bool((duration_s > 0).all()):
        video = int(torch.nonzero(~(duration_s > 0))[0])
        raise FeatureError(
            f"video {video} of the corpus has duration {float(duration_s[video])} s, wanted a positive number; moments "
            "in seconds need it, add it to the annotations"
        )
    num_videos, num_windows = len(duration_s), len(proposals.center)
    best = _Best.empty(num_queries)
    chunk = max(1, NUMBERS_AT_A_TIME // max(1, num_queries * num_windows))
    for start in range(0, num_videos, chunk):
        found = top_windows(similarities(slice(start, start + chunk)), settings.per_video)
        rows = torch.arange(start, start + found.score.shape[1])[None, :, None].expand(found.score.shape)
        part = _Best(found.score.flatten(1).cpu(), rows.flatten(1), found.window.flatten(1).cpu())
        best = best.joined(part, settings.before_suppression)
    relative = proposals.spans.cpu()[best.window]
    seconds = relative * duration_s.cpu().float()[best.video][..., None]
    return RankedMoments(best.video.numpy(), seconds.numpy(), best.score.float().numpy())


@dataclass(frozen=True)
class TopWindows:
    """The best windows of each query in each video, best first: similarity and position in the list of windows."""

    score: Float[Tensor, "Q V K"]
    window: Int[Tensor, "Q V K"]


def top_windows(similarities: Float[Tensor, "Q V P"], count: int) -> TopWindows:
    """The `count` best windows of every video, all of them when there are fewer."""
    score, window = similarities.topk(min(count, similarities.shape[-1]), dim=-1)
    return TopWindows(score, window)


@dataclass(frozen=True)
class _Best:
    """The best windows so far, best first."""

    score: Float[Tensor, "Q N"]
    video: Int[Tensor, "Q N"]
    window: Int[Tensor, "Q N"]

    @classmethod
    def empty(cls, num_queries: int) -> "_Best":
        nothing = torch.zeros(num_queries, 0, dtype=torch.long)
        return cls(torch.zeros(num_queries, 0), nothing, nothing)

    def joined(self, other: "_Best", limit: int) -> "_Best":
        """The best of both; equal scores keep the order of the videos."""
        score = torch.cat([self.score, other.score.float()], dim=1)
        score, order = score.sort(dim=1, descending=True, stable=True)
        order = order[:, :limit]
        video = torch.cat([self.video, other.video], dim=1).gather(1, order)
        return _Best(score[:, :limit], video, torch.cat([self.window, other.window], dim=1).gather(1, order))
