"""A method's own score of some videos in double precision: it does not depend on what is computed beside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Float32, Int

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.models.base import RetrievalModel
from untrimmed.search.blocks import Split
from untrimmed.search.encoded_block import EncodedBlock
from untrimmed.search.threads import cores
from untrimmed.search.torch_threads import each_alone

_GATHERED_AT_A_TIME = 256  # videos
_NUMBERS_AT_A_TIME = 2**20  # of several videos: few enough for the processor's cache


@torch.inference_mode()
def exact_scores(model: RetrievalModel, query: EncodedQueries, split: Split[EncodedBlock]) -> Float32[np.ndarray, " N"]:
    """The scores of one query by a model in double precision, rounded."""
    query, found = query.to("cpu", torch.float64), []
    for some in _pieces(split):
        for block, rows in some:
            block.fetch(rows)
        each = [block.fitted(rows) for block, rows in some]
        videos = each[0].cat(each)
        numbers = sum(tensor[0].numel() for tensor in videos.tensors().values())
        piece = max(1, min(_NUMBERS_AT_A_TIME // numbers, -(-len(videos) // cores())))
        few = (videos.select(slice(start, start + piece)) for start in range(0, len(videos), piece))
        found += each_alone(partial(_score, model, query), few)
    return torch.cat(found).numpy() if found else np.empty(0, dtype=np.float32)


@torch.inference_mode()
def _score(model: RetrievalModel, query: EncodedQueries, videos: EncodedVideos) -> torch.Tensor:
    return model.score(query, videos.to("cpu", torch.float64)).fused[0].float()


def _pieces(split: Split[EncodedBlock]) -> Iterator[Split[EncodedBlock]]:
    """A few videos at a time, of as many blocks as they stand in."""
    piece: list[tuple[EncodedBlock, Int[np.ndarray, " K"]]] = []
    room = _GATHERED_AT_A_TIME
    for block, rows in split:
        while len(rows):
            piece.append((block, rows[:room]))
            rows, room = rows[room:], room - len(piece[-1][1])
            if not room:
                yield piece
                piece, room = [], _GATHERED_AT_A_TIME
    if piece:
        yield piece
