"""Make the report on a split from the scores and moments of any model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.truths import Truths, read_truths
from untrimmed.evaluation.events import event_recall
from untrimmed.evaluation.export import ScoredSplit
from untrimmed.evaluation.moments import Spans, moment_metrics
from untrimmed.evaluation.report import Report, make_report
from untrimmed.moments.ranked_moments import RankedMoments


def why_no_events(dataset: RetrievalDataset) -> str:
    """Return the reason why event-level recall cannot be computed for a split, or an empty text if it can."""
    if not any(dataset.moments):
        return f"{dataset.name}, split {dataset.split}: no caption has a moment, so there is no event-level recall"
    return why_no_seconds(dataset)


def why_no_seconds(dataset: RetrievalDataset) -> str:
    """Return the reason why a split's moments cannot be computed in seconds, or an empty text if they can."""
    unknown = np.flatnonzero(~(dataset.durations_s > 0))
    if not len(unknown):
        return ""
    return (
        f"{dataset.name}, split {dataset.split}: video {dataset.video_ids[unknown[0]]!r} has no duration, and "
        f"{len(unknown) - 1} more have none; moments in seconds need durations, add them to the annotations"
    )


@dataclass(frozen=True)
class SplitMoments:
    """The predicted moments of all captions of a split.

    - `located`: the best moments of each caption in the whole corpus.
    - `span_s`: start and end, in seconds, of each caption's best moment in the correct video.
    - `annotators`: if several annotators marked a moment (DiDeMo), a prediction must match at least this number of the
      annotators' spans: two in JSG's released program, one in JSG's paper.

    If a caption has several moments (QVHighlights), a prediction must match one of them.
    """

    located: RankedMoments
    span_s: Float[np.ndarray, "Q 2"]
    annotators: int = 2

    def event_recall(self, dataset: RetrievalDataset) -> dict[str, float]:
        """Return event-level recall in percent (see `event_recall_of`)."""
        return event_recall_of(dataset, self.located, annotators=self.annotators)

    def in_right_video(self, dataset: RetrievalDataset) -> dict[str, float]:
        """Return R1@IoU and mIoU, in percent, of the best moments in the correct videos (see `moment_metrics`)."""
        annotators = self.annotators if dataset.several_annotators else 1
        return moment_metrics(self.span_s, spans_of(dataset), annotators=annotators)


def event_recall_of(dataset: RetrievalDataset, located: RankedMoments, *, annotators: int = 2) -> dict[str, float]:
    """Return event-level recall in percent, with keys such as `R@1 IoU=0.5`.

    `located` contains the ranked moments of all captions of the split. Captions without an annotated moment are
    ignored. `annotators` is described in `SplitMoments`.
    """
    annotated = np.flatnonzero([len(spans) > 0 for spans in dataset.moments])
    spans = spans_of(dataset)
    return event_recall(
        located.video_index[annotated],
        located.span_s[annotated],
        dataset.video_index[annotated],
        [spans[row] for row in annotated],
        annotators=annotators if dataset.several_annotators else 1,
    )


def spans_of(dataset: RetrievalDataset) -> list[Spans]:
    """Return the annotated spans of each caption as rows (start, end) in seconds. The result may have no rows."""
    return [np.array(spans, dtype=np.float64).reshape(-1, 2) for spans in dataset.moments]


def labels_of(dataset: RetrievalDataset, truths: Path | None) -> Truths | None:
    """Return the dense labels: all correct videos of each query.

    The labels are read from the file `truths`, by default from the file in the data set's folder. The result is None if
    the folder contains no such file.
    """
    path = truths or dataset.dense_labels
    return None if path is None else read_truths(path, dataset.annotations)


def split_report(
    name: str,
    dataset: RetrievalDataset,
    fused: Float[np.ndarray, "Q V"],
    branches: Mapping[str, Float[np.ndarray, "Q V"]],
    *,
    moments: SplitMoments | None,
    note: str,
    labels: Truths | None = None,
    keep_scores: bool = False,
) -> Report:
    """Return the report on a split.

    If `moments` is None, `note` is the reason. `keep_scores` adds the score matrices to the report.
    """
    right_videos = None if labels is None else labels.video_index
    report = make_report(
        f"{name} on {dataset.name}, {dataset.split}",
        fused,
        branches,
        dataset.video_index,
        caption_ids=dataset.caption_ids,
        moment_ratios=dataset.moment_ratios,
        events=None if moments is None else moments.event_recall(dataset),
        num_events=sum(len(spans) > 0 for spans in dataset.moments),
        note=note,
        right_videos=right_videos,
        truths=None if labels is None else labels.counts,
    )
    scores = ScoredSplit(
        caption_ids=dataset.caption_ids,
        texts=dataset.texts,
        video_ids=dataset.video_ids,
        video_index=dataset.video_index,
        fused=fused,
        branches=branches,
        moments_s=spans_of(dataset),
        span_s=None if moments is None else moments.span_s,
        right_videos=right_videos,
    )
    return replace(
        report,
        source=dataset.source,
        moments={} if moments is None else moments.in_right_video(dataset),
        truths_file="" if labels is None else labels.file,
        scores=scores if keep_scores else None,
    )
