"""Dense labels: which videos of a split a caption fits, besides the one that it was written for.

They are read as published for the field's test sets, a line a query, compressed or not:

    {"query_id": "3MSZA#enc#0", "caption": "person turn a light on", "gt_video_ids": ["3MSZA", "K9FRT"]}

`caption` may be left out; where it stands it must be the split's, else the line is about another numbering of captions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from untrimmed.data.annotations import Annotation, plain_text, videos_of
from untrimmed.data.fields import Row, read_rows
from untrimmed.errors import FeatureError


@dataclass(frozen=True)
class Truths:
    """The right videos of each query of a split, and how much of the labels is about something else.

    `video_index` holds rows of the split's videos: the annotated one first, then the others, and -1 in what is left
    over; queries without a label have -1 only. Of the labels, `other_queries` are not in the split, `other_texts` have
    the id of a caption that reads otherwise, and `other_videos` (distinct ones) are not in the split.
    """

    video_index: Int[np.ndarray, "Q N"]
    other_queries: int
    other_texts: int
    other_videos: int

    @property
    def counts(self) -> dict[str, float]:
        """How many queries have labels, their mean number of right videos, and what was left out."""
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
    """Return the right videos of a split's queries, the annotated video always among them.

    Raises: FeatureError for a bad line, a query that is labelled twice, or a file without labels for the split.
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
            raise FeatureError(f"{row.place}: query {query_id!r} has a label above already; remove one of the lines")
        labelled.add(query_id)
        if query_id not in query_of:
            continue
        own = annotations[query_of[query_id]]
        if "caption" in row.values and plain_text(row.sentence("caption")) != plain_text(own.text):
            other_texts += 1
            continue
        right[query_of[query_id]] = [row_of[video] for video in dict.fromkeys([own.video, *videos]) if video in row_of]
        other_videos.update(video for video in videos if video not in row_of)
    if not right:
        found = f"its ids look like {min(labelled)!r}" if labelled else "it is empty"
        raise FeatureError(
            f"{path}: labels no query of this split, {found}, those of the split like {annotations[0].caption_id!r}; "
            "give the labels of this data set and --split"
        )
    index = np.full((len(annotations), max(map(len, right.values()))), -1, dtype=np.int64)
    for number, rows in right.items():
        index[number, : len(rows)] = rows
    other_queries = len(labelled) - len(right) - other_texts
    return Truths(index, other_queries, other_texts, len(other_videos))


def _videos(row: Row) -> list[str]:
    query_id = row.values["query_id"]
    videos = row.entries("gt_video_ids")
    if not isinstance(query_id, str):
        raise FeatureError(f"{row.place}: query_id is {query_id!r}, wanted text; correct the line")
    if not videos or not all(isinstance(video, str) for video in videos):
        raise FeatureError(f"{row.place}: gt_video_ids is {videos!r}, wanted the ids of videos; correct the line")
    return videos
