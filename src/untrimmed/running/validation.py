"""Encode a split and score every query against every video."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos, encode_here
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.models.base import RetrievalModel
from untrimmed.running.batches import prefetched, query_batch, video_batch

SIMILARITIES_AT_A_TIME = 2**24  # bounds [queries, videos, clips or frames] while scoring


@dataclass(frozen=True)
class SplitScores:
    """Rows are captions in file order, columns videos in order of first appearance."""

    fused: Float[np.ndarray, "Q V"]
    branches: dict[str, Float[np.ndarray, "Q V"]]


@torch.no_grad()
def score_split(
    model: RetrievalModel,
    dataset: RetrievalDataset,
    *,
    video_batch_size: int,
    query_batch_size: int,
    encode: Encode = encode_here,
) -> SplitScores:
    """All scores of a split; the model is in evaluation mode meanwhile.

    Videos are encoded in file order in batches of the released size, because the window of GMMFormer's second branch
    depends on the longest video of a batch; each batch is scored against all queries and then forgotten, so that the
    encodings of a corpus are never held.
    """
    was_training = model.training
    model.eval()
    queries = encode_queries(model, dataset, query_batch_size, encode)
    fused, branches = [], []
    videos = np.arange(len(dataset.video_ids))
    for batch in prefetched(partial(video_batch, dataset), in_batches(videos, video_batch_size)):
        whole, parts = _score(model, queries, encode(model.encode_videos, batch))
        fused.append(whole)
        branches.append(parts)
    model.train(was_training)
    names = branches[0].keys()
    return SplitScores(
        fused=np.concatenate(fused, axis=1),
        branches={name: np.concatenate([parts[name] for parts in branches], axis=1) for name in names},
    )


@torch.no_grad()
def encode_queries(
    model: RetrievalModel, dataset: RetrievalDataset, batch_size: int, encode: Encode = encode_here
) -> EncodedQueries:
    """All captions in file order.

    They are encoded by length, so that little is padded; a query's vector does not depend on its batch mates.
    """
    order = np.argsort(dataset.features.words_packed.lengths, kind="stable")
    batches = prefetched(partial(query_batch, dataset), in_batches(order, batch_size))
    encoded = [encode(model.encode_queries, batch) for batch in batches]
    return encoded[0].cat(encoded).select(torch.from_numpy(np.argsort(order)))


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
