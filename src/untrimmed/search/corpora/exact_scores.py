"""A method's own score of some videos in double precision: it does not depend on what is computed beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.search.cache.blocks import Split
from untrimmed.search.corpora.encoded_block import EncodedBlock, Places, with_rows
from untrimmed.search.corpora.torch_threads import each_alone
from untrimmed.search.pruning.threads import cores, share

_GATHERED_AT_A_TIME, _FEWEST = 256, 16  # videos
_READ_TOGETHER, _ROWS_AT_A_TIME = 16, 2**15  # of these, for several queries, and of their rows
_NUMBERS_AT_A_TIME = 2**20  # of several videos: 8 MB in double precision, which a thread keeps

_here = threading.local()

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
    room: dict[str, Tensor] = _here.__dict__
    wide = {}
    for name, tensor in videos.tensors().items():
        if not tensor.is_floating_point():
            continue
        if name not in room or len(room[name]) < tensor.numel():
            room[name] = torch.empty(tensor.numel(), dtype=torch.float64)
        wide[name] = room[name][: tensor.numel()].view(tensor.shape).copy_(tensor)
    return videos.with_tensors(videos.tensors() | wide)
