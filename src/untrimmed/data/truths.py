"""Dense labels: all videos of a split that a caption describes, not only the video that it was written for.

The published file has one line per query and may be compressed with gzip:

    {"query_id": "3MSZA#enc#0", "caption": "person turn a light on", "gt_video_ids": ["3MSZA", "K9FRT"]}

`caption` is optional. A line is ignored if its caption differs from the split's caption with the same id, because the
label then belongs to another caption.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from untrimmed.data.annotations import Annotation, plain_text, videos_of
from untrimmed.data.fields import AnnotationRow, read_rows
from untrimmed.errors import FeatureError


@dataclass(frozen=True)
class Truths:
    """All correct videos of each query in a split, and counts of labels that could not be used.

    - `file` is the path of the labels.
    - `video_index` [Q, N] has the indices of each query's correct videos, the annotated video first. Rows are padded
      with -1, and a query without a label has only -1.
    - `other_queries` counts labelled queries that are not in the split.
    - `other_texts` counts labels whose caption differs from the split's caption.
    - `other_videos` counts labelled videos that are not in the split.
    """

    file: str
    video_index: Int[np.ndarray, "Q N"]
    other_queries: int
    other_texts: int
    other_videos: int

    @property
    def counts(self) -> dict[str, float]:
        """The counts for a report: labelled queries, correct videos per query (mean), and labels that were not used.

        `several` is the number of queries with several correct videos.
        """
        right = (self.video_index >= 0).sum(axis=1)
        return {
            "queries": float(np.count_nonzero(right)),
            "right_videos": float(right[right > 0].mean()),
            "several": float(np.count_nonzero(right > 1)),
            "other_queries": float(self.other_queries),
            "other_texts": float(self.other_texts),
            "other_videos": float(self.other_videos),
        }


def read_truths(path: Path, annotations: Sequence[Annotation]) -> Truths:
    """Return the correct videos of a split's queries, including the annotated video.

    Raises: FeatureError for an invalid line, a query with two labels, or a file without labels for the split.
    """
    row_of = {video: row for row, video in enumerate(videos_of(annotations))}
    query_of = {annotation.caption_id: number for number, annotation in enumerate(annotations)}
    right: dict[int, list[int]] = {}
    labelled: set[str] = set()
    other_texts = 0
    other_videos: set[str] = set()
    for row in read_rows(path, ["query_id", "gt_video_ids"]):
        query_id = row.values["query_id"]
        videos = _videos(row)
        if query_id in labelled:
            raise FeatureError(f"{row.place}: query {query_id!r} is also on an earlier line; remove one of the lines")
        labelled.add(query_id)
        if query_id not in query_of:
            continue
        annotation = annotations[query_of[query_id]]
        if "caption" in row.values and plain_text(row.sentence("caption")) != plain_text(annotation.text):
            other_texts += 1
            continue
        distinct = dict.fromkeys([annotation.video, *videos])
        right[query_of[query_id]] = [row_of[video] for video in distinct if video in row_of]
        other_videos.update(video for video in videos if video not in row_of)
    if not right:
        ids = f"its ids look like {min(labelled)!r}" if labelled else "it is empty"
        raise FeatureError(
            f"{path}: no labels for this split: {ids}, expected ids like {annotations[0].caption_id!r}; "
            "choose the labels of this data set, or another split (split)"
        )
    index = np.full((len(annotations), max(map(len, right.values()))), -1, dtype=np.int64)
    for number, rows in right.items():
        index[number, : len(rows)] = rows
    other_queries = len(labelled) - len(right) - other_texts
    return Truths(str(path), index, other_queries, other_texts, len(other_videos))


def _videos(row: AnnotationRow) -> list[str]:
    query_id = row.values["query_id"]
    videos = row.entries("gt_video_ids")
    if not isinstance(query_id, str):
        raise FeatureError(f"{row.place}: query_id is {query_id!r}, expected text; fix the line")
    if not videos or not all(isinstance(video, str) for video in videos):
        raise FeatureError(f"{row.place}: gt_video_ids is {videos!r}, expected a list of video ids; fix the line")
    return videos
