"""Score a library on labelled sentences: does it find the video, and the moment in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from untrimmed.errors import FeatureError, UnknownNameError
from untrimmed.evaluation.moments import mean_iou, moment_recall
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.library import Library
from untrimmed.search.video_names import VideoNames
from untrimmed.types import Moment

_DEPTH = 100  # a video that is not among so many counts as not found
_IOUS = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class LabelledQuery:
    """A sentence, the video it is about (a path, file name or name without suffix), and where it holds."""

    text: str
    video: str
    moments: tuple[Moment, ...]  # none: the video is known, the moment is not
    place: str = ""  # file and line, for messages


@dataclass(frozen=True)
class QueryOutcome:
    """What the library gave for one labelled sentence."""

    query: LabelledQuery
    rank: int | None  # of the true video, from 1; None: not among the first 100
    found: Moment  # the best moment in the true video

    @property
    def iou(self) -> float:
        """Best IoU of the found moment with a true one, in [0, 1]."""
        return float(iou(spans_of([self.found]), spans_of(self.query.moments)).max(initial=0.0))


@dataclass(frozen=True)
class LibraryQuality:
    """Figures in percent, keyed as printed in papers, and the outcome of every query behind them."""

    figures: dict[str, float]
    outcomes: tuple[QueryOutcome, ...]
    num_videos: int


def read_queries(file: str | os.PathLike[str]) -> list[LabelledQuery]:
    """Labelled sentences from JSON lines.

    A line is one sentence, `{"video", "query" (or "caption"), "start_s"?, "end_s"?}`, or one video with several,
    `{"file", "queries": [{"query", "start", "end"}]}`. Lines that repeat sentence and video give it more moments.

    Raises:
        FeatureError: The file cannot be read, or a line lacks a field; the message names the line.
    """
    moments: dict[tuple[str, str], list[Moment]] = {}
    places: dict[tuple[str, str], str] = {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FeatureError(f"{file}: cannot be read as text ({error}); expected one JSON object a line") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"found {type(row).__name__}")
            for video, text, span in _labels(row):
                if not isinstance(text, str) or not text.strip():
                    raise ValueError("the sentence is empty")
                known = moments.setdefault((video, text), [])
                places.setdefault((video, text), f"{file}, line {number}")
                if span is not None:
                    known.append(_moment(*span))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FeatureError(
                f'{file}, line {number}: {error}; expected {{"video": ..., "query": ..., "start_s": 1.5, "end_s": 4}}'
            ) from None
    if not moments:
        raise FeatureError(f"{file}: holds no queries; expected one JSON object a line")
    return [LabelledQuery(text, video, tuple(spans), places[video, text]) for (video, text), spans in moments.items()]


def evaluate_library(
    library: Library, queries: Sequence[LabelledQuery], *, progress: Callable[[int, int], None] | None = None
) -> LibraryQuality:
    """R@K of the true video, and how well its moment is met.

    `R@K` ranks all videos. `mean IoU` and `R1@IoU` take the best moment inside the true video (grounding). `event R@K,
    IoU` ask for both: the true video among the first K and its best moment at least so far inside.

    Raises:
        UnknownNameError: A query's video is not in the library, or fits several.
        FeatureError: A query's moment begins where its video has ended already.
    """
    records = library.videos()
    names, lengths_s = VideoNames(record.path for record in records), {r.path: r.duration_s for r in records}
    paths = [_resolve(query, names, library) for query in queries]  # all, before the first search
    queries = [_inside(query, lengths_s[path]) for query, path in zip(queries, paths, strict=True)]
    outcomes = []
    for number, (query, path) in enumerate(zip(queries, paths, strict=True), start=1):
        hits = library.search(query.text, limit=min(_DEPTH, len(records)), moments=1)
        rank = next((i for i, hit in enumerate(hits, start=1) if str(hit.video) == path), None)
        inside = library.search(query.text, limit=1, moments=1, within=path)
        # of a sentence without a word that the encoder knows there are no hits: it was not found, and nowhere
        outcomes.append(QueryOutcome(query, rank, inside[0].moments[0] if inside else Moment(0.0, 0.0)))
        if progress is not None:
            progress(number, len(queries))
    return LibraryQuality(figures(outcomes), tuple(outcomes), len(records))


def figures(outcomes: Sequence[QueryOutcome]) -> dict[str, float]:
    """Percentages by name over some outcomes; those of moments only if a query's moment is known."""
    ranks = np.array([outcome.rank or np.inf for outcome in outcomes])
    figures = {f"R@{k}": 100.0 * float((ranks <= k).mean()) for k in (1, 5, 10, 100)}
    figures["SumR"] = sum(figures.values())
    timed = [(outcome, rank) for outcome, rank in zip(outcomes, ranks, strict=True) if outcome.query.moments]
    if not timed:
        return figures
    truth = [spans_of(outcome.query.moments) for outcome, _ in timed]
    found = [spans_of([outcome.found]) for outcome, _ in timed]
    figures["mean IoU"] = mean_iou(found, truth)
    for threshold in _IOUS:
        figures[f"R1@IoU={threshold}"] = moment_recall(found, truth, top=1, min_iou=threshold)
    for k in (1, 5, 10):
        inside = [span if rank <= k else np.empty((0, 2)) for span, (_, rank) in zip(found, timed, strict=True)]
        for threshold in _IOUS:
            figures[f"event R@{k},IoU={threshold}"] = moment_recall(inside, truth, top=1, min_iou=threshold)
    return figures


def _labels(line: dict[str, Any]) -> list[tuple[str, Any, tuple[Any, Any] | None]]:
    if "queries" in line:
        video = line.get("file") or line["video"]
        return [(video, query["query"], (query["start"], query["end"])) for query in line["queries"]]
    timed = line.get("start_s") is not None or line.get("end_s") is not None
    span = (line["start_s"], line["end_s"]) if timed else None
    return [(line["video"], line["query"] if "query" in line else line["caption"], span)]


def _moment(start_s: Any, end_s: Any) -> Moment:
    moment = Moment(float(start_s), float(end_s))
    if not 0 <= moment.start_s < moment.end_s:
        raise ValueError(f"a moment from {start_s} to {end_s} s")
    return moment


def _inside(query: LabelledQuery, duration_s: float) -> LabelledQuery:
    """The query with its moments cut at the end of the video, as `untrimmed features` cuts them."""
    for moment in query.moments:
        if moment.start_s >= duration_s:
            raise FeatureError(
                f"{_place(query)}moment from {moment.start_s:g} to {moment.end_s:g} s, the video {query.video!r} "
                f"ends at {duration_s:g} s; correct the line"
            )
    return replace(query, moments=tuple(replace(m, end_s=min(m.end_s, duration_s)) for m in query.moments))


def _resolve(query: LabelledQuery, names: VideoNames, library: Library) -> str:
    path = names.find(query.video)
    if path is None:
        raise UnknownNameError(
            f"{_place(query)}video {query.video!r} is not in {library.folder}; index it first, see: untrimmed ls"
        )
    return path


def _place(query: LabelledQuery) -> str:
    return f"{query.place}: " if query.place else ""
