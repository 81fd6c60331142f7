"""Find the moments of a split with any model and say how many are right: event-level recall for every method."""

import numpy as np
import torch

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import FeatureError
from untrimmed.evaluation.events import event_recall
from untrimmed.models.base import RetrievalModel
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked
from untrimmed.running.validation import Batching, encode_queries, encode_videos, evaluating

QUERIES_AT_A_TIME = 1024  # bounds the rankings that are joined at once


def why_no_events(dataset: RetrievalDataset) -> str:
    """One line that says why a split has no event-level recall; empty when it has."""
    if not any(dataset.moments):
        return f"{dataset.name}, split {dataset.split}: no caption has a moment, so there is no event-level recall"
    return _why_no_seconds(dataset)


def _why_no_seconds(dataset: RetrievalDataset) -> str:
    unknown = np.flatnonzero(~(dataset.durations_s > 0))
    if not len(unknown):
        return ""
    return (
        f"{dataset.name}, split {dataset.split}: video {dataset.video_ids[unknown[0]]!r} has no duration, and "
        f"{len(unknown) - 1} more have none; moments in seconds need it, add it to the annotations"
    )


def locate_split(
    model: RetrievalModel, dataset: RetrievalDataset, batching: Batching, settings: LocateSettings | None = None
) -> RankedMoments:
    """The moments that fit each caption best among all videos of a split; captions in file order.

    Each batch of videos is encoded, searched for all captions and forgotten. The model is in evaluation mode meanwhile.

    Raises: FeatureError for a video without a duration, NoTimelineError for a method without frames and clips.
    """
    if reason := _why_no_seconds(dataset):
        raise FeatureError(reason)
    settings = settings or model.locate_settings()
    duration_s = torch.from_numpy(dataset.durations_s).float()
    with evaluating(model):
        queries = encode_queries(model, dataset, batching)
        blocks = [slice(start, start + QUERIES_AT_A_TIME) for start in range(0, len(queries), QUERIES_AT_A_TIME)]
        best = [RankedMoments.empty(len(queries.select(block))) for block in blocks]
        for rows, videos in encode_videos(model, dataset, batching):
            for i, block in enumerate(blocks):
                found = model.rank_moments(queries.select(block), videos, duration_s[rows], settings)
                best[i] = RankedMoments.best([best[i], found.shifted(int(rows[0]))], settings.before_suppression)
    return RankedMoments.cat(
        [suppress_ranked(ranked, max_overlap=settings.max_overlap, limit=settings.limit) for ranked in best]
    )


def event_recall_of_split(
    model: RetrievalModel,
    dataset: RetrievalDataset,
    batching: Batching,
    settings: LocateSettings | None = None,
    *,
    annotators: int = 2,
) -> dict[str, float]:
    """Event-level recall of a model on a split, in percent by `R@K IoU=m`, over the captions that have a moment.

    Where several annotators marked one moment (DiDeMo), so many of them must be met: two as released, one in the paper;
    of several moments that a caption describes (QVHighlights) one is enough.

    Raises: FeatureError when no caption has a moment; as `locate_split`.
    """
    if reason := why_no_events(dataset):
        raise FeatureError(reason)
    located = locate_split(model, dataset, batching, settings)
    return event_recall_of(dataset, located, annotators=annotators)


def event_recall_of(dataset: RetrievalDataset, located: RankedMoments, *, annotators: int = 2) -> dict[str, float]:
    """Event-level recall of the moments that were found for all captions of a split; see `event_recall_of_split`."""
    annotated = np.flatnonzero([len(spans) > 0 for spans in dataset.moments])
    return event_recall(
        located.video_index[annotated],
        located.span_s[annotated],
        dataset.video_index[annotated],
        [np.array(dataset.moments[row], dtype=np.float64) for row in annotated],
        annotators=annotators if dataset.several_annotators else 1,
    )
