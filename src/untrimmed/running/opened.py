"""A model opened with a split of a data set: encode it, score it, find its moments, report on it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos, encode_here
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.truths import read_truths
from untrimmed.errors import CheckpointError, FeatureError, NoTimelineError
from untrimmed.evaluation.report import Report
from untrimmed.models.base import RetrievalModel
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.batches import QueryOrder, in_batches, prefetched, query_batch, query_batches, video_batch
from untrimmed.running.encoding import Encoding, evaluating
from untrimmed.running.results import event_recall_of, split_report, why_no_events, why_no_seconds
from untrimmed.scores.max_sim import best_rows_in_bfloat16

SIMILARITIES_AT_A_TIME = 2**24  # bounds [queries, videos, clips or frames] while scoring
QUERIES_AT_A_TIME = 1024  # bounds the rankings of moments that are joined at once


@dataclass(frozen=True)
class SplitScores:
    """Rows are captions in file order, columns videos in order of first appearance."""

    fused: Float[np.ndarray, "Q V"]
    branches: dict[str, Float[np.ndarray, "Q V"]]


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model and a split of a data set; `train` says how many videos and queries are a batch.

    Videos are encoded in file order, because the window of GMMFormer's second branch depends on the longest of a batch.
    `order` is the order of the captions (see `query_batches`); a query's vector does not depend on its batch mates.
    """

    model: RetrievalModel
    dataset: RetrievalDataset
    train: TrainSettings = field(default_factory=TrainSettings)
    encode: Encode = encode_here
    order: QueryOrder = "length"

    def queries(self, captions: Int[np.ndarray, " Q"]) -> EncodedQueries:
        """The encodings of some captions."""
        with torch.no_grad():
            return self.encode(self.model.encode_queries, query_batch(self.dataset, captions))

    @cached_property
    def all_queries(self) -> EncodedQueries:
        """The encodings of all captions in file order."""
        rows = query_batches(self.dataset, self.train.eval_query_batch, self.order)
        with torch.no_grad():
            batches = prefetched(partial(query_batch, self.dataset), rows)
            encoded = [self.encode(self.model.encode_queries, batch) for batch in batches]
        return encoded[0].cat(encoded).select(torch.from_numpy(np.argsort(np.concatenate(rows))))

    def videos(self, videos: Int[np.ndarray, " V"]) -> EncodedVideos:
        """The encodings of some videos."""
        with torch.no_grad():
            return self.encode(self.model.encode_videos, video_batch(self.dataset, videos))

    def all_videos(self) -> Iterator[tuple[Int[np.ndarray, " _"], EncodedVideos]]:
        """Rows and encodings of all videos, batch by batch, so that those of a corpus are never held."""
        rows = in_batches(np.arange(len(self.dataset.video_ids)), self.train.eval_video_batch)
        for own, batch in zip(rows, prefetched(partial(video_batch, self.dataset), rows), strict=True):
            with torch.no_grad():
                encoded = self.encode(self.model.encode_videos, batch)
            yield own, encoded

    def score(self, queries: EncodedQueries | None = None) -> SplitScores:
        """Return the scores of some or all queries, one batch of videos at a time, in the precision of the split."""
        in_bfloat16 = isinstance(self.encode, Encoding) and self.encode.precision == "bfloat16"
        with evaluating(self.model), best_rows_in_bfloat16(in_bfloat16):
            queries = self.all_queries if queries is None else queries
            parts = [_score(self.model, queries, videos) for _, videos in self.all_videos()]
        fused, branches = zip(*parts, strict=True)
        names = branches[0].keys()
        return SplitScores(
            fused=np.concatenate(fused, axis=1),
            branches={name: np.concatenate([parts[name] for parts in branches], axis=1) for name in names},
        )

    def watched(self) -> dict[str, float]:
        """Means over the split of the numbers that the model wants followed over its epochs, by name; none for most.

        `NAME_p90` is what nine in ten queries do not exceed: by it a search tells what is unusual.
        """
        first = np.arange(1)
        with evaluating(self.model):
            of_queries = self.model.watched_queries(self.queries(first))
            of_videos = self.model.watched_videos(self.videos(first))
            found = self.model.watched_queries(self.all_queries) if of_queries else {}
            batches = [self.model.watched_videos(videos) for _, videos in self.all_videos()] if of_videos else []
        found |= {name: torch.cat([own[name] for own in batches]) for name in of_videos}
        means = {name: float(values.double().mean()) for name, values in found.items()}
        return means | {f"{name}_p90": float(found[name].double().quantile(0.9)) for name in of_queries}

    def locate(self, settings: LocateSettings | None = None) -> RankedMoments:
        """The moments that fit each caption best among all videos of the split; captions in file order.

        Each batch of videos is encoded, searched for all captions and forgotten.

        Raises: FeatureError for a video without a duration, NoTimelineError for a method without frames and clips.
        """
        if reason := why_no_seconds(self.dataset):
            raise FeatureError(reason)
        settings = settings or self.model.locate_settings()
        duration_s = torch.from_numpy(self.dataset.durations_s).float()
        with evaluating(self.model):
            queries = self.all_queries
            blocks = [slice(start, start + QUERIES_AT_A_TIME) for start in range(0, len(queries), QUERIES_AT_A_TIME)]
            best = [RankedMoments.empty(len(queries.select(block))) for block in blocks]
            for rows, videos in self.all_videos():
                for i, block in enumerate(blocks):
                    found = self.model.rank_moments(queries.select(block), videos, duration_s[rows], settings)
                    best[i] = RankedMoments.best([best[i], found.shifted(int(rows[0]))], settings.before_suppression)
        return RankedMoments.cat(
            [suppress_ranked(ranked, max_overlap=settings.max_overlap, limit=settings.limit) for ranked in best]
        )

    def event_recall(self) -> dict[str, float]:
        """Return event-level recall (`event_recall_of`); raises FeatureError without moments, else as `locate`."""
        if reason := why_no_events(self.dataset):
            raise FeatureError(reason)
        return event_recall_of(self.dataset, self.locate(), annotators=self.train.annotators)

    def report(self, *, moments: bool = True, truths: Path | None = None) -> Report:
        """The results; event-level recall only with `moments`, and where the data has moments and the model finds some.

        `truths` is a file of dense labels (`data/truths.py`): recall with several right videos stands beside the rest.
        """
        dataset = self.dataset
        labels = None if truths is None else read_truths(truths, dataset.annotations)
        scores = self.score()
        if count := np.count_nonzero(np.isnan(scores.fused)):
            raise CheckpointError(
                f"{self.model.name} on {dataset.name}, {dataset.split}: {count:,} scores are nan; the model is damaged "
                "or its training diverged, train it again with a lower train.learning_rate, or fix nan among features"
            )
        note = why_no_events(dataset) if moments else "event-level recall was left out"
        events = None
        if not note:
            try:
                events = self.event_recall()
            except NoTimelineError as error:
                note = f"{error}; event-level recall was left out"
        name = self.model.name
        fused = scores.fused
        branches = scores.branches
        return split_report(name, dataset, fused, branches, events=events, note=note, labels=labels)


def _score(
    model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos
) -> tuple[Float[np.ndarray, "Q V"], dict[str, Float[np.ndarray, "Q V"]]]:
    rows = max(tensor.shape[1] for tensor in videos.tensors().values() if tensor.ndim > 1)
    at_once = max(1, math.floor(SIMILARITIES_AT_A_TIME / (len(videos) * rows)))
    scores = [model.score(queries.select(slice(s, s + at_once)), videos) for s in range(0, len(queries), at_once)]
    fused = torch.cat([score.fused for score in scores]).cpu().numpy()
    names = scores[0].branches.keys()
    return fused, {name: torch.cat([score[name].value for score in scores]).cpu().numpy() for name in names}
