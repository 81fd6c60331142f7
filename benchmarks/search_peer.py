"""The library's exact search of many encoded videos, as a peer of other ways to search them.

    python PEERS --mine benchmarks.search_peer:factory --videos 10000
    python PEERS --mine benchmarks.search_peer:pruned --videos 10000

PEERS is a program that makes videos of 32 clips and some frames each (float16, 384 wide), whose score is
0.7 times the best clip's product with the query and 0.3 times the best frame's, and times whatever has
`search(queries, k) -> (ids, scores)` by turns with its own ways. Here a method with that score, from outside the
package, ranks them as a library of a trained model does: `untrimmed.search.trained.TrainedCorpus`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.models.attachment import Step
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import register
from untrimmed.scores.max_sim import Branches, max_sim
from untrimmed.scores.score import Scores
from untrimmed.search.encoded_block import EncodedBlock
from untrimmed.search.trained import TrainedCorpus, TrainedQuery

WEIGHTS = {"clip": 0.7, "frame": 0.3}
VIDEOS_AT_A_TIME = 4096
HELD_BACK = 24  # queries


@register("given")
class Given(RetrievalModel):
    """Videos and queries come encoded."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """None."""

    def own_queries(self, queries: QueryBatch) -> EncodedQueries:
        """Not needed."""
        raise NotImplementedError

    def own_videos(self, videos: VideoBatch) -> EncodedVideos:
        """Not needed."""
        raise NotImplementedError

    def own_score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """The best clip and the best frame by their products, which are in float16."""
        of_branch = {branch: rows.to(queries.sentence.dtype) for branch, rows in self.own_sketch(videos).items()}
        sims = {branch: max_sim(queries.sentence, rows, similarity="dot") for branch, rows in of_branch.items()}
        return Scores(sims, WEIGHTS)

    def own_sketch(self, videos: EncodedVideos) -> Branches:
        """As they are."""
        assert videos.clips is not None
        assert videos.frames is not None
        return {"clip": videos.clips, "frame": videos.frames}

    def own_probe(self, queries: EncodedQueries) -> Branches:
        """The query, weighed."""
        return {branch: weight * queries.sentence[:, None] for branch, weight in WEIGHTS.items()}

    def own_losses(self, step: Step) -> dict[str, Tensor]:
        """Not needed."""
        raise NotImplementedError


class Search:
    """The videos of a folder in blocks, as a library's are."""

    def __init__(self, folder: str, recall: float = 1.0):
        self.recall = recall
        arrays = [np.load(Path(folder) / f"{name}.npy", mmap_mode="c") for name in ("clips", "frames")]
        model = Given(Given.Config(query_dim=1, video_dim=1))
        scoring = SimpleNamespace(model=model, in_float64=model, usual_doubt=None)
        self.corpus = TrainedCorpus(scoring)  # type: ignore[arg-type]  # it only scores
        starts = range(0, len(arrays[0]), VIDEOS_AT_A_TIME)
        self.corpus.blocks = self.corpus.blocks.update([_block(arrays, start) for start in starts], ())
        for _ in range(3):  # with the third, codes begin to be made
            self.search(np.ones((1, arrays[0].shape[2]), dtype=np.float32), 1)
        self.corpus.coder.wait()

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The best videos of each query, and their scores."""
        ids, scores = np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf, dtype=np.float32)
        for number, query in enumerate(torch.from_numpy(queries)):
            ranked = TrainedQuery(self.corpus, EncodedQueries(sentence=query[None]), self.recall).rank(limit=k)[:k]
            ids[number, : len(ranked)] = [int(video.video_id) for video in ranked]
            scores[number, : len(ranked)] = [video.score for video in ranked]
        return ids, scores


def _block(arrays: list[np.ndarray], start: int) -> EncodedBlock:
    clips, frames = (torch.from_numpy(array[start : start + VIDEOS_AT_A_TIME]) for array in arrays)
    return EncodedBlock.of(
        ids=tuple(str(start + row) for row in range(len(clips))),
        durations_s=np.ones(len(clips)),
        videos=EncodedVideos(clips=clips, frames=frames),
        lengths=np.tile([clips.shape[1], frames.shape[1]], (len(clips), 1)),
    )


def factory(folder: str, meta: dict[str, Any]) -> Search:
    """What the program calls."""
    return Search(folder)


def pruned(folder: str, meta: dict[str, Any]) -> Search:
    """The same at a recall of 99 %, learned from other queries: rows under as much noise as two random rows are."""
    search, clips = Search(folder, recall=0.99), np.load(Path(folder) / "clips.npy", mmap_mode="r")
    rng = np.random.default_rng(1)
    for _ in range(HELD_BACK):
        rows = clips[rng.integers(len(clips), size=9), rng.integers(clips.shape[1], size=9)].astype(np.float32)
        noise = rng.choice([-1, 1], 8).astype(np.float32) @ rows[1:] / 8**0.5
        query = rows[0] / np.linalg.norm(rows[0]) + 2 * noise
        search.search((query / np.linalg.norm(query))[None], 100)
    return search
