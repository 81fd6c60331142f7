"""Exact scores of videos by a trained model, in double precision: they do not depend on the batch."""

import copy
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.search.cache.blocks import Split
from untrimmed.search.corpora.encoded_block import EncodedBlock, Places, long_tensors, with_rows
from untrimmed.search.pruning.codes import CodedBlocks, Probe
from untrimmed.search.pruning.threads import cores, share

_GATHERED_AT_A_TIME = 256  # videos at most in a piece of work
_MIN_GATHERED = 16
_READ_TOGETHER = 16  # pieces of several queries
_ROWS_AT_A_TIME = 2**15
_NUMBERS_AT_A_TIME = 2**20  # 8 MB in double precision per thread

_buffers = threading.local()

PlacesOf = Callable[[Split[EncodedBlock]], Places]  # the rows of videos that may be the best for a query


def exact_scores(model: RetrievalModel, query: EncodedQueries, split: Split[EncodedBlock]) -> Float32[np.ndarray, " N"]:
    """Return the scores of one query by a model in double precision, from whole videos, rounded to float32."""
    step = min(_GATHERED_AT_A_TIME, max(_MIN_GATHERED, -(-len(split) // cores())))
    query = query.to("cpu", torch.float64)

    @torch.inference_mode()
    def score(piece: Split[EncodedBlock]) -> Tensor:
        _fetch(piece)
        videos = [block.fitted(rows) for block, rows in piece]
        return _scores(model, query, videos[0].cat(videos))

    pieces = _pieces(split, step)
    scores: list[Tensor] = []
    while batch := [*islice(pieces, cores())]:  # in small batches, so that other searches can run in between
        scores += map_alone(score, batch)
    return torch.cat(scores).numpy() if scores else np.empty(0, dtype=np.float32)


def exact_scores_of_rows(
    model: RetrievalModel, requests: Sequence[tuple[EncodedQueries, Split[EncodedBlock], PlacesOf]]
) -> list[Float32[np.ndarray, " N"]]:
    """Return the same scores for several queries, each with its own videos, reading only rows that may be the best."""
    pieces = (
        (number, piece)
        for number, (_, split, _) in enumerate(requests)
        for piece in _pieces(split, _GATHERED_AT_A_TIME)
    )
    scores: list[list[Tensor]] = [[] for _ in requests]

    @torch.inference_mode()
    def score(batch: Sequence[tuple[int, Split[EncodedBlock]]]) -> None:
        places: list[Places] = [{}] * len(batch)

        def find_places(start: int, stop: int) -> None:
            for index, (number, piece) in enumerate(batch[start:stop], start):
                places[index] = requests[number][2](piece)

        for _, piece in batch:
            _fetch(piece)
        share(len(batch), 1, find_places)
        ends = np.cumsum([max(rows.size for rows in by_name.values()) for by_name in places])
        items = zip(batch, places, (ends // _ROWS_AT_A_TIME).tolist(), strict=True)
        for _, iterator in groupby(items, key=itemgetter(2)):
            group = [*iterator]
            videos = with_rows([(piece, by_name) for (_, piece), by_name, _ in group])
            for ((number, _), *_), piece_videos in zip(group, videos, strict=True):
                scores[number].append(_scores(model, requests[number][0].to("cpu", torch.float64), piece_videos))

    while batch := [*islice(pieces, _READ_TOGETHER)]:
        map_alone(score, [batch])
    return [torch.cat(parts).numpy() if parts else np.empty(0, dtype=np.float32) for parts in scores]


def _pieces(split: Split[EncodedBlock], step: int) -> Iterator[Split[EncodedBlock]]:
    return (split.at(slice(start, start + step)) for start in range(0, len(split), step))


def _fetch(split: Split[EncodedBlock]) -> None:
    for block, rows in split:
        block.fetch(rows)


def _scores(model: RetrievalModel, query: EncodedQueries, videos: EncodedVideos) -> Tensor:
    numbers = sum(tensor[0].numel() for tensor in videos.tensors().values())
    step = max(1, _NUMBERS_AT_A_TIME // numbers)
    pieces = (videos.select(slice(start, start + step)) for start in range(0, len(videos), step))
    return torch.cat([model.score(query, _in_float64(piece)).fused[0].float() for piece in pieces])


def _in_float64(videos: EncodedVideos) -> EncodedVideos:
    """Convert videos in buffers of this thread, valid until its next call: allocation would take longer than scoring.

    The buffers are inference tensors.
    """
    buffers: dict[str, Tensor] = _buffers.__dict__
    wide = {}
    for name, tensor in videos.tensors().items():
        if not tensor.is_floating_point():
            continue
        if name not in buffers or len(buffers[name]) < tensor.numel():
            buffers[name] = torch.empty(tensor.numel(), dtype=torch.float64)
        wide[name] = buffers[name][: tensor.numel()].view(tensor.shape).copy_(tensor)
    return videos.with_tensors(videos.tensors() | wide)


A = TypeVar("A")
R = TypeVar("R")

_current = threading.local()
_starting = threading.Lock()


def map_alone(work: Callable[[A], R], items: Iterable[A]) -> list[R]:
    """Return the results of `work` for all items, computed on all cores; nested calls use the current thread."""
    if getattr(_current, "is_alone", False):
        return [work(item) for item in items]
    return list(_threads().map(work, items))


def _threads() -> ThreadPoolExecutor:
    with _starting:
        return _start_threads()


@cache
def _start_threads() -> ThreadPoolExecutor:
    number = cores()
    num_threads = torch.get_num_threads()
    barrier = threading.Barrier(number)

    def initialize() -> None:
        torch.set_num_threads(1)
        _current.is_alone = True

    pool = ThreadPoolExecutor(number, "scores", initialize)
    for future in [pool.submit(barrier.wait) for _ in range(number)]:
        future.result()
    torch.set_num_threads(num_threads)  # for this thread and later ones
    return pool


def _after_fork() -> None:
    """Reset the state of threads, which a child process does not inherit."""
    global _starting
    _starting = threading.Lock()
    _start_threads.cache_clear()
    _current.is_alone = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class BestRows:
    """Finds the rows of videos that a model's score may read."""

    def __init__(self, model: RetrievalModel, template: EncodedVideos):
        """Take a model and its encoding of any video."""
        sketch = model.sketch(template)
        tensors = dict(long_tensors(template))
        self._tensors = {
            # A sketch may begin with an additional row, see `scores.max_sim.units`.
            branch: (names, sketch[branch].shape[1] - tensors[names[0]].shape[1])
            for branch, names in model.rows_of_branches.items()
        }
        self._lengths = {branch: [*tensors].index(names[0]) for branch, (names, _) in self._tensors.items()}

    @property
    def are_few(self) -> bool:
        """Whether the score reads only the best rows."""
        return bool(self._tensors)

    def places(
        self, coded: Mapping[str, CodedBlocks], probes: Sequence[tuple[str, Probe]], split: Split[EncodedBlock]
    ) -> Places:
        """Return the rows of coded videos that may be the best for these probes.

        If a video has fewer such rows than another, a row is repeated. For a branch without probes, the first row is
        returned, which does not affect the score.
        """
        lengths = np.concatenate([block.lengths[rows] for block, rows in split])
        masks = {}
        for branch, (_, offset) in self._tensors.items():
            is_open = coded[branch].open_rows([probe for name, probe in probes if name == branch], split)
            # Without the copy of the first row that replaces padding.
            length = lengths[:, self._lengths[branch]] + offset
            masks[branch] = is_open & (np.arange(is_open.shape[1]) < length[:, None])
        width = max(1, *(int(is_open.sum(axis=1).max()) for is_open in masks.values()))
        places: dict[str, Int[np.ndarray, "K W"]] = {}
        for branch, (names, offset) in self._tensors.items():
            first = np.argsort(~masks[branch], axis=1, kind="stable")[:, :width]
            is_open = np.take_along_axis(masks[branch], first, axis=1)
            rows = np.maximum(np.where(is_open, first, first[:, :1]) - offset, 0)
            missing = width - rows.shape[1]
            places |= dict.fromkeys(names, np.pad(rows, ((0, 0), (0, missing)), mode="edge") if missing else rows)
        return places


class Scorer:
    """Scores videos by a model: approximately in its own precision, exactly in double precision."""

    @torch.inference_mode()
    def __init__(self, model: RetrievalModel, template: EncodedVideos, usual_doubt: float | None = None):
        """Take a model, its encoding of any video, and `Doubt.usual`."""
        self.model = model
        self.best_rows = BestRows(model, template)
        self.usual_doubt = usual_doubt

    @cached_property
    def in_float64(self) -> RetrievalModel:
        """The model in double precision."""
        return copy.deepcopy(self.model).double()
