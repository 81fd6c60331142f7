"""Batches of a data set as tensors, in an order that the seed and the epoch decide."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch
from untrimmed.data.dataset import RetrievalDataset, TrainingRows

T = TypeVar("T")


def epoch_batches(num_items: int, batch_size: int, *, seed: int, epoch: int) -> list[Int[np.ndarray, " _"]]:
    """The items (videos or captions) of each batch of an epoch, each once; the last batch may be smaller, as released.

    The order depends on seed and epoch alone, so that an interrupted epoch can be taken up anywhere.
    """
    order = np.random.default_rng([seed, epoch]).permutation(num_items)
    return [order[start : start + batch_size] for start in range(0, num_items, batch_size)]


def training_batch(
    dataset: RetrievalDataset, videos: Int[np.ndarray, " V"], *, sort_by: Literal["frames", "captions"] = "frames"
) -> TrainingBatch:
    """Some videos with all their captions, in the released order."""
    return _batch_of(dataset, dataset.training_rows(videos, sort_by=sort_by))


def caption_training_batch(dataset: RetrievalDataset, captions: Int[np.ndarray, " Q"]) -> TrainingBatch:
    """Some captions, each with a copy of its video, so that captions of one video are negatives of each other.

    Those of the video with most frames come first, ties in the given order, as JSG's event variant was released.
    """
    lengths = dataset.features.frames.lengths[dataset.video_index[captions]]
    captions = captions[np.argsort(-lengths, kind="stable")]
    return _batch_of(dataset, TrainingRows(dataset.video_index[captions], captions, np.arange(len(captions))))


def _batch_of(dataset: RetrievalDataset, rows: TrainingRows) -> TrainingBatch:
    return TrainingBatch(
        queries=query_batch(dataset, rows.captions),
        videos=video_batch(dataset, rows.videos),
        video_index=torch.from_numpy(rows.video_index),
    )


def query_batch(dataset: RetrievalDataset, captions: Int[np.ndarray, " Q"]) -> QueryBatch:
    """Some captions in the given order."""
    words, mask = dataset.features.words(captions)
    teacher = dataset.features.teacher
    return QueryBatch(
        words=torch.from_numpy(words),
        mask=torch.from_numpy(mask),
        teacher=None if teacher is None else _tensor(teacher.sentences[captions]),
    )


def video_batch(dataset: RetrievalDataset, videos: Int[np.ndarray, " V"]) -> VideoBatch:
    """Some videos in the given order."""
    clips, frames, mask = dataset.features.videos(videos)
    taught = None if dataset.features.teacher is None else dataset.features.teacher.frames.padded(videos)
    return VideoBatch(
        clips=torch.from_numpy(clips),
        frames=torch.from_numpy(frames),
        frame_mask=torch.from_numpy(mask),
        teacher=None if taught is None else torch.from_numpy(taught.rows),
        teacher_mask=None if taught is None else torch.from_numpy(taught.mask),
    )


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def prefetched(read: Callable[[Int[np.ndarray, " _"]], T], rows: Iterable[Int[np.ndarray, " _"]]) -> Iterator[T]:
    """`read` of each entry, the next one read by a thread while the present one is in use."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        waiting = None
        for entry in rows:
            following = reader.submit(read, entry)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
