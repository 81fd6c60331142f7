"""What a model keeps of a video in temporal order, so that a sentence can be compared with every part of it."""

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
class Course:
    """How some captions fit the parts of one video, each of which covers an equal share of it."""

    similarity: Float[np.ndarray, "Q N"]

    @property
    def position(self) -> Float[np.ndarray, " Q"]:
        """The middle of each caption's best part, as a share of the video.

        >>> Course(np.array([[0.1, 0.9], [0.8, 0.2]])).position.tolist()
        [0.75, 0.25]
        """
        return (self.similarity.argmax(axis=1) + 0.5) / self.similarity.shape[1]


def cell_edges(count: int, row_times: RowTimes) -> Float[np.ndarray, " E"]:
    """Between which shares of a video its `count` parts are drawn: each around the time at which windows pool it.

    With row i of N at i / (N - 1), as JSG was released, the outer cells are half as wide as the others.

    >>> cell_edges(4, "middle").tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> cell_edges(5, "released").tolist()
    [0.0, 0.125, 0.375, 0.625, 0.875, 1.0]
    """
    times = time_grid(count, row_times=row_times).double().numpy()
    return np.concatenate([[0.0], (times[:-1] + times[1:]) / 2, [1.0]])


def parts(model: RetrievalModel, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
    """The clips where they stand in temporal order, else the method's timeline, and which rows are real.

    Raises: ConfigError for a method that encodes a video as one vector only.
    """
    clips = videos.clips
    in_order = model.has_clips and not any(attachment.config.replaces_clips for attachment in model.carried)
    if in_order and clips is not None and clips.shape[1] == model.config.num_clips:
        return clips, None
    return model.timeline(videos)


def courses(
    model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos, video_index: Int[np.ndarray, " Q"]
) -> list[Course]:
    """For each video the course of its captions, in their order; `video_index` are rows of `videos`."""
    units, mask = parts(model, videos)
    found = []
    for video in range(len(videos)):
        own = queries.select(torch.from_numpy(np.flatnonzero(video_index == video)))
        rows = units[video] if mask is None else units[video][mask[video]]
        found.append(Course(model.similarity(own, rows[None])[:, 0].cpu().numpy()))
    return found


def best_windows(
    run: TrainedRun, captions: Int[np.ndarray, " Q"], video: int
) -> tuple[Course, Float[np.ndarray, "Q 2"]]:
    """The course of some captions through one video, and the window that fits each best: start and end as shares.

    Windows are those that the package finds moments with (JSG's), pooled over the very parts of the course.
    """
    encoded = run.videos(np.array([video]))
    queries = run.queries(captions)
    units, mask = parts(run.model, encoded)
    similarity = partial(run.model.similarity, queries)
    row_times = run.model.row_times
    fits = window_similarities(similarity, units, mask, JSG_WINDOWS, row_times=row_times)(slice(0, 1))[:, 0]
    course = courses(run.model, queries, encoded, np.zeros(len(captions), dtype=np.int64))[0]
    return course, JSG_WINDOWS.spans[fits.argmax(dim=1).cpu()].numpy()
