"""Score a library on labelled sentences: does it find the video, and the moment in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from untrimmed.data.labelled import Label, inside, read_labels
from untrimmed.errors import UnknownNameError, named
from untrimmed.evaluation.moments import mean_iou, moment_recall
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.library import Library
from untrimmed.search.store.records import Records, VideoRecord
from untrimmed.types import Moment

_DEPTH = 100  # a video that is not among so many counts as not found
_AT_A_TIME = 256  # sentences that are asked together
_NUM_NAMED = 10  # videos in one message
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
    warnings: tuple[str, ...] = ()  # of words that the encoder does not know or read

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
    skipped: tuple[LabelledQuery, ...] = ()  # left out: the library has no one video of that name


def read_queries(file: str | os.PathLike[str]) -> list[LabelledQuery]:
    """Labelled sentences from JSON lines.

    A line is one sentence, `{"video", "query" (or "caption"), "start_s"?, "end_s"?}`, or one video with several,
    `{"file", "queries": [{"query", "start", "end"}]}`. Lines that repeat sentence and video give it more moments.

    Raises:
        FeatureError: The file cannot be read, or a line lacks a field; the message names the line.
    """
    grouped: dict[tuple[str, str], list[Label]] = {}
    for label in read_labels(file, splits=False):
        grouped.setdefault((label.video, label.text), []).append(label)
    return [
        LabelledQuery(text, video, tuple(Moment(*label.moment) for label in own if label.moment), own[0].place)
        for (video, text), own in grouped.items()
    ]


def evaluate_library(
    library: Library,
    queries: Sequence[LabelledQuery],
    *,
    skip_unknown: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LibraryQuality:
    """R@K of the true video, and how well its moment is met.

    `R@K` ranks all videos. `mean IoU` and `R1@IoU` take the best moment inside the true video (grounding). `event R@K,
    IoU` ask for both: the true video among the first K and its best moment at least so far inside.

    With `skip_unknown`, queries whose video is not in the library, or fits several, are left out and listed.

    Raises:
        UnknownNameError: There are such queries, or nothing but such queries; the message names all their videos.
        FeatureError: A query's moment begins where its video has ended already.
    """
    records = Records(library.videos())
    found = [(query, records.named(query.video)) for query in queries]  # all, before the first search
    unknown = [(query, videos) for query, videos in found if len(videos) != 1]
    known = [(_inside(query, videos[0].duration_s), videos[0].path) for query, videos in found if len(videos) == 1]
    if unknown and not (skip_unknown and known):
        raise UnknownNameError(_name_unknown(unknown, library))
    outcomes = []
    for number, (query, path) in enumerate(known, start=1):
        if number % _AT_A_TIME == 1:
            some = [query.text for query, _ in known[number - 1 :][:_AT_A_TIME]]
            ranked = iter(library.rank(some, limit=min(_DEPTH, len(records))))
        rank = next((i for i, video in enumerate(next(ranked), start=1) if str(video) == path), None)
        alone = library.search(query.text, limit=1, moments=1, within=path)
        # of a sentence without a word that the encoder knows there are no hits: it was not found, and nowhere
        best = alone[0].moments[0] if alone else Moment(0.0, 0.0)
        outcomes.append(QueryOutcome(query, rank, best, alone.warnings))
        if progress is not None:
            progress(number, len(known))
    return LibraryQuality(figures(outcomes), tuple(outcomes), len(records), tuple(query for query, _ in unknown))


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


def _inside(query: LabelledQuery, duration_s: float) -> LabelledQuery:
    """The query with its moments cut at the end of the video, as `untrimmed features` cuts them."""
    spans = [(moment.start_s, moment.end_s) for moment in query.moments]
    cut = (inside(span, duration_s, video=query.video, place=query.place) for span in spans)
    return replace(query, moments=tuple(Moment(*span) for span in cut))


def _name_unknown(unknown: Sequence[tuple[LabelledQuery, list[VideoRecord]]], library: Library) -> str:
    """One line that names each video once: where it stands first, and on how many sentences."""
    counts = Counter(query.video for query, _ in unknown)
    first = {query.video: (query.place, f"fits {len(files)} files" if files else "") for query, files in unknown[::-1]}
    videos = (
        f"{video!r} ({', '.join(filter(None, (*first[video], _count(count, 'sentence'))))})"
        for video, count in counts.items()
    )
    return (
        f"{library.folder}: {_count(len(counts), 'labelled video')} not found in it: {named(videos, _NUM_NAMED)}; "
        "index them, name each by its path (see: untrimmed ls), or go on without them: --skip-unknown"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
