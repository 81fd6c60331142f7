"""Event-level recall and the report of a split, from the scores and moments of any model."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.truths import Truths
from untrimmed.evaluation.events import event_recall
from untrimmed.evaluation.report import Report, make_report
from untrimmed.moments.ranked_moments import RankedMoments


def why_no_events(dataset: RetrievalDataset) -> str:
    """Return one line that explains why a split has no event-level recall; empty if it has."""
    if not any(dataset.moments):
        return f"{dataset.name}, split {dataset.split}: no caption has a moment, so there is no event-level recall"
    return why_no_seconds(dataset)


def why_no_seconds(dataset: RetrievalDataset) -> str:
    """Return one line that explains why moments of a split cannot be in seconds; empty if they can."""
    unknown = np.flatnonzero(~(dataset.durations_s > 0))
    if not len(unknown):
        return ""
    return (
        f"{dataset.name}, split {dataset.split}: video {dataset.video_ids[unknown[0]]!r} has no duration, and "
        f"{len(unknown) - 1} more have none; moments in seconds need durations, add them to the annotations"
    )


def event_recall_of(dataset: RetrievalDataset, located: RankedMoments, *, annotators: int = 2) -> dict[str, float]:
    """Return event-level recall of the ranked moments of all captions of a split, in percent by `R@K IoU=m`.

    Only captions with a moment count. If several annotators marked one moment (DiDeMo), a prediction must match
    `annotators` of them: two as released, one in the paper. If a caption has several moments (QVHighlights), it must
    match one.
    """
    annotated = np.flatnonzero([len(spans) > 0 for spans in dataset.moments])
    return event_recall(
        located.video_index[annotated],
        located.span_s[annotated],
        dataset.video_index[annotated],
        [np.array(dataset.moments[row], dtype=np.float64) for row in annotated],
        annotators=annotators if dataset.several_annotators else 1,
    )


def split_report(
    name: str,
    dataset: RetrievalDataset,
    fused: Float[np.ndarray, "Q V"],
    branches: Mapping[str, Float[np.ndarray, "Q V"]],
    *,
    events: Mapping[str, float] | None,
    note: str,
    labels: Truths | None,
) -> Report:
    """Return the report of a split; see `make_report` for `events` and `note`. `labels` are dense labels."""
    report = make_report(
        f"{name} on {dataset.name}, {dataset.split}",
        fused,
        branches,
        dataset.video_index,
        caption_ids=dataset.caption_ids,
        moment_ratios=dataset.moment_ratios,
        events=events,
        num_events=sum(len(spans) > 0 for spans in dataset.moments),
        note=note,
        right_videos=None if labels is None else labels.video_index,
        truths=None if labels is None else labels.counts,
    )
    return replace(report, source=dataset.source)
