"""What a query finds: its first videos, which of them is right, and the best moment of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from untrimmed.batches import EncodedQueries
from untrimmed.data.annotations import Span
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import ConfigError, NoTimelineError, UnknownNameError, nearest
from untrimmed.evaluation.recall import ranks
from untrimmed.running.batches import in_batches
from untrimmed.running.encoding import evaluating
from untrimmed.running.opened import OpenedModel


@dataclass(frozen=True)
class FoundVideo:
    """A video that a query finds; `moment_s` is its best moment, None where the method or the data know no times."""

    row: int  # in the data set
    video: str
    score: float
    is_right: bool
    moment_s: Span | None = None


@dataclass(frozen=True)
class Answer:
    """The first videos of one caption, the best first, and the rank of the right one, counted from 1."""

    row: int  # in the data set
    caption_id: str
    text: str
    video: str
    moments_s: tuple[Span, ...]  # annotated
    rank: int
    found: tuple[FoundVideo, ...]


def named_captions(dataset: RetrievalDataset, names: Sequence[str]) -> Int[np.ndarray, " N"]:
    """Return the rows of captions given by ids or texts, ignoring case and blanks; a text means all captions with it.

    Raises: UnknownNameError for a name that is neither.
    """
    row_of = {caption_id: row for row, caption_id in enumerate(dataset.caption_ids)}
    by_text: dict[str, list[int]] = {}
    for row, text in enumerate(dataset.texts):
        by_text.setdefault(_plain(text), []).append(row)
    found: list[int] = []
    for name in names:
        rows = [row_of[name]] if name in row_of else by_text.get(_plain(name), [])
        if not rows:
            place = f"{dataset.name}, split {dataset.split}"
            hint = nearest(name, row_of) or f"; its ids look like {dataset.caption_ids[0]!r}"
            raise UnknownNameError(f"{place}: no caption has the id or the text {name!r}{hint}")
        found += rows
    return np.array(found, dtype=np.int64)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def read_names(queries: Path) -> list[str]:
    """Return ids or texts of captions, from the lines of a file or separated by commas; ConfigError if none."""
    lines = queries.read_text(encoding="utf-8").splitlines() if queries.is_file() else str(queries).split(",")
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise ConfigError(f"{queries}: names no caption; write an id or a text on each line")
    return names


def top_videos(opened: OpenedModel, captions: Int[np.ndarray, " N"], count: int) -> list[Answer]:
    """The first `count` videos of some captions among all of the split, by the fused score, with their best moments.

    Raises: ConfigError for a count below 1.
    """
    if count < 1:
        raise ConfigError(f"found {count} as the number of videos to show, wanted at least 1")
    dataset = opened.dataset
    queries = _encoded(opened, captions)
    scores = opened.score(queries).fused
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    rank = ranks(scores, dataset.video_index[captions])
    moments = best_moments(opened, queries, best)
    answers = []
    for place, row in enumerate(captions.tolist()):
        right = int(dataset.video_index[row])
        found = tuple(
            FoundVideo(video, dataset.video_ids[video], float(scores[place, video]), video == right, moment)
            for video, moment in zip(best[place].tolist(), moments[place], strict=True)
        )
        annotation = dataset.annotations[row]
        told = annotation.caption_id, annotation.text, annotation.video, annotation.moments
        answers.append(Answer(row, *told, int(rank[place]), found))
    return answers


def _encoded(opened: OpenedModel, captions: Int[np.ndarray, " N"]) -> EncodedQueries:
    if len(captions) == len(opened.dataset.annotations):
        return opened.all_queries.select(torch.from_numpy(captions))
    parts = [opened.queries(rows) for rows in in_batches(captions, opened.train.eval_query_batch)]
    return parts[0].cat(parts)


def best_moments(
    opened: OpenedModel, queries: EncodedQueries, videos: Int[np.ndarray, "N K"]
) -> list[list[Span | None]]:
    """Return the best window in s of each of a query's videos; None without a duration or timeline."""
    dataset = opened.dataset
    found: list[list[Span | None]] = [[None] * videos.shape[1] for _ in videos]
    for batch in in_batches(np.arange(len(dataset.video_ids)), opened.train.eval_video_batch):
        wanted = np.intersect1d(videos, batch)
        if not len(wanted):
            continue
        encoded = opened.videos(batch)  # all of the batch, as GMMFormer's windows depend on it
        for video in wanted.tolist():
            duration_s = float(dataset.durations_s[video])
            rows, places = np.nonzero(videos == video)
            with evaluating(opened.model):
                try:
                    proposals, fits = opened.model.window_similarities(queries.select(torch.from_numpy(rows)), encoded)
                except NoTimelineError:
                    return found
                at = video - int(batch[0])
                window = fits(slice(at, at + 1))[:, 0].argmax(dim=1).cpu()
            if duration_s > 0:
                spans = (proposals.spans.cpu()[window] * duration_s).tolist()
                for row, place, (start_s, end_s) in zip(rows, places, spans, strict=True):
                    found[row][place] = (start_s, end_s)
    return found
