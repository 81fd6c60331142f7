"""A model together with a split of a data set: encodings, scores, moments and the report."""

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
from untrimmed.errors import CheckpointError, FeatureError, NoTimelineError
from untrimmed.evaluation.report import Report
from untrimmed.models.base import RetrievalModel
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.batches import QueryOrder, in_batches, prefetched, query_batch, query_batches, video_batch
from untrimmed.running.encoding import Encoding, evaluating
from untrimmed.running.results import (
    SplitMoments,
    event_recall_of,
    labels_of,
    split_report,
    why_no_events,
    why_no_seconds,
)
from untrimmed.scores.max_sim import best_rows_in_bfloat16

# during scoring, the largest number of entries in an array [queries, videos, clips or frames]
SIMILARITIES_AT_A_TIME = 2**24
QUERIES_AT_A_TIME = 1024  # number of queries whose rankings of moments are merged together


@dataclass(frozen=True)
class SplitScores:
    """The scores of all captions with all videos.

    Rows are captions in file order. Columns are videos in the order of their first captions.
    """

    fused: Float[np.ndarray, "Q V"]
    branches: dict[str, Float[np.ndarray, "Q V"]]


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model and a split of a data set. `train` contains the batch sizes for videos and queries.

    Videos are encoded in file order, because one of GMMFormer's windows depends on the longest video of the batch.
    `order` is the order in which captions are encoded (see `query_batches`). This order does not change the encodings.
    """

    model: RetrievalModel
    dataset: RetrievalDataset
    train: TrainSettings = field(default_factory=TrainSettings)
    encode: Encode = encode_here
    order: QueryOrder = "length"

    def queries(self, captions: Int[np.ndarray, " Q"]) -> EncodedQueries:
        """Return the encodings of the captions with these row numbers."""
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
        """Return the encodings of the videos with these row numbers."""
        with torch.no_grad():
            return self.encode(self.model.encode_videos, video_batch(self.dataset, videos))

    def all_videos(self) -> Iterator[tuple[Int[np.ndarray, " _"], EncodedVideos]]:
        """Yield the row numbers and encodings of each batch of videos.

        The encodings of all videos together may not fit into memory.
        """
        rows = in_batches(np.arange(len(self.dataset.video_ids)), self.train.eval_video_batch)
        for batch_rows, batch in zip(rows, prefetched(partial(video_batch, self.dataset), rows), strict=True):
            with torch.no_grad():
                encoded = self.encode(self.model.encode_videos, batch)
            yield batch_rows, encoded

    def score(self, queries: EncodedQueries | None = None) -> SplitScores:
        """Return the scores of encoded queries, by default of all captions, with all videos.

        Only one batch of encoded videos is in memory at a time.
        """
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
        """Return means over the split, by name, of the numbers in the model's `watched_queries` and `watched_videos`.

        For each entry of `watched_queries`, `NAME_p90` is the 90th percentile. A search uses it to detect unusual
        queries.
        """
        first = np.arange(1)
        with evaluating(self.model):
            of_queries = self.model.watched_queries(self.queries(first))
            of_videos = self.model.watched_videos(self.videos(first))
            values_of = self.model.watched_queries(self.all_queries) if of_queries else {}
            batches = [self.model.watched_videos(videos) for _, videos in self.all_videos()] if of_videos else []
        values_of |= {name: torch.cat([batch[name] for batch in batches]) for name in of_videos}
        means = {name: float(values.double().mean()) for name, values in values_of.items()}
        return means | {f"{name}_p90": float(values_of[name].double().quantile(0.9)) for name in of_queries}

    def locate(self, settings: LocateSettings | None = None) -> RankedMoments:
        """Return the best matching moments of each caption (in file order) among all videos of the split.

        Only one batch of encoded videos is in memory at a time.

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
                    ranked = self.model.rank_moments(queries.select(block), videos, duration_s[rows], settings)
                    best[i] = RankedMoments.best([best[i], ranked.shifted(int(rows[0]))], settings.before_suppression)
        return RankedMoments.cat(
            [suppress_ranked(ranked, max_overlap=settings.max_overlap, limit=settings.limit) for ranked in best]
        )

    def best_spans(self, queries: EncodedQueries, videos: Int[np.ndarray, "Q K"]) -> Float[np.ndarray, "Q K 2"]:
        """Return start and end, in seconds, of the best window of each query in each of its `videos`.

        The values are NaN for a video without a duration. This window is also the one that `locate` ranks first in
        the video, unless rounding errors differ between batches.

        Raises: NoTimelineError for a method without frames and clips.
        """
        span_s = np.full((*videos.shape, 2), np.nan, dtype=np.float32)
        for batch in in_batches(np.arange(len(self.dataset.video_ids)), self.train.eval_video_batch):
            batch_videos = np.intersect1d(videos, batch)
            if not len(batch_videos):
                continue
            with evaluating(self.model):
                encoded = self.videos(batch)  # encode the whole batch, because GMMFormer's windows depend on it
            for video in batch_videos.tolist():
                rows, places = np.nonzero(videos == video)
                with evaluating(self.model):
                    proposals, fits = self.model.window_similarities(queries.select(torch.from_numpy(rows)), encoded)
                    at = video - int(batch[0])
                    window = fits(slice(at, at + 1))[:, 0].argmax(dim=1).cpu()
                if (duration_s := float(self.dataset.durations_s[video])) > 0:
                    span_s[rows, places] = (proposals.spans.cpu()[window] * duration_s).numpy()
        return span_s

    def event_recall(self) -> dict[str, float]:
        """Return event-level recall in percent (see `event_recall_of`).

        Raises: FeatureError for a split without moments, and the errors of `locate`.
        """
        if reason := why_no_events(self.dataset):
            raise FeatureError(reason)
        return event_recall_of(self.dataset, self.locate(), annotators=self.train.annotators)

    def moments(self) -> SplitMoments:
        """Return the best moments of each caption, first in the whole corpus, then in its correct video.

        Raises: the errors of `locate`.
        """
        located = self.locate()
        span_s = self.best_spans(self.all_queries, self.dataset.video_index[:, None])[:, 0]
        return SplitMoments(located, span_s, annotators=self.train.annotators)

    def report(self, *, moments: bool = True, truths: Path | None = None, keep_scores: bool = False) -> Report:
        """Return the metrics of the model on the split.

        - `moments`: also compute the metrics of moments, if the data set has moments and the model can find moments.
        - `truths`: a file of dense labels, which list all correct videos of each query (`data/truths.py`). They add
          recall of any correct video. The default is the file in the data set's folder, if it exists.
        - `keep_scores`: add the score matrices to the report.
        """
        dataset = self.dataset
        labels = labels_of(dataset, truths)
        scores = self.score()
        if count := np.count_nonzero(np.isnan(scores.fused)):
            raise CheckpointError(
                f"{self.model.name} on {dataset.name}, {dataset.split}: {count:,} scores are nan; fix the "
                "features if they contain nan; otherwise, the training diverged or the model is damaged: train again "
                "with a lower train.learning_rate"
            )
        note = why_no_events(dataset) if moments else "moments were not scored"
        split_moments = None
        if not note:
            try:
                split_moments = self.moments()
            except NoTimelineError as error:
                note = f"{error}; moments were not scored"
        return split_report(
            self.model.name,
            dataset,
            scores.fused,
            scores.branches,
            moments=split_moments,
            note=note,
            labels=labels,
            keep_scores=keep_scores,
        )


def _score(
    model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos
) -> tuple[Float[np.ndarray, "Q V"], dict[str, Float[np.ndarray, "Q V"]]]:
    rows = max(tensor.shape[1] for tensor in videos.tensors().values() if tensor.ndim > 1)
    at_once = max(1, math.floor(SIMILARITIES_AT_A_TIME / (len(videos) * rows)))
    scores = [model.score(queries.select(slice(s, s + at_once)), videos) for s in range(0, len(queries), at_once)]
    fused = torch.cat([score.fused for score in scores]).cpu().numpy()
    names = scores[0].branches.keys()
    return fused, {name: torch.cat([score[name].value for score in scores]).cpu().numpy() for name in names}
