"""Measure how well searches of a library find the right videos and moments for labelled sentences."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from untrimmed.data.labelled import Label, cut_to_video, read_labels
from untrimmed.errors import UnknownNameError, counted, named
from untrimmed.evaluation.moments import mean_iou, moment_recall
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.library import Library
from untrimmed.search.store.records import Records
from untrimmed.types import Moment

_DEPTH = 100  # videos that are ranked lower count as not found
_BATCH_SIZE = 256  # number of sentences that are searched together
_NUM_NAMED = 10  # largest number of videos that a message lists
_IOUS = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class LabelledQuery:
    """A sentence with its video (a path, file name or file name without suffix) and its moments in that video."""

    text: str
    video: str
    moments: tuple[Moment, ...]  # empty if only the video is known
    place: str = ""  # the file and line of the label, for messages


@dataclass(frozen=True)
class QueryOutcome:
    """The result for one labelled sentence."""

    query: LabelledQuery
    rank: int | None  # rank of the right video, counted from 1; None if it is not among the first 100
    moment: Moment  # the best moment that the search finds in the right video; 0 s to 0 s if it finds none
    warnings: tuple[str, ...] = ()  # warnings about words that the encoder does not know or did not read

    @property
    def iou(self) -> float:
        """The largest IoU of `moment` with a labelled moment, in [0, 1]."""
        return float(iou(spans_of([self.moment]), spans_of(self.query.moments)).max(initial=0.0))


@dataclass(frozen=True)
class LibraryQuality:
    """Metrics in percent, by the names that papers use, and the outcome of every query."""

    figures: dict[str, float]
    outcomes: tuple[QueryOutcome, ...]
    num_videos: int
    # queries whose video is not in the library or has an ambiguous name
    skipped: tuple[LabelledQuery, ...] = ()


def read_queries(file: str | os.PathLike[str]) -> list[LabelledQuery]:
    """Return the labelled sentences in a file of JSON lines.

    A line contains one sentence, `{"video", "query" (or "caption"), "start_s"?, "end_s"?}`, or one video with several
    sentences, `{"file", "queries": [{"query", "start", "end"}]}`. Lines with the same sentence and video become one
    query with several moments.

    Raises:
        FeatureError: The file cannot be read, or a line lacks a field. The message names the line.
    """
    grouped: dict[tuple[str, str], list[Label]] = {}
    for label in read_labels(file, splits=False):
        grouped.setdefault((label.video, label.text), []).append(label)
    return [
        LabelledQuery(text, video, tuple(Moment(*label.moment) for label in labels if label.moment), labels[0].place)
        for (video, text), labels in grouped.items()
    ]


def evaluate_library(
    library: Library,
    queries: Sequence[LabelledQuery],
    *,
    skip_unknown: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LibraryQuality:
    """Return metrics of how well searches find the right videos and moments.

    - `R@K`: the share of sentences whose right video is among the first K.
    - `mean IoU` and `R1@IoU`: how well the best moment that the search finds in the right video matches (grounding).
    - `event R@K,IoU`: the share of sentences whose right video is among the first K, and whose best moment in this
      video has at least this IoU.

    With `skip_unknown`, a query is skipped if its video is not in the library or its name is ambiguous. Skipped queries
    are listed in the result.

    Raises:
        UnknownNameError: The video of a query is unknown or ambiguous. With `skip_unknown`, it is only raised if no
            query remains. The message names the videos.
        FeatureError: A query's moment begins after the end of its video.
    """
    records = Records(library.videos())
    matches = [(query, records.named(query.video)) for query in queries]  # find all videos before the first search
    known = [(_inside(query, videos[0].duration_s), videos[0].path) for query, videos in matches if len(videos) == 1]
    unknown = [(query, len(videos)) for query, videos in matches if len(videos) != 1]
    if unknown and not (skip_unknown and known):
        raise UnknownNameError(_unknown_videos_message(unknown, library, can_skip=bool(known)))
    outcomes = []
    for number, (query, path) in enumerate(known, start=1):
        if number % _BATCH_SIZE == 1:
            batch = [query.text for query, _ in known[number - 1 :][:_BATCH_SIZE]]
            ranked = iter(library.rank(batch, limit=min(_DEPTH, len(records))))
        rank = next((i for i, video in enumerate(next(ranked), start=1) if str(video) == path), None)
        hits = library.search(query.text, limit=1, moments=1, within=path)
        # if the encoder knows no word of the sentence, there are no hits
        moment = hits[0].moments[0] if hits else Moment(0.0, 0.0)
        outcomes.append(QueryOutcome(query, rank, moment, hits.warnings))
        if progress is not None:
            progress(number, len(known))
    return LibraryQuality(figures(outcomes), tuple(outcomes), len(records), tuple(query for query, _ in unknown))


def figures(outcomes: Sequence[QueryOutcome]) -> dict[str, float]:
    """Return metrics in percent by name. Metrics of moments are only included if a query has a labelled moment."""
    ranks = np.array([outcome.rank or np.inf for outcome in outcomes])
    figures = {f"R@{k}": 100.0 * float((ranks <= k).mean()) for k in (1, 5, 10, 100)}
    figures["SumR"] = sum(figures.values())
    timed = [(outcome, rank) for outcome, rank in zip(outcomes, ranks, strict=True) if outcome.query.moments]
    if not timed:
        return figures
    truth = [spans_of(outcome.query.moments) for outcome, _ in timed]
    predicted = [spans_of([outcome.moment]) for outcome, _ in timed]
    figures["mean IoU"] = mean_iou(predicted, truth)
    for threshold in _IOUS:
        figures[f"R1@IoU={threshold}"] = moment_recall(predicted, truth, top=1, min_iou=threshold)
    for k in (1, 5, 10):
        events = [span if rank <= k else np.empty((0, 2)) for span, (_, rank) in zip(predicted, timed, strict=True)]
        for threshold in _IOUS:
            figures[f"event R@{k},IoU={threshold}"] = moment_recall(events, truth, top=1, min_iou=threshold)
    return figures


def _inside(query: LabelledQuery, duration_s: float) -> LabelledQuery:
    """Return the query with moments clipped at the end of the video, as in `untrimmed features`."""
    spans = ((moment.start_s, moment.end_s) for moment in query.moments)
    cut = (Moment(*cut_to_video(span, duration_s, video=query.video, place=query.place)) for span in spans)
    return replace(query, moments=tuple(cut))


def _unknown_videos_message(unknown: Sequence[tuple[LabelledQuery, int]], library: Library, *, can_skip: bool) -> str:
    """Return a message that names each unknown video, its number of sentences, and the line of the first sentence.

    With `can_skip`, the message suggests skipping these videos.
    """
    counts = Counter(query.video for query, _ in unknown)
    first = {query.video: (query.place, f"matches {count} files" if count else "") for query, count in unknown[::-1]}
    videos = (
        f"{video!r} ({', '.join(filter(None, (*first[video], counted(count, 'sentence'))))})"
        for video, count in counts.items()
    )
    index = "index them, or name each by its path (see: untrimmed ls)"
    return (
        f"{library.folder}: {counted(len(counts), 'labelled video')} not in this library: {named(videos, _NUM_NAMED)}; "
        + (
            f"{index}, or continue without them: --skip-unknown"
            if can_skip
            else f"{index}; all sentences are about such videos"
        )
    )
