"""A method's own score of some videos in double precision: it does not depend on what is computed beside it."""

from __future__ import annotations

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

_GATHERED_AT_A_TIME, _FEWEST = 256, 16  # videos
_READ_TOGETHER, _ROWS_AT_A_TIME = 16, 2**15  # of these, for several queries, and of their rows
_NUMBERS_AT_A_TIME = 2**20  # of several videos: 8 MB in double precision, which a thread keeps

_room = threading.local()

PlacesOf = Callable[[Split[EncodedBlock]], Places]  # which rows of videos may count for a query


def exact_scores(model: RetrievalModel, query: EncodedQueries, split: Split[EncodedBlock]) -> Float32[np.ndarray, " N"]:
    """The scores of one query by a model in double precision, rounded, of videos with all that was encoded of them."""
    step = min(_GATHERED_AT_A_TIME, max(_FEWEST, -(-len(split) // cores())))
    query = query.to("cpu", torch.float64)

    @torch.inference_mode()
    def score(some: Split[EncodedBlock]) -> Tensor:
        _fetch(some)
        each = [block.fitted(rows) for block, rows in some]
        return _scores(model, query, each[0].cat(each))

    pieces, found = _cut(split, step), []
    while some := [*islice(pieces, cores())]:  # no more at a time, so that other searches find their turn between
        found += each_alone(score, some)
    return torch.cat(found).numpy() if found else np.empty(0, dtype=np.float32)


def exact_scores_of_rows(
    model: RetrievalModel, asked: Sequence[tuple[EncodedQueries, Split[EncodedBlock], PlacesOf]]
) -> list[Float32[np.ndarray, " N"]]:
    """The same scores of several queries, each of its own videos, from those rows alone that may count."""
    pieces = (
        (number, piece) for number, (_, split, _) in enumerate(asked) for piece in _cut(split, _GATHERED_AT_A_TIME)
    )
    found: list[list[Tensor]] = [[] for _ in asked]

    @torch.inference_mode()
    def score(some: Sequence[tuple[int, Split[EncodedBlock]]]) -> None:
        places: list[Places] = [{}] * len(some)

        def look(start: int, stop: int) -> None:
            for place, (number, piece) in enumerate(some[start:stop], start):
                places[place] = asked[number][2](piece)

        for _, piece in some:
            _fetch(piece)
        share(len(some), 1, look)
        ends = np.cumsum([max(rows.size for rows in own.values()) for own in places])
        each = zip(some, places, (ends // _ROWS_AT_A_TIME).tolist(), strict=True)
        for _, group in groupby(each, key=itemgetter(2)):
            few = [*group]
            videos = with_rows([(piece, own) for (_, piece), own, _ in few])
            for ((number, _), *_), own in zip(few, videos, strict=True):
                found[number].append(_scores(model, asked[number][0].to("cpu", torch.float64), own))

    while some := [*islice(pieces, _READ_TOGETHER)]:
        each_alone(score, [some])
    return [torch.cat(own).numpy() if own else np.empty(0, dtype=np.float32) for own in found]


def _cut(split: Split[EncodedBlock], step: int) -> Iterator[Split[EncodedBlock]]:
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
    """In memory of this thread until it asks again: to be given new memory would take longer than the scores.

    For inference mode alone, in which that memory was made.
    """
    room: dict[str, Tensor] = _room.__dict__
    wide = {}
    for name, tensor in videos.tensors().items():
        if not tensor.is_floating_point():
            continue
        if name not in room or len(room[name]) < tensor.numel():
            room[name] = torch.empty(tensor.numel(), dtype=torch.float64)
        wide[name] = room[name][: tensor.numel()].view(tensor.shape).copy_(tensor)
    return videos.with_tensors(videos.tensors() | wide)


A = TypeVar("A")
R = TypeVar("R")

_here, _beginning = threading.local(), threading.Lock()


def each_alone(work: Callable[[A], R], items: Iterable[A]) -> list[R]:
    """Work on each item, as many at a time as there are cores; within such work, one after the other."""
    if getattr(_here, "is_alone", False):
        return [work(item) for item in items]
    return list(_threads().map(work, items))


def _threads() -> ThreadPoolExecutor:
    with _beginning:
        return _begun()


@cache
def _begun() -> ThreadPoolExecutor:
    number, before = cores(), torch.get_num_threads()
    all_there = threading.Barrier(number)

    def begin() -> None:
        torch.set_num_threads(1)
        _here.is_alone = True

    pool = ThreadPoolExecutor(number, "scores", begin)
    for started in [pool.submit(all_there.wait) for _ in range(number)]:
        started.result()
    torch.set_num_threads(before)  # of this thread, and of those to come
    return pool


def _after_fork() -> None:
    """Threads do not go along, nor is a child one of them."""
    global _beginning
    _beginning = threading.Lock()
    _begun.cache_clear()
    _here.is_alone = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class BestRows:
    """How videos of a model are read by their best rows."""

    def __init__(self, model: RetrievalModel, template: EncodedVideos):
        """`template`: an encoding of a video by the model."""
        sketch, tensors = model.sketch(template), dict(long_tensors(template))
        self._tensors = {
            # A sketch may begin with a row that no tensor has: see `scores.max_sim.units`.
            branch: (names, sketch[branch].shape[1] - tensors[names[0]].shape[1])
            for branch, names in model.rows_of_branches.items()
        }
        self._lengths = {branch: [*tensors].index(names[0]) for branch, (names, _) in self._tensors.items()}

    @property
    def are_few(self) -> bool:
        """Whether the score reads no others."""
        return bool(self._tensors)

    def places(
        self, coded: Mapping[str, CodedBlocks], probes: Sequence[tuple[str, Probe]], split: Split[EncodedBlock]
    ) -> Places:
        """What `with_rows` reads of videos that have codes, for a query with these probes.

        Where fewer rows of a video are open than of another, one stands for others. Of a branch that the query does not
        look for none is open: the first row stands, and counts for nothing.
        """
        lengths, opened = np.concatenate([block.lengths[rows] for block, rows in split]), {}
        for branch, (_, before) in self._tensors.items():
            is_open = coded[branch].open_rows([probe for name, probe in probes if name == branch], split)
            # Without the copy of its first row that stands for the padding of a video.
            length = lengths[:, self._lengths[branch]] + before
            opened[branch] = is_open & (np.arange(is_open.shape[1]) < length[:, None])
        width = max(1, *(int(is_open.sum(axis=1).max()) for is_open in opened.values()))
        places: dict[str, Int[np.ndarray, "K W"]] = {}
        for branch, (names, before) in self._tensors.items():
            first = np.argsort(~opened[branch], axis=1, kind="stable")[:, :width]
            is_open = np.take_along_axis(opened[branch], first, axis=1)
            rows = np.maximum(np.where(is_open, first, first[:, :1]) - before, 0)
            missing = width - rows.shape[1]
            places |= dict.fromkeys(names, np.pad(rows, ((0, 0), (0, missing)), mode="edge") if missing else rows)
        return places


class Scorer:
    """How a model scores the videos of a library: roughly in its own precision, exactly in double precision."""

    @torch.inference_mode()
    def __init__(self, model: RetrievalModel, template: EncodedVideos, usual_doubt: float | None = None):
        """`template` is an encoding of one video. `usual_doubt`: see `Doubt.usual`."""
        self.model = model
        self.best_rows = BestRows(model, template)
        self.usual_doubt = usual_doubt

    @cached_property
    def in_float64(self) -> RetrievalModel:
        """A copy of the model in double precision."""
        return copy.deepcopy(self.model).double()
