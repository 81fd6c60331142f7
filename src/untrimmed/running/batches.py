"""Batches of a data set as tensors, in an order that the seed and the epoch decide."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int

from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch
from untrimmed.data.dataset import RetrievalDataset, TrainingRows
from untrimmed.data.packed import PaddedRows, RaggedRows
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.data.sources import to_array
from untrimmed.errors import FeatureError
from untrimmed.models.settings import ModelConfig

T = TypeVar("T")
QueryOrder = Literal["length", "released"]


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
        teacher=None if teacher is None else torch.from_numpy(np.float32(teacher.sentences[captions])),
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


def query_batch_of(words: Sequence[Any], sizes: ModelConfig) -> QueryBatch:
    """Prepare sentences given by raw word vectors as those of a data set; raises FeatureError for unfitting tables."""
    tables = [_finite(table, place, "words", sizes.query_dim) for place, table in enumerate(words)]
    rows, mask = _padded([prepare_words(table, max_words=sizes.max_words) for table in tables], "words")
    return QueryBatch(words=torch.from_numpy(rows), mask=torch.from_numpy(mask))


def video_batch_of(frames: Sequence[Any], sizes: ModelConfig, *, fixed_frames: bool = False) -> VideoBatch:
    """Prepare videos given by raw frame vectors as those of a data set; raises FeatureError as `query_batch_of`."""
    tables = [_finite(table, place, "frames", sizes.video_dim) for place, table in enumerate(frames)]
    prepared = [
        prepare_video(table, num_clips=sizes.num_clips, max_frames=sizes.max_frames, fixed_frames=fixed_frames)
        for table in tables
    ]
    rows, mask = _padded([own for _, own in prepared], "frames")
    return VideoBatch(
        clips=torch.from_numpy(np.stack([clips for clips, _ in prepared])),
        frames=torch.from_numpy(rows),
        frame_mask=torch.from_numpy(mask),
    )


def _finite(table: Any, place: int, what: str, width: int) -> Float[np.ndarray, "_ _"]:
    values = np.asarray(to_array(table, f"{what}[{place}]"))
    if values.ndim != 2 or values.shape[1] != width or not len(values) or values.dtype.kind not in "fiu":
        found = f"shape {values.shape} and numbers {values.dtype}"
        raise FeatureError(f"{what}[{place}] has {found}, wanted one row or more of {width} numbers; give such a table")
    if not np.isfinite(values).all():
        raise FeatureError(f"{what}[{place}] holds numbers that are not finite; extract it again")
    return values.astype(np.float32)


def _padded(tables: list[np.ndarray], what: str) -> PaddedRows:
    if not tables:
        raise FeatureError(f"{what}: no table; give one or more")
    offsets = np.concatenate([[0], np.cumsum([len(table) for table in tables])])
    return RaggedRows(np.concatenate(tables), offsets).padded(np.arange(len(tables)))


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


def query_batches(dataset: RetrievalDataset, size: int, order: QueryOrder = "length") -> list[Int[np.ndarray, " _"]]:
    """The captions of each batch: by length over the split, so that little is padded, or as the releases take them.

    Those go through the file and put the longest caption of each batch first, ties in file order.
    """
    lengths = dataset.features.words_packed.lengths
    if order == "length":
        return in_batches(np.argsort(lengths, kind="stable"), size)
    return [rows[np.argsort(-lengths[rows], kind="stable")] for rows in in_batches(np.arange(len(lengths)), size)]


def in_batches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive groups of at most `size`."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
