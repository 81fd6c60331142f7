"""Encode a split and score every query against every video."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos, encode_here
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.models.base import RetrievalModel
from untrimmed.running.batches import prefetched, query_batch, video_batch
from untrimmed.running.encoding import Encoding
from untrimmed.scores.max_sim import best_rows_in_bfloat16

SIMILARITIES_AT_A_TIME = 2**24  # bounds [queries, videos, clips or frames] while scoring

QueryOrder = Literal["length", "released"]


@dataclass(frozen=True)
class SplitScores:
    """Rows are captions in file order, columns videos in order of first appearance."""

    fused: Float[np.ndarray, "Q V"]
    branches: dict[str, Float[np.ndarray, "Q V"]]


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How a split is encoded: how many at a time, by what, and in which order its captions (see `query_batches`)."""

    videos: int = 100
    queries: int = 50
    encode: Encode = encode_here
    order: QueryOrder = "length"

    @property
    def in_bfloat16(self) -> bool:
        """Whether the split is encoded in bfloat16; best rows are then looked for in it too."""
        return isinstance(self.encode, Encoding) and self.encode.precision == "bfloat16"


@contextmanager
def evaluating(model: RetrievalModel) -> Iterator[None]:
    """The model in evaluation mode and without gradients; then as it was, after an error too."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def score_split(model: RetrievalModel, dataset: RetrievalDataset, batching: Batching) -> SplitScores:
    """All scores of a split; the model is in evaluation mode meanwhile.

    Each batch of videos is scored against all queries and then forgotten.
    """
    with evaluating(model), best_rows_in_bfloat16(batching.in_bfloat16):
        queries = encode_queries(model, dataset, batching)
        parts = [_score(model, queries, videos) for _, videos in encode_videos(model, dataset, batching)]
    fused, branches = zip(*parts, strict=True)
    names = branches[0].keys()
    return SplitScores(
        fused=np.concatenate(fused, axis=1),
        branches={name: np.concatenate([parts[name] for parts in branches], axis=1) for name in names},
    )


@torch.no_grad()
def encode_queries(model: RetrievalModel, dataset: RetrievalDataset, batching: Batching) -> EncodedQueries:
    """All captions in file order; a query's vector does not depend on its batch mates."""
    rows = query_batches(dataset, batching.queries, batching.order)
    batches = prefetched(partial(query_batch, dataset), rows)
    encoded = [batching.encode(model.encode_queries, batch) for batch in batches]
    return encoded[0].cat(encoded).select(torch.from_numpy(np.argsort(np.concatenate(rows))))


def encode_videos(
    model: RetrievalModel, dataset: RetrievalDataset, batching: Batching
) -> Iterator[tuple[Int[np.ndarray, " _"], EncodedVideos]]:
    """Rows and encodings of each batch of videos, so that those of a corpus are never held.

    Videos are in file order, because the window of GMMFormer's second branch depends on the longest of a batch.
    """
    rows = in_batches(np.arange(len(dataset.video_ids)), batching.videos)
    for own, batch in zip(rows, prefetched(partial(video_batch, dataset), rows), strict=True):
        with torch.no_grad():
            encoded = batching.encode(model.encode_videos, batch)
        yield own, encoded


def query_batches(dataset: RetrievalDataset, size: int, order: QueryOrder = "length") -> list[Int[np.ndarray, " _"]]:
    """The captions of each batch: by length over the split, so that little is padded, or as the releases take them.

    Those go through the file and put the longest caption of each batch first, ties in file order.
    """
    lengths = dataset.features.words_packed.lengths
    if order == "length":
        return in_batches(np.argsort(lengths, kind="stable"), size)
    return [rows[np.argsort(-lengths[rows], kind="stable")] for rows in in_batches(np.arange(len(lengths)), size)]


def in_batches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive groups of at most `size`."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _score(
    model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos
) -> tuple[Float[np.ndarray, "Q V"], dict[str, Float[np.ndarray, "Q V"]]]:
    rows = max(tensor.shape[1] for tensor in videos.tensors().values() if tensor.ndim > 1)
    at_once = max(1, math.floor(SIMILARITIES_AT_A_TIME / (len(videos) * rows)))
    scores = [model.score(queries.select(slice(s, s + at_once)), videos) for s in range(0, len(queries), at_once)]
    fused = torch.cat([score.fused for score in scores]).cpu().numpy()
    names = scores[0].branches.keys()
    return fused, {name: torch.cat([score[name].value for score in scores]).cpu().numpy() for name in names}
