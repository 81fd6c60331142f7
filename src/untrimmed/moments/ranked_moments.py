"""Rankings of moments of many videos, and suppression of overlapping moments within each video."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from untrimmed.moments.suppression import suppress

QUERIES_AT_A_TIME = 64  # limits the size of the tables in `_suppress_block`


@dataclass(frozen=True)
class RankedMoments:
    """Moments of many videos for each query, best first. Padding has video -1, span 0 and score 0."""

    video_index: Int[np.ndarray, "Q N"]
    span_s: Float[np.ndarray, "Q N 2"]
    score: Float[np.ndarray, "Q N"]

    @property
    def count(self) -> Int[np.ndarray, " Q"]:
        """Number of moments of each query."""
        return (self.video_index >= 0).sum(axis=1)

    @classmethod
    def empty(cls, num_queries: int) -> "RankedMoments":
        """Return an empty ranking for this number of queries."""
        empty = np.zeros((num_queries, 0))
        return cls(empty.astype(np.int64), np.zeros((num_queries, 0, 2), np.float32), empty.astype(np.float32))

    @classmethod
    def best(cls, parts: Sequence["RankedMoments"], limit: int) -> "RankedMoments":
        """Return the best moments of several rankings for the same queries. Ties keep the order of `parts`."""
        video = np.concatenate([part.video_index for part in parts], axis=1)
        score = np.concatenate([part.score for part in parts], axis=1)
        order = np.argsort(np.where(video < 0, np.inf, -score), axis=1, kind="stable")[:, :limit]
        span_s = np.concatenate([part.span_s for part in parts], axis=1)
        return cls(
            np.take_along_axis(video, order, axis=1),
            np.take_along_axis(span_s, order[..., None], axis=1),
            np.take_along_axis(score, order, axis=1),
        )

    def shifted(self, num_videos: int) -> "RankedMoments":
        """Return the same moments, with `num_videos` added to all video indices."""
        return RankedMoments(np.where(self.video_index < 0, -1, self.video_index + num_videos), self.span_s, self.score)

    @classmethod
    def cat(cls, parts: Sequence["RankedMoments"]) -> "RankedMoments":
        """Return the rankings of all parts as one object, with the queries in order. Shorter rankings are padded."""
        longest = max(part.video_index.shape[1] for part in parts)
        return cls(
            np.concatenate([_padded(part.video_index, longest, -1) for part in parts]),
            np.concatenate([_padded(part.span_s, longest, 0) for part in parts]),
            np.concatenate([_padded(part.score, longest, 0) for part in parts]),
        )


def _padded(rows: np.ndarray, length: int, value: float) -> np.ndarray:
    missing = [(0, 0), (0, length - rows.shape[1])] + [(0, 0)] * (rows.ndim - 2)
    return np.pad(rows, missing, constant_values=value)


def suppress_ranked(
    ranked: RankedMoments, *, max_overlap: float = 0.5, limit: int = 100, limit_per_video: int | None = None
) -> RankedMoments:
    """Return the best moments. A moment is removed if its IoU with a better moment of its video exceeds `max_overlap`.

    As released, moments with equal scores are ordered by the best rank of their videos, then by their own rank.
    """
    per_video = limit if limit_per_video is None else limit_per_video
    blocks = [slice(start, start + QUERIES_AT_A_TIME) for start in range(0, len(ranked.score), QUERIES_AT_A_TIME)]
    parts = [
        _suppress_block(ranked.video_index[b], ranked.span_s[b], ranked.score[b], max_overlap, per_video, limit)
        for b in blocks
    ]
    return RankedMoments.cat(parts) if parts else ranked


def _suppress_block(
    video: Int[np.ndarray, "Q N"],
    span: Float[np.ndarray, "Q N 2"],
    score: Float[np.ndarray, "Q N"],
    max_overlap: float,
    limit_per_video: int,
    limit: int,
) -> RankedMoments:
    """Suppress overlapping moments of a block of queries. Spans are grouped by query and video."""
    row, rank = np.nonzero(video >= 0)
    order = np.lexsort((rank, video[row, rank], row))
    row = row[order]
    rank = rank[order]
    new_pair = np.ones(len(row), dtype=bool)
    new_pair[1:] = (np.diff(row) != 0) | (np.diff(video[row, rank]) != 0)
    starts = np.flatnonzero(new_pair)
    pair = np.cumsum(new_pair) - 1
    column = np.arange(len(row)) - starts[pair]

    spans = np.zeros((len(starts), column.max(initial=-1) + 1, 2), dtype=span.dtype)
    real = np.zeros(spans.shape[:2], dtype=bool)
    spans[pair, column] = span[row, rank]
    real[pair, column] = True
    keep = suppress(spans, real, max_iou=max_overlap, limit=limit_per_video)[pair, column]
    row, rank, first_rank = row[keep], rank[keep], rank[starts[pair]][keep]
    order = np.lexsort((rank, first_rank, -score[row, rank], row))
    row = row[order]
    rank = rank[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    row = row[place < limit]
    rank = rank[place < limit]
    place = place[place < limit]
    result = RankedMoments(
        np.full((len(video), place.max(initial=-1) + 1), -1, dtype=np.int64),
        np.zeros((len(video), place.max(initial=-1) + 1, 2), dtype=span.dtype),
        np.zeros((len(video), place.max(initial=-1) + 1), dtype=score.dtype),
    )
    result.video_index[row, place] = video[row, rank]
    result.span_s[row, place] = span[row, rank]
    result.score[row, place] = score[row, rank]
    return result
