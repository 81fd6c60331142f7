"""Compute losses and validate on a few items before training.

This finds wrong settings, wrong features and mistakes in a method before any file is written.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch

from untrimmed.batches import Encode, TrainingBatch
from untrimmed.errors import ConfigError, FeatureError, NoTimelineError
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import RetrievalModel
from untrimmed.models.hooks import (
    check_timeline,
    check_vectors,
    checked_losses,
    checked_queries,
    checked_scores,
    checked_videos,
    reporting,
)
from untrimmed.running.batches import query_batch, query_batches, video_batch
from untrimmed.running.encoding import evaluating
from untrimmed.running.opened import OpenedModel


def rehearse_step(
    model: RetrievalModel, batch: TrainingBatch, weights: Mapping[str, float], encode: Encode, *, how_to_check: str
) -> None:
    """Compute the losses of a batch once, to find errors.

    Raises: ConfigError for a hook that fails or returns the wrong axes, for a term without a weight, and for losses
        that depend on no parameter. ConfigError also for a value that is not finite; this message contains
        `how_to_check`.
    """
    model.train()  # some methods compute encodings for losses only in training mode
    queries = checked_queries(model, batch.queries)
    videos = checked_videos(model, batch.videos)
    checked_scores(model, queries, videos)
    losses = checked_losses(model, TrainingStep(queries, videos, batch, Draws(), encode=encode, is_rehearsal=True))
    if losses.keys() == weights.keys() and not total_loss(losses, weights).requires_grad:
        raise ConfigError(
            f"{model.name}: the loss depends on no parameter that can be trained; remove detach() or no_grad() from "
            "its hooks, or set requires_grad of a parameter"
        )
    with torch.no_grad(), reporting(f"{type(model).__qualname__}.forward"):
        terms = model(batch, draws=Draws(), is_rehearsal=True, encode=encode)
    for name, value in (terms | {"loss": total_loss(terms, weights)}).items():
        if not math.isfinite(value):
            raise ConfigError(
                f"{name} is {value} before the first step; correct the code of this term, the model's sizes or the "
                f"weights, or {how_to_check}"
            )


def rehearse_validation(opened: OpenedModel, device: torch.device, *, needs_moments: bool = False) -> None:
    """Score the first validation batch once and compute its timeline, to find errors.

    Raises: the errors of `rehearse_step`, and FeatureError if `needs_moments` is set for a method without a timeline,
        because such a method has no moments.
    """
    model = opened.model
    dataset = opened.dataset
    captions = query_batches(dataset, opened.train.eval_query_batch, opened.order)[0]
    num_videos = min(len(dataset.video_ids), opened.train.eval_video_batch)
    with evaluating(model):
        queries = checked_queries(model, query_batch(dataset, captions).to(device))
        videos = checked_videos(model, video_batch(dataset, np.arange(num_videos)).to(device))
        fused = checked_scores(model, queries, videos).fused
        if not bool(fused.isfinite().all()):
            raise ConfigError(
                f"{model.name}: a validation score is not finite before the first step; fix compute_scores"
            )
        check_vectors(model, queries, videos)
        try:
            check_timeline(model, queries, videos)
        except NoTimelineError as error:
            if needs_moments:
                raise FeatureError(f"{error}; train.select_by needs moments, set train.select_by=SumR") from None
        with reporting("watched_queries and watched_videos"):
            model.watched_queries(queries)
            model.watched_videos(videos)
