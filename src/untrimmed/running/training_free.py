"""Evaluate TF-PRVR, a model that needs no training and is selected by its name."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64, Int

from untrimmed.config import build
from untrimmed.data.dataset import RetrievalDataset, load_shared_space
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.evaluation.report import Report
from untrimmed.moments import tf_prvr
from untrimmed.moments.clearest import SpanSettings, clearness_of
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked
from untrimmed.moments.tf_prvr import TFPRVRSettings, VideoMoments, moment_scores, video_moments
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.results import SplitMoments, labels_of, split_report, why_no_events

# number of videos whose moments are ranked together, before they are merged with the best moments so far
_VIDEOS_AT_A_TIME = 50


@dataclass(frozen=True, kw_only=True)
class TFPRVROnData(TFPRVRSettings):
    """Settings of TF-PRVR on a data set.

    The sentence vector is the mean of the word vectors, or the last word vector (`sentence="last"`). In CLIP's
    features, the last word vector is the sentence vector.
    """

    sentence: Literal["mean", "last"] = "mean"


def is_training_free(model: object) -> bool:
    """Whether `model` names a model that needs no training, and is not the path of an existing file or folder."""
    return isinstance(model, str | Path) and os.fspath(model) == tf_prvr.NAME and not Path(model).exists()


def require_learner(method: str) -> None:
    """Raise a ConfigError for a method that needs no training, with or without attachments."""
    name = method.partition("+")[0].strip()
    if name == tf_prvr.NAME:
        problem = f"{name} needs no training, expected a method with learned weights"
        raise ConfigError(f"{problem}; to compare it with a run: untrimmed evaluate {name} --against RUN")


def evaluate_training_free(
    name: str,
    dataset: RetrievalDataset | None = None,
    *,
    split: str = "test",
    data: str | None = None,
    root: Path | str | None = None,
    video_features: str | None = None,
    moments: bool = True,
    truths: Path | None = None,
    keep_scores: bool = False,
    changed: Mapping[str, Any] | None = None,
) -> Report:
    """Return the metrics of TF-PRVR on a split. Metrics and arguments are the same as for `evaluate`.

    In a data set in memory, frames and words must be in one vector space. Pass a sentence vector as the vector of a
    single word. Moments are ranked by the score of their video, then by clearness: how far the relevance of a moment is
    above a background value (`untrimmed.moments.clearest`).

    Raises: ConfigError for a missing data set or a wrong setting, FeatureError for vectors of zeros, and the errors of
        `load_shared_space`.
    """
    settings, annotators = _settings(name, changed or {})
    if dataset is None:
        if data is None or root is None:
            raise ConfigError(
                f"{name}: is not trained on a data set; name a data set (data) and the folder that contains it (root)"
            )
        dataset = load_shared_space(data, root, split, video_features=video_features)
    labels = labels_of(dataset, truths)
    note = why_no_events(dataset) if moments else "moments were not scored"
    fused, located = _scores(dataset, settings, annotators, locate=not note)
    return split_report(
        name,
        dataset,
        fused,
        {},
        moments=located,
        note=note,
        labels=labels,
        keep_scores=keep_scores,
    )


def _settings(name: str, changed: Mapping[str, Any]) -> tuple[TFPRVROnData, int]:
    sections: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
    for key, value in changed.items():
        section, _, setting = key.partition(".")
        if section != "model" and key != "train.annotators":
            raise ConfigError(f"{name} has no setting {key!r}; write model.KEY=VALUE or train.annotators=COUNT")
        sections[section][setting] = value
    settings = build(TFPRVROnData, sections["model"], where=f"{name}: model")
    return settings, build(TrainSettings, sections["train"], where=f"{name}: train").annotators


def _scores(
    dataset: RetrievalDataset, settings: TFPRVROnData, annotators: int, *, locate: bool
) -> tuple[Float64[np.ndarray, "Q V"], SplitMoments | None]:
    """Return the scores of every caption with every video, and each caption's best moments.

    Without `locate`, the moments are None. Only the frames of one video are in memory at a time. With `locate`, the
    vectors of all videos' moments are also in memory, in float32.
    """
    queries = _sentences(dataset, settings)
    fused = np.empty((len(queries), len(dataset.video_ids)))
    all_moments: list[VideoMoments] = []
    for row, video_id in enumerate(dataset.video_ids):
        try:
            moments = video_moments(dataset.features.frames.table(row), settings)
        except FeatureError as error:
            raise FeatureError(f"{dataset.name}, split {dataset.split}, video {video_id!r}: {error}") from error
        fused[:, row] = moment_scores(queries, moments.vectors).max(axis=1)
        if locate:
            all_moments.append(replace(moments, vectors=moments.vectors.astype(np.float32)))
    if not locate:
        return fused, None
    located, span_s = _located(queries, all_moments, fused, dataset.durations_s, dataset.video_index)
    return fused, SplitMoments(located, span_s, annotators)


def _located(
    queries: Float64[np.ndarray, "Q D"],
    videos: Sequence[VideoMoments],
    fused: Float64[np.ndarray, "Q V"],
    durations_s: Float[np.ndarray, " V"],
    video_index: Int[np.ndarray, " Q"],
) -> tuple[RankedMoments, Float[np.ndarray, "Q 2"]]:
    """Return each caption's best moments in the whole corpus, and its clearest span in the correct video in seconds.

    Moments are ranked by the score of their video, then by clearness. The clearest moment of a video has the video's
    score.
    """
    limits = LocateSettings()
    totals = [np.diff(video.edges) @ video.vectors for video in videos]  # the sum of each video's frame vectors
    mean = np.sum(totals, axis=0) / sum(video.edges[-1] for video in videos)
    usual = moment_scores(queries, mean[None])[:, 0]
    best = RankedMoments.empty(len(queries))
    span_s = np.zeros((len(queries), 2), dtype=np.float32)
    for start in range(0, len(videos), _VIDEOS_AT_A_TIME):
        by_video = [
            _spans(moment_scores(queries, video.vectors), video, usual, fused[:, row], float(durations_s[row]), limits)
            for row, video in enumerate(videos[start : start + _VIDEOS_AT_A_TIME], start)
        ]
        for row, spans in enumerate(by_video, start):
            captions = video_index == row
            span_s[captions] = spans.span_s[captions, 0]
        shifted = [spans.shifted(row) for row, spans in enumerate(by_video, start)]
        best = RankedMoments.best([best, *shifted], limits.before_suppression)
    # moments of a video must not overlap, as in a search of a library
    return suppress_ranked(best, max_overlap=0.0, limit=limits.limit), span_s


def _sentences(dataset: RetrievalDataset, settings: TFPRVROnData) -> Float64[np.ndarray, "Q D"]:
    """Return one vector per caption, not normalised.

    Raises: FeatureError if sentences and frames have different widths, or a vector consists of zeros.
    """
    if dataset.query_dim != dataset.video_dim:
        raise FeatureError(
            f"{dataset.name}, split {dataset.split}: words have width {dataset.query_dim}, frames {dataset.video_dim}; "
            "without training, both must be from one image-text encoder; give its sentence vectors as words, or load "
            "the data set by name (data=NAME, root=DIR) to use the vectors of DL-DKD's teacher, if there are any"
        )
    tables = map(dataset.features.words_packed.table, range(len(dataset.annotations)))
    rows = [words[-1] if settings.sentence == "last" else words.mean(axis=0, dtype=np.float64) for words in tables]
    sentences = np.stack(rows).astype(np.float64)
    if (zeros := np.flatnonzero(~sentences.any(axis=1))).size:
        caption = dataset.caption_ids[zeros[0]]
        raise FeatureError(
            f"{dataset.name}, split {dataset.split}: caption {caption!r} has a vector of zeros; extract it again"
        )
    return sentences


def _spans(
    scores: Float64[np.ndarray, "Q M"],
    moments: VideoMoments,
    usual: Float64[np.ndarray, " Q"],
    video_score: Float64[np.ndarray, " Q"],
    duration_s: float,
    limits: LocateSettings,
) -> RankedMoments:
    """Return the clearest spans of one video for every query, clearest first.

    `usual` is each query's mean relevance over all videos.
    """
    settings = SpanSettings()
    num_frames = int(moments.edges[-1])
    spans = moments.candidates
    up_to = np.pad(np.cumsum(scores * np.diff(moments.edges), axis=1), ((0, 0), (1, 0)))
    first, stop = np.searchsorted(moments.edges, spans.T)
    means = (up_to[:, stop] - up_to[:, first]) / np.diff(spans, axis=1)[:, 0]
    background = settings.background(up_to[:, -1] / num_frames, usual, duration_s)
    span_s: Float[np.ndarray, "S 2"] = spans * (duration_s / num_frames)
    lengths_s = span_s[:, 1] - span_s[:, 0]
    clearness = clearness_of(means - background[:, None], lengths_s, settings.length_exponent)
    top = np.argsort(-clearness, axis=1, kind="stable")[:, : limits.per_video]
    clearest = np.take_along_axis(clearness, top, axis=1)
    score = video_score[:, None] + clearest - clearest[:, :1]
    return RankedMoments(np.zeros_like(top), span_s[top].astype(np.float32), score.astype(np.float32))
