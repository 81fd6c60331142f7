"""A method's own score of some videos in double precision: it does not depend on what is computed beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float32

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.search.blocks import Split
from untrimmed.search.encoded_block import EncodedBlock
from untrimmed.search.threads import cores
from untrimmed.search.torch_threads import each_alone

_GATHERED_AT_A_TIME, _FEWEST = 256, 16  # videos
_NUMBERS_AT_A_TIME = 2**20  # of several videos: 8 MB in double precision, which a thread keeps

_here = threading.local()

Read = Callable[[Split[EncodedBlock]], EncodedVideos]  # videos in half precision, one after the other


def read_whole(split: Split[EncodedBlock]) -> EncodedVideos:
    """Videos with all that was encoded of them."""
    each = [block.fitted(rows) for block, rows in split]
    return each[0].cat(each)


def exact_scores(
    model: RetrievalModel, query: EncodedQueries, split: Split[EncodedBlock], read: Read = read_whole
) -> Float32[np.ndarray, " N"]:
    """The scores of one query by a model in double precision, rounded."""
    query = query.to("cpu", torch.float64)

    @torch.inference_mode()
    def scores_of(some: Split[EncodedBlock]) -> torch.Tensor:
        for block, rows in some:
            block.fetch(rows)
        videos = read(some)
        numbers = sum(tensor[0].numel() for tensor in videos.tensors().values())
        piece, found = max(1, _NUMBERS_AT_A_TIME // numbers), []
        for start in range(0, len(videos), piece):
            few = _in_float64(videos.select(slice(start, start + piece)))
            found.append(model.score(query, few).fused[0].float())
        return torch.cat(found)

    # Several threads help with what is read whole; of a few rows each they would wait for each other's Python.
    threads = cores() if read is read_whole else 1
    step = min(_GATHERED_AT_A_TIME, max(_FEWEST, -(-len(split) // threads)))
    pieces, found = (split.at(slice(start, start + step)) for start in range(0, len(split), step)), []
    while some := [*islice(pieces, cores())]:  # no more at a time, so that other searches find their turn between
        found += each_alone(scores_of, some)
    return torch.cat(found).numpy() if found else np.empty(0, dtype=np.float32)


def _in_float64(videos: EncodedVideos) -> EncodedVideos:
    """In memory of this thread until it asks again: to be given new memory would take longer than the scores.

    For inference mode alone, in which that memory was made.
    """
    room: dict[str, torch.Tensor] = _here.__dict__
    wide = {}
    for name, tensor in videos.tensors().items():
        if not tensor.is_floating_point():
            continue
        if name not in room or len(room[name]) < tensor.numel():
            room[name] = torch.empty(tensor.numel(), dtype=torch.float64)
        wide[name] = room[name][: tensor.numel()].view(tensor.shape).copy_(tensor)
    return videos.with_tensors(videos.tensors() | wide)
