"""The top-ranked videos of captions, the rank of the correct video, and the best moment in each video."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from untrimmed.batches import EncodedQueries
from untrimmed.data.annotations import Span
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.fields import open_lines
from untrimmed.errors import ConfigError, NoTimelineError, UnknownNameError, nearest
from untrimmed.evaluation.recall import ranks
from untrimmed.running.batches import in_batches
from untrimmed.running.opened import OpenedModel


@dataclass(frozen=True)
class RetrievedVideo:
    """A top-ranked video of a caption.

    `moment_s` is the best moment in seconds. `moment_s` is None if the model cannot find moments or the video's
    duration is unknown.
    """

    row: int  # row of the video in the data set
    video: str
    score: float
    is_right: bool
    moment_s: Span | None = None


@dataclass(frozen=True)
class CaptionRanking:
    """The top-ranked videos of one caption, best first, and the rank of the correct video, counted from 1."""

    row: int  # row of the caption in the data set
    caption_id: str
    text: str
    video: str
    moments_s: tuple[Span, ...]  # the annotated moments in seconds
    rank: int
    videos: tuple[RetrievedVideo, ...]


def named_captions(dataset: RetrievalDataset, names: Sequence[str]) -> Int[np.ndarray, " N"]:
    """Return the row numbers of the captions with the given ids or texts.

    A text selects all captions with this text. Case and extra blanks are ignored.

    Raises: UnknownNameError for a name that is neither an id nor a text.
    """
    row_of = {caption_id: row for row, caption_id in enumerate(dataset.caption_ids)}
    by_text: dict[str, list[int]] = {}
    for row, text in enumerate(dataset.texts):
        by_text.setdefault(_plain(text), []).append(row)
    all_rows: list[int] = []
    for name in names:
        rows = [row_of[name]] if name in row_of else by_text.get(_plain(name), [])
        if not rows:
            place = f"{dataset.name}, split {dataset.split}"
            hint = nearest(name, row_of) or f"; its ids look like {dataset.caption_ids[0]!r}"
            raise UnknownNameError(f"{place}: no caption has the id or the text {name!r}{hint}")
        all_rows += rows
    return np.array(all_rows, dtype=np.int64)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def read_names(queries: Path) -> list[str]:
    """Return the caption ids or texts in a file (one per line) or in a comma-separated list.

    Raises: ConfigError if there are no ids or texts, FeatureError for a file that is not text.
    """
    # `Path.is_file` would raise an error for a list that is too long for a file name
    lines = [line for _, line in open_lines(queries)] if os.path.isfile(queries) else str(queries).split(",")
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise ConfigError(f"{queries}: contains no caption; write an id or a text on each line")
    return names


def top_videos(opened: OpenedModel, captions: Int[np.ndarray, " N"], count: int) -> list[CaptionRanking]:
    """Return the `count` videos with the highest fused scores for each caption, with the best moment in each video.

    Raises: ConfigError for a count below 1.
    """
    if count < 1:
        raise ConfigError(f"found {count} as the number of videos to show, expected at least 1")
    dataset = opened.dataset
    queries = _encoded(opened, captions)
    scores = opened.score(queries).fused
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    rank = ranks(scores, dataset.video_index[captions])
    moments = best_moments(opened, queries, best)
    rankings = []
    for place, row in enumerate(captions.tolist()):
        right = int(dataset.video_index[row])
        ranked = tuple(
            RetrievedVideo(video, dataset.video_ids[video], float(scores[place, video]), video == right, moment)
            for video, moment in zip(best[place].tolist(), moments[place], strict=True)
        )
        annotation = dataset.annotations[row]
        caption = annotation.caption_id, annotation.text, annotation.video, annotation.moments
        rankings.append(CaptionRanking(row, *caption, int(rank[place]), ranked))
    return rankings


def _encoded(opened: OpenedModel, captions: Int[np.ndarray, " N"]) -> EncodedQueries:
    if len(captions) == len(opened.dataset.annotations):
        return opened.all_queries.select(torch.from_numpy(captions))
    parts = [opened.queries(rows) for rows in in_batches(captions, opened.train.eval_query_batch)]
    return parts[0].cat(parts)


def best_moments(
    opened: OpenedModel, queries: EncodedQueries, videos: Int[np.ndarray, "N K"]
) -> list[list[Span | None]]:
    """Return the best window, in seconds, of each query in each of its `videos`.

    An entry is None if the video has no duration or the model cannot find moments.
    """
    try:
        span_s = opened.best_spans(queries, videos)
    except NoTimelineError:
        return [[None] * videos.shape[1] for _ in videos]
    return [[None if np.isnan(span[0]) else (float(span[0]), float(span[1])) for span in spans] for spans in span_s]
