"""Find moments with any method: pool windows of a video's vectors, and rank the windows of all videos by score.

This is the event retrieval of JSG (section 3.5). The windows need no training. A method only has to encode a video as
vectors in temporal order, in the same space as its sentence vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.errors import ConfigError, FeatureError
from untrimmed.moments.gaussian_proposals import Pooling, Proposals, RowTimes, pool
from untrimmed.moments.ranked_moments import RankedMoments

# a function that returns the similarities of all queries with all windows of the videos in a slice
Similarities = Callable[[slice], Float[Tensor, "Q C P"]]
NUMBERS_AT_A_TIME = 2**24  # largest number of similarities, or of values in pooled vectors, in a chunk (64 MB)
POOLED_DIM = 512  # assumed width of a pooled vector


@dataclass(frozen=True, kw_only=True)
class LocateSettings:
    """Settings of the ranking of moments. The defaults are those of JSG's released program.

    Attributes:
        per_video: The number of best windows of each video that are ranked (40 on DiDeMo).
        before_suppression: The number of best moments among which overlapping moments are suppressed.
        max_overlap: The largest IoU of two moments of a video.
        limit: The largest number of moments that remain.
        video_weight: A moment's score is its similarity plus this weight times the video's fused score. JSG uses 0. A
            positive weight helps if a method scores videos by more than their frames.
    """

    per_video: int = 10
    before_suppression: int = 1000
    max_overlap: float = 0.5
    limit: int = 100
    video_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("per_video", "before_suppression", "limit"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")
        if not 0 <= self.max_overlap <= 1:
            raise ConfigError(f"max_overlap is {self.max_overlap}, expected a share between 0 and 1")


def window_similarities(
    similarity: Callable[[Float[Tensor, "C P D"]], Float[Tensor, "Q C P"]],
    units: Float[Tensor, "V N D"],
    mask: Bool[Tensor, "V N"] | None,
    proposals: Proposals,
    pooling: Pooling = "gaussian",
    row_times: RowTimes = "middle",
) -> Similarities:
    """Return a function that pools the windows of videos, and returns their similarities to the queries.

    Args:
        similarity: A function that takes vectors of windows, and returns the similarity of each query with each vector.
        units: Vectors of each video at equal time steps.
        mask: True at real units. Windows cover only real units.
    """

    def of(videos: slice) -> Float[Tensor, "Q C P"]:
        return similarity(pool(units[videos], proposals, pooling, None if mask is None else mask[videos], row_times))

    return of


@torch.no_grad()
def rank_windows(
    similarities: Similarities,
    num_queries: int,
    proposals: Proposals,
    duration_s: Float[Tensor, " V"],
    settings: LocateSettings,
    video_score: Float[Tensor, "Q V"] | None = None,
) -> RankedMoments:
    """Return one ranking per query of the best windows of all videos, before suppression.

    Windows are clipped to the video. `video_score` is added to the scores of all windows of a video.

    Raises:
        FeatureError: A video has no duration.
    """
    if not bool((duration_s > 0).all()):
        row = int(torch.nonzero(~(duration_s > 0))[0])
        raise FeatureError(
            f"video {row} of the corpus has duration {float(duration_s[row])} s, expected a positive number; add the "
            "duration to the annotations, because moments are in seconds"
        )
    spans = proposals.spans.cpu()
    duration_s = duration_s.cpu().float()
    chunk = max(1, NUMBERS_AT_A_TIME // (max(num_queries, POOLED_DIM) * len(spans)))
    best = RankedMoments.empty(num_queries)
    for start in range(0, len(duration_s), chunk):
        part = slice(start, start + chunk)
        values = similarities(part)
        top = top_windows(values if video_score is None else values + video_score[:, part, None], settings.per_video)
        video = torch.arange(len(duration_s))[part][:, None].expand(top.score.shape)
        span_s = spans[top.window.cpu()] * duration_s[part][:, None, None]
        columns = (video.flatten(1), span_s.flatten(1, 2), top.score.float().cpu().flatten(1))
        best = RankedMoments.best([best, RankedMoments(*(x.numpy() for x in columns))], settings.before_suppression)
    return best


@dataclass(frozen=True)
class TopWindows:
    """The best windows of each video for each query, best first: their scores and indices."""

    score: Float[Tensor, "Q V K"]
    window: Int[Tensor, "Q V K"]


def top_windows(similarities: Float[Tensor, "Q V P"], count: int) -> TopWindows:
    """Return the `count` best windows of every video, or all windows if there are fewer."""
    score, window = similarities.topk(min(count, similarities.shape[-1]), dim=-1)
    return TopWindows(score, window)
