"""Similarity of captions with the parts of a video in temporal order."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.moments.gaussian_proposals import JSG_WINDOWS, RowTimes, time_grid
from untrimmed.moments.localise import window_similarities
from untrimmed.plots.trained_run import TrainedRun


@dataclass(frozen=True)
class PartSimilarity:
    """Similarity of captions with the parts of one video. Each part covers an equal share of the video."""

    values: Float[np.ndarray, "Q N"]

    @property
    def position(self) -> Float[np.ndarray, " Q"]:
        """The middle of each caption's best part, as a fraction of the video's duration.

        >>> PartSimilarity(np.array([[0.1, 0.9], [0.8, 0.2]])).position.tolist()
        [0.75, 0.25]
        """
        return (self.values.argmax(axis=1) + 0.5) / self.values.shape[1]


def cell_edges(count: int, row_times: RowTimes) -> Float[np.ndarray, " E"]:
    """Return the `count + 1` edges between which the parts of a video are drawn, as fractions of the duration.

    The edge between two parts is halfway between their times. In released JSG, part i of N is at time i / (N - 1). The
    first and the last part are then half as wide as the others.

    >>> cell_edges(4, "middle").tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> cell_edges(5, "released").tolist()
    [0.0, 0.125, 0.375, 0.625, 0.875, 1.0]
    """
    times = time_grid(count, row_times=row_times).double().numpy()
    return np.concatenate([[0.0], (times[:-1] + times[1:]) / 2, [1.0]])


def parts(model: RetrievalModel, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
    """Return vectors and mask of each video's parts: clips if they are in temporal order, otherwise the timeline.

    Raises: ConfigError for a method that encodes a video as a single vector.
    """
    clips = videos.clips
    in_order = model.has_clips and not any(attachment.config.replaces_clips for attachment in model.carried)
    if in_order and clips is not None and clips.shape[1] == model.config.num_clips:
        return clips, None
    return model.timeline(videos)


def part_similarities(
    model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[np.ndarray, " Q"]
) -> list[PartSimilarity]:
    """Return, for each video, the similarities of its captions with its parts.

    `video_index` is the index in `videos` of each caption's video.
    """
    units, mask = parts(model, videos)
    similarities = []
    for video in range(len(videos)):
        captions = queries.select(torch.from_numpy(np.flatnonzero(video_index == video)))
        rows = units[video] if mask is None else units[video][mask[video]]
        similarities.append(PartSimilarity(model.similarity(captions, rows[None])[:, 0].cpu().numpy()))
    return similarities


def best_windows(
    run: TrainedRun, captions: Int[np.ndarray, " Q"], video: int
) -> tuple[PartSimilarity, Float[np.ndarray, "Q 2"]]:
    """Return the similarities of captions with a video's parts, and the best window of each caption.

    A window is [start, end] as fractions of the duration. Windows are JSG's proposals, which pool the vectors of
    neighbouring parts. Search finds moments in the same way.
    """
    encoded = run.videos(np.array([video]))
    queries = run.queries(captions)
    units, mask = parts(run.model, encoded)
    similarity = partial(run.model.similarity, queries)
    row_times = run.model.row_times
    fits = window_similarities(similarity, units, mask, JSG_WINDOWS, row_times=row_times)(slice(0, 1))[:, 0]
    values = part_similarities(run.model, queries, encoded, np.zeros(len(captions), dtype=np.int64))[0]
    return values, JSG_WINDOWS.spans[fits.argmax(dim=1).cpu()].numpy()
