"""The library's exact search of many encoded videos, as a peer of other ways to search them.

    python PEERS --mine benchmarks.search_peer:factory --videos 10000

PEERS is a program that generates videos of 32 clips and some frames each (float16, 384 wide). A video's score is 0.7
times the best clip's product with the query plus 0.3 times the best frame's. The program times objects with
`search(queries, k) -> (ids, scores)`, alternating with its own implementations. This file defines a method with that
score and ranks the videos like a library of a trained model: `untrimmed.search.corpora.trained.TrainedCorpus`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import create_model, register
from untrimmed.scores.max_sim import Branches, TensorNames, max_sim
from untrimmed.scores.score import Scores
from untrimmed.search.corpora.encoded_block import EncodedBlock
from untrimmed.search.corpora.exact_scores import ScoringModel
from untrimmed.search.corpora.trained import TrainedCorpus
from untrimmed.search.corpora.trained_query import TrainedQuery, rank_together
from untrimmed.search.pruning.coder import LEAST_SEARCHES

WEIGHTS = {"clip": 0.7, "frame": 0.3}
VIDEOS_AT_A_TIME = 4096


@register("given")
class Given(RetrievalModel):
    """Videos and queries come encoded."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Whether videos have frames, too."""

        has_frames: bool = True

    config: Config

    def compute_query_vectors(self, queries: QueryBatch) -> EncodedQueries:
        """Not needed."""
        raise NotImplementedError

    def compute_video_vectors(self, videos: VideoBatch) -> EncodedVideos:
        """Not needed."""
        raise NotImplementedError

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """The best clip and the best frame by their products, which are in float16."""
        of_branch = {branch: rows.to(queries.sentence.dtype) for branch, rows in self.compute_sketch(videos).items()}
        sims = {branch: max_sim(queries.sentence, rows, similarity="dot") for branch, rows in of_branch.items()}
        return Scores(sims, {branch: WEIGHTS[branch] for branch in sims})

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """As they are."""
        branches = {"clip": videos.clips, "frame": videos.frames}
        return {branch: rows for branch, rows in branches.items() if rows is not None}

    def list_row_tensors(self) -> TensorNames:
        """All of them."""
        return {"clip": ("clips",), "frame": ("frames",)} if self.config.has_frames else {"clip": ("clips",)}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """The query, weighed."""
        return {branch: WEIGHTS[branch] * queries.sentence[:, None] for branch in self.list_row_tensors()}

    def compute_losses(self, step: TrainingStep) -> dict[str, Tensor]:
        """Not needed."""
        raise NotImplementedError


class Search:
    """Videos in blocks, as a library's are."""

    def __init__(self, blocks: Sequence[EncodedBlock]):
        self.blocks = blocks
        model = create_model("given", query_dim=1, video_dim=1, has_frames=blocks[0].template.frames is not None)
        scorer = ScoringModel(model, blocks[0].video(0))
        self.corpus = TrainedCorpus(SimpleNamespace(model=model, scorer=scorer))  # type: ignore[arg-type]  # it only scores
        self.corpus.blocks = self.corpus.blocks.update(self.blocks, ())
        for _ in range(LEAST_SEARCHES + 1):
            self.corpus.coder.request(self.blocks, self.corpus.build_codes)
        self.corpus.coder.wait()

    @classmethod
    def of(cls, folder: str) -> Search:
        """The videos of a folder."""
        files = {name: Path(folder) / f"{name}.npy" for name in ("clips", "frames")}
        arrays = {name: np.load(file, mmap_mode="c") for name, file in files.items() if file.exists()}
        return cls([_block(arrays, start) for start in range(0, len(arrays["clips"]), VIDEOS_AT_A_TIME)])

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The best videos of each query, and their scores."""
        ids, scores = np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf, dtype=np.float32)
        encoded = [EncodedQueries(sentence=query[None]) for query in torch.from_numpy(queries)]
        prepared = [TrainedQuery(self.corpus, self.corpus.model.scorer, query) for query in encoded]
        for number, ranked in enumerate(some[:k] for some in rank_together(prepared, limit=k)):
            ids[number, : len(ranked)] = [int(video.video_id) for video in ranked]
            scores[number, : len(ranked)] = [video.score for video in ranked]
        return ids, scores


def _block(arrays: dict[str, np.ndarray], start: int) -> EncodedBlock:
    tensors = {name: torch.from_numpy(array[start : start + VIDEOS_AT_A_TIME]) for name, array in arrays.items()}
    number = len(tensors["clips"])
    return EncodedBlock.of(
        ids=tuple(str(start + row) for row in range(number)),
        durations_s=np.ones(number),
        videos=EncodedVideos(**tensors),
        lengths=np.tile([tensor.shape[1] for tensor in tensors.values()], (number, 1)),
    )


def factory(folder: str, meta: dict[str, Any]) -> Search:
    """Return the search; PEERS calls this function."""
    return Search.of(folder)


def made_queries(clips: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Rows under as much noise as two random rows are, float32 of length 1."""
    rng, queries = np.random.default_rng(seed), []
    for _ in range(number):
        rows = clips[rng.integers(len(clips), size=9), rng.integers(clips.shape[1], size=9)].astype(np.float32)
        noise = rng.choice([-1, 1], 8).astype(np.float32) @ rows[1:] / 8**0.5
        query = rows[0] / np.linalg.norm(rows[0]) + 2 * noise
        queries.append(query / np.linalg.norm(query))
    return np.stack(queries)
