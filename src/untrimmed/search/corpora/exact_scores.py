"""Compute exact scores of a trained model in double precision, so that a score does not depend on other videos."""

import copy
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.search.cache.blocks import Selection
from untrimmed.search.corpora.encoded_block import EncodedBlock, Units, read_units, sequence_tensors
from untrimmed.search.pruning.codes import CodedBlocks, Probe
from untrimmed.search.pruning.threads import cores, share_work

_VIDEOS_PER_PIECE = 256  # videos that a thread scores at a time
_MIN_VIDEOS_PER_PIECE = 16
_PIECES_TOGETHER = 16  # number of pieces in a batch; they can belong to several queries
_UNITS_AT_A_TIME = 2**15
_NUMBERS_AT_A_TIME = 2**20  # 8 MB in double precision per thread

_buffers = threading.local()


class ScoreRequest(NamedTuple):
    """A query, the videos that need exact scores, and a function that returns which units to read from each video."""

    query: EncodedQueries
    videos: Selection[EncodedBlock]
    find_units: Callable[[Selection[EncodedBlock]], Units]


def exact_scores(
    model: RetrievalModel, query: EncodedQueries, selection: Selection[EncodedBlock]
) -> Float32[np.ndarray, " N"]:
    """Return a model's scores of videos for one query, computed in double precision and rounded to float32."""
    step = min(_VIDEOS_PER_PIECE, max(_MIN_VIDEOS_PER_PIECE, -(-len(selection) // cores())))
    query = query.to("cpu", torch.float64)

    @torch.inference_mode()
    def score(piece: Selection[EncodedBlock]) -> Tensor:
        _prefetch(piece)
        videos = [block.padded(rows) for block, rows in piece]
        return _scores(model, query, videos[0].cat(videos))

    pieces = _pieces(selection, step)
    scores: list[Tensor] = []
    while batch := [*islice(pieces, cores())]:  # other searches can run between the batches
        scores += map_on_cores(score, batch)
    return torch.cat(scores).numpy() if scores else np.empty(0, dtype=np.float32)


def exact_scores_of_best_units(
    model: RetrievalModel, requests: Sequence[ScoreRequest]
) -> list[Float32[np.ndarray, " N"]]:
    """Return the results of `exact_scores` for several queries. Only units that may determine a score are read."""
    pieces = (
        (number, piece)
        for number, request in enumerate(requests)
        for piece in _pieces(request.videos, _VIDEOS_PER_PIECE)
    )
    scores: list[list[Tensor]] = [[] for _ in requests]

    @torch.inference_mode()
    def score(batch: Sequence[tuple[int, Selection[EncodedBlock]]]) -> None:
        units = _units_of(requests, batch)
        ends = np.cumsum([max(index.size for index in by_tensor.values()) for by_tensor in units])
        items = zip(batch, units, (ends // _UNITS_AT_A_TIME).tolist(), strict=True)
        for _, iterator in groupby(items, key=itemgetter(2)):
            group = [*iterator]
            videos = read_units([(piece, by_tensor) for (_, piece), by_tensor, _ in group])
            for ((number, _), *_), piece_videos in zip(group, videos, strict=True):
                scores[number].append(_scores(model, requests[number].query.to("cpu", torch.float64), piece_videos))

    while batch := [*islice(pieces, _PIECES_TOGETHER)]:
        map_on_cores(score, [batch])
    return [torch.cat(parts).numpy() if parts else np.empty(0, dtype=np.float32) for parts in scores]


def _units_of(requests: Sequence[ScoreRequest], batch: Sequence[tuple[int, Selection[EncodedBlock]]]) -> list[Units]:
    """Return the units to read for each piece of a batch. A piece has the index of its request."""
    units: list[Units] = [{}] * len(batch)

    def find(start: int, stop: int) -> None:
        for index, (number, piece) in enumerate(batch[start:stop], start):
            units[index] = requests[number].find_units(piece)

    for _, piece in batch:
        _prefetch(piece)
    share_work(len(batch), 1, find)
    return units


def _pieces(selection: Selection[EncodedBlock], step: int) -> Iterator[Selection[EncodedBlock]]:
    return (selection.at(slice(start, start + step)) for start in range(0, len(selection), step))


def _prefetch(selection: Selection[EncodedBlock]) -> None:
    for block, rows in selection:
        block.prefetch(rows)


def _scores(model: RetrievalModel, query: EncodedQueries, videos: EncodedVideos) -> Tensor:
    numbers = sum(tensor[0].numel() for tensor in videos.tensors().values())
    step = max(1, _NUMBERS_AT_A_TIME // numbers)
    pieces = (videos.select(slice(start, start + step)) for start in range(0, len(videos), step))
    return torch.cat([model.score(query, _in_float64(piece)).fused[0].float() for piece in pieces])


def _in_float64(videos: EncodedVideos) -> EncodedVideos:
    """Return videos in double precision. They are inference tensors, and valid until the next call in this thread.

    The tensors are buffers of the thread, because new memory would take longer than scoring.
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
_pool_lock = threading.Lock()


def map_on_cores(work: Callable[[A], R], items: Iterable[A]) -> list[R]:
    """Return `work(item)` for each item, computed on all cores. A call from within `work` uses only its own thread."""
    if getattr(_current, "is_worker", False):
        return [work(item) for item in items]
    return list(_thread_pool().map(work, items))


def _thread_pool() -> ThreadPoolExecutor:
    with _pool_lock:
        return _start_pool()


@cache
def _start_pool() -> ThreadPoolExecutor:
    number = cores()
    num_threads = torch.get_num_threads()
    barrier = threading.Barrier(number)

    def initialize() -> None:
        torch.set_num_threads(1)
        _current.is_worker = True

    pool = ThreadPoolExecutor(number, "scores", initialize)
    for future in [pool.submit(barrier.wait) for _ in range(number)]:
        future.result()
    torch.set_num_threads(num_threads)  # restore the value, also for threads that start later
    return pool


def _after_fork() -> None:
    """Reset the pool, because a child process does not inherit threads."""
    global _pool_lock
    _pool_lock = threading.Lock()
    _start_pool.cache_clear()
    _current.is_worker = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class BestUnits:
    """Finds the units (frames and clips) of each video that may determine its score, with the quantized codes."""

    def __init__(self, model: RetrievalModel, template: EncodedVideos):
        """Create a finder for a model.

        `template` is any encoded video. It shows which tensors the model has.
        """
        sketch = model.sketch(template)
        tensors = dict(sequence_tensors(template))
        self._tensors = {
            # a sketch may begin with an additional row, see `scores.max_sim.units`
            branch: (names, sketch[branch].shape[1] - tensors[names[0]].shape[1])
            for branch, names in model.row_tensors.items()
        }
        self._lengths = {branch: [*tensors].index(names[0]) for branch, (names, _) in self._tensors.items()}

    @property
    def are_enough(self) -> bool:
        """Whether the score of a video depends only on its best units."""
        return bool(self._tensors)

    def find(
        self, coded: Mapping[str, CodedBlocks], probes: Sequence[tuple[str, Probe]], selection: Selection[EncodedBlock]
    ) -> Units:
        """Return the units of each video that, according to the codes, may score best for these probes.

        All videos get the same number of units; if a video has fewer, a unit is repeated. A branch without probes does
        not affect the score, so only the first unit of each video is returned for it.
        """
        lengths = np.concatenate([block.lengths[rows] for block, rows in selection])
        masks = {}
        for branch, (_, offset) in self._tensors.items():
            branch_probes = [probe for name, probe in probes if name == branch]
            may_be_best = coded[branch].possible_best_rows(branch_probes, selection)
            # leave out padding, where a sketch repeats the first row
            length = lengths[:, self._lengths[branch]] + offset
            masks[branch] = may_be_best & (np.arange(may_be_best.shape[1]) < length[:, None])
        width = max(1, *(int(mask.sum(axis=1).max()) for mask in masks.values()))
        units: dict[str, Int[np.ndarray, "K W"]] = {}
        for branch, (names, offset) in self._tensors.items():
            first = np.argsort(~masks[branch], axis=1, kind="stable")[:, :width]
            may_be_best = np.take_along_axis(masks[branch], first, axis=1)
            index = np.maximum(np.where(may_be_best, first, first[:, :1]) - offset, 0)
            missing = width - index.shape[1]
            units |= dict.fromkeys(names, np.pad(index, ((0, 0), (0, missing)), mode="edge") if missing else index)
        return units


class ScoringModel:
    """A trained model that computes approximate scores in its own precision, and exact scores in double precision."""

    @torch.inference_mode()
    def __init__(self, model: RetrievalModel, template: EncodedVideos, usual_uncertainty: float | None = None):
        """Wrap a model. `template` is any encoded video; it shows which tensors the model has.

        `usual_uncertainty` is the `Uncertainty.usual` of the model's run.
        """
        self.model = model
        self.best_units = BestUnits(model, template)
        self.usual_uncertainty = usual_uncertainty

    @cached_property
    def in_float64(self) -> RetrievalModel:
        """The model in double precision."""
        return copy.deepcopy(self.model).double()
