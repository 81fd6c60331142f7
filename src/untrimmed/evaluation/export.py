"""Write the results of all queries in a split as a table, as a TREC run with judgements, or as a score matrix."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jaxtyping import Float, Int

from untrimmed.evaluation.moments import Spans, best_ious
from untrimmed.evaluation.recall import ranks

TREC_DEPTH = 1000  # videos per query, the usual depth of TREC runs


@dataclass(frozen=True, kw_only=True)
class ScoredSplit:
    """The scores of all captions with all videos of a split, and the correct videos and moments.

    Rows are captions in file order, and columns are videos in order of first appearance.

    - `video_index` is the index of each caption's annotated video.
    - `right_videos` contains the indices of all correct videos of each caption, padded with -1. `right_videos` is None
      if the data set has no dense labels.
    - `moments_s` contains the annotated spans in seconds.
    - `span_s` is the model's best span in the annotated video in seconds, or None if it was not computed.
    """

    caption_ids: Sequence[str]
    texts: Sequence[str]
    video_ids: Sequence[str]
    video_index: Int[np.ndarray, " Q"]
    fused: Float[np.ndarray, "Q V"]
    branches: Mapping[str, Float[np.ndarray, "Q V"]]
    moments_s: Sequence[Spans]
    span_s: Float[np.ndarray, "Q 2"] | None = None
    right_videos: Int[np.ndarray, "Q N"] | None = None


def query_rows(split: ScoredSplit) -> Iterator[dict[str, Any]]:
    """Yield one row per caption: rank and score of the annotated video, the top-ranked video, and the predicted moment.

    - `rank` and `score` belong to the fused score, `rank_BRANCH` and `score_BRANCH` to a single branch.
    - `any_rank` is the best rank of a correct video. The field exists only if the data set has dense labels.
    - `start_s` and `end_s` are the model's best span in the annotated video. `iou` is the largest IoU of this span with
      an annotated span.
    """
    columns = {"": split.fused, **{f"_{name}": scores for name, scores in split.branches.items()}}
    all_ranks = {suffix: ranks(scores, split.video_index) for suffix, scores in columns.items()}
    first = split.fused.argmax(axis=1)
    any_rank = _any_rank(split)
    ious = None if split.span_s is None else best_ious(split.span_s, split.moments_s)
    for row, (caption_id, text) in enumerate(zip(split.caption_ids, split.texts, strict=True)):
        video = split.video_index[row]
        values: dict[str, Any] = {"id": caption_id, "query": text, "video": split.video_ids[video]}
        for suffix, scores in columns.items():
            values[f"rank{suffix}"] = int(all_ranks[suffix][row])
            values[f"score{suffix}"] = float(scores[row, video])
        values["first_video"] = split.video_ids[first[row]]
        values["first_score"] = float(split.fused[row, first[row]])
        if any_rank is not None:
            values["any_rank"] = int(any_rank[row]) or None
        if split.span_s is not None and ious is not None:
            values["start_s"], values["end_s"] = (round(float(second), 3) for second in split.span_s[row])
            values["iou"] = None if np.isnan(ious[row]) else round(float(ious[row]), 4)
        yield values


def _any_rank(split: ScoredSplit) -> Int[np.ndarray, " Q"] | None:
    """Return the best rank of a correct video for each caption, or 0 for a caption without dense labels."""
    if split.right_videos is None:
        return None
    labelled = np.flatnonzero((split.right_videos >= 0).any(axis=1))
    rank = np.zeros(len(split.right_videos), dtype=np.int64)
    rank[labelled] = ranks(split.fused[labelled], split.right_videos[labelled])
    return rank


def write_queries_csv(split: ScoredSplit, path: Path) -> None:
    """Write `query_rows` as CSV, with column names in the first line."""
    rows = list(query_rows(split))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_queries_jsonl(split: ScoredSplit, path: Path) -> None:
    """Write `query_rows` as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in query_rows(split))


def write_trec_run(split: ScoredSplit, path: Path, *, tag: str = "untrimmed", depth: int = TREC_DEPTH) -> None:
    """Write the `depth` best videos of each caption by fused score as a TREC run: `id Q0 video rank score tag`.

    White space in ids and in the tag is percent-encoded, because it separates the fields.
    """
    videos = [_field(video) for video in split.video_ids]
    with path.open("w", encoding="utf-8") as file:
        for caption_id, scores in zip(split.caption_ids, split.fused, strict=True):
            order = np.argsort(-scores, kind="stable")[:depth]
            file.writelines(
                f"{_field(caption_id)} Q0 {videos[video]} {rank} {scores[video]!s} {_field(tag)}\n"
                for rank, video in enumerate(order, start=1)
            )


def write_qrels(split: ScoredSplit, path: Path) -> None:
    """Write the correct videos of each caption as TREC judgements: `id 0 video 1`.

    Without dense labels, only the annotated video is correct.
    """
    with path.open("w", encoding="utf-8") as file:
        for row, caption_id in enumerate(split.caption_ids):
            annotated = int(split.video_index[row])
            labels = [] if split.right_videos is None else split.right_videos[row].tolist()
            right = dict.fromkeys([annotated, *(video for video in labels if video >= 0)])
            file.writelines(f"{_field(caption_id)} 0 {_field(split.video_ids[video])} 1\n" for video in right)


def write_scores(split: ScoredSplit, path: Path) -> None:
    """Write an .npz file with `fused` and `branch_NAME` [Q, V], ids, and `video_index` [Q].

    With dense labels, the file also has `right_videos` [Q, N], padded with -1.
    """
    arrays: dict[str, np.ndarray] = {
        "fused": split.fused,
        **{f"branch_{name}": scores for name, scores in split.branches.items()},
        "caption_ids": np.array(split.caption_ids),
        "video_ids": np.array(split.video_ids),
        "video_index": split.video_index,
    }
    if split.right_videos is not None:
        arrays["right_videos"] = split.right_videos
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _field(text: str) -> str:
    return re.sub(r"\s", lambda blank: quote(blank[0]), text)
