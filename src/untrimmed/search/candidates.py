"""How many of the best videos by a method's own score are among the candidates that an index of vectors finds.

Candidates are the best by `RetrievalModel.candidate_score`; the method's `score` then ranks them. How many are needed
depends on the method and on the videos, so that it is measured where it is used, with queries that are not those of
any report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

if TYPE_CHECKING:
    from untrimmed.batches import EncodedQueries, EncodedVideos
    from untrimmed.models.base import RetrievalModel
    from untrimmed.search.trained import TrainedCorpus
    from untrimmed.types import TextFeatures


def recall(
    exact: Float[np.ndarray, "Q V"], rough: Float[np.ndarray, "Q V"], *, top: int, candidates: int
) -> Float[np.ndarray, " Q"]:
    """For each query, which share of its `top` best videos by exact scores is among the best by rough ones.

    Of videos whose exact scores tie for the last places any will do.

    >>> recall(np.array([[3.0, 2.0, 1.0, 0.0]]), np.array([[0.9, 0.1, 0.8, 0.7]]), top=2, candidates=3)
    array([0.5])
    """
    top = min(top, exact.shape[1])
    last = -np.sort(-exact, axis=1)[:, top - 1 : top]
    found = np.take_along_axis(exact, np.argsort(-rough, axis=1, kind="stable")[:, :candidates], axis=1)
    places = top - (exact > last).sum(axis=1)  # for those that tie
    return ((found > last).sum(axis=1) + np.minimum((found == last).sum(axis=1), places)) / top


@torch.inference_mode()
def recall_on(
    model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos, *, top: int = 10, candidates: int = 100
) -> Float[np.ndarray, " Q"]:
    """`recall` of encoded queries on encoded videos, for instance those of a data set."""
    exact, rough = model.score(queries, videos).fused, model.candidate_score(queries, videos)
    return recall(exact.numpy(), rough.numpy(), top=top, candidates=candidates)


@torch.inference_mode()
def recall_in(
    corpus: TrainedCorpus, queries: Sequence[TextFeatures], *, top: int = 10, candidates: int = 100
) -> Float[np.ndarray, " Q"]:
    """`recall` of sentences on the videos of a library; not a number where it has none."""
    if len(corpus) == 0:
        return np.full(len(queries), np.nan)
    model, measured = corpus.model.model, []
    for query in queries:
        encoded = corpus.model.encode_query(query)
        exact, rough = [], []
        for part in corpus.blocks.parts:
            rows = torch.from_numpy(part.present)
            exact.append(model.score(encoded, part.block.videos).fused[:, rows])
            rough.append(model.candidate_score(encoded, part.block.videos)[:, rows])
        both = (torch.cat(parts, dim=1).numpy() for parts in (exact, rough))
        measured.append(recall(*both, top=top, candidates=candidates))
    return np.concatenate([np.empty(0), *measured])
