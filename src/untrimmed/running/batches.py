"""Make batches of tensors from a data set."""

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
    """Return the row numbers (of videos or captions) of each batch of an epoch, in random order.

    As in the authors' programs, the last batch may be smaller. The order depends only on `seed` and `epoch`, so an
    interrupted epoch can continue after any batch.
    """
    order = np.random.default_rng([seed, epoch]).permutation(num_items)
    return [order[start : start + batch_size] for start in range(0, num_items, batch_size)]


def training_batch(
    dataset: RetrievalDataset, videos: Int[np.ndarray, " V"], *, sort_by: Literal["frames", "captions"] = "frames"
) -> TrainingBatch:
    """Return videos with all their captions as a batch, in the order of `RetrievalDataset.training_rows`."""
    return _batch_of(dataset, dataset.training_rows(videos, sort_by=sort_by))


def caption_training_batch(dataset: RetrievalDataset, captions: Int[np.ndarray, " Q"]) -> TrainingBatch:
    """Return a batch of captions with their videos.

    Each caption has its own copy of its video, so other captions of the same video are negatives. As in JSG's released
    event variant, captions are sorted by the number of frames of their video, in descending order.
    """
    lengths = dataset.features.frames.lengths[dataset.video_index[captions]]
    captions = captions[np.argsort(-lengths, kind="stable")]
    return _batch_of(dataset, TrainingRows(dataset.video_index[captions], captions, np.arange(len(captions))))


def _batch_of(dataset: RetrievalDataset, rows: TrainingRows) -> TrainingBatch:
    captions = [dataset.annotations[row] for row in rows.captions]
    return TrainingBatch(
        queries=query_batch(dataset, rows.captions),
        videos=video_batch(dataset, rows.videos),
        video_index=torch.from_numpy(rows.video_index),
        video_ids=tuple(dataset.video_ids[row] for row in rows.videos),
        caption_ids=tuple(caption.caption_id for caption in captions),
        spans_s=_rows_unless_unknown(dataset.main_moments_s, rows.captions),
        durations_s=_rows_unless_unknown(dataset.durations_s, rows.videos),
        moments=tuple(caption.moments for caption in captions),
    )


def _rows_unless_unknown(values: Float[np.ndarray, "N ..."], rows: Int[np.ndarray, " _"]) -> torch.Tensor | None:
    return None if np.isnan(values).all() else torch.from_numpy(np.float32(values[rows]))


def query_batch(dataset: RetrievalDataset, captions: Int[np.ndarray, " Q"]) -> QueryBatch:
    """Return the captions with the row numbers `captions` as a batch, in this order."""
    words, mask = dataset.features.words(captions)
    teacher = dataset.features.teacher
    return QueryBatch(
        words=torch.from_numpy(words),
        mask=torch.from_numpy(mask),
        teacher=None if teacher is None else torch.from_numpy(np.float32(teacher.sentences[captions])),
    )


def video_batch(dataset: RetrievalDataset, videos: Int[np.ndarray, " V"]) -> VideoBatch:
    """Return the videos with the row numbers `videos` as a batch, in this order."""
    clips, frames, mask = dataset.features.videos(videos)
    teacher = None if dataset.features.teacher is None else dataset.features.teacher.frames.padded(videos)
    passages = None if dataset.features.passages is None else dataset.features.passages.padded(videos)
    return VideoBatch(
        clips=torch.from_numpy(clips),
        frames=torch.from_numpy(frames),
        frame_mask=torch.from_numpy(mask),
        teacher=None if teacher is None else torch.from_numpy(teacher.rows),
        teacher_mask=None if teacher is None else torch.from_numpy(teacher.mask),
        passages=None if passages is None else torch.from_numpy(passages.rows),
        passage_mask=None if passages is None else torch.from_numpy(passages.mask),
    )


def query_batch_of(words: Sequence[Any], sizes: ModelConfig) -> QueryBatch:
    """Return a batch of sentences from their raw word vectors, prepared in the same way as in a data set.

    Raises: FeatureError if the vectors do not fit the model.
    """
    tables = [_finite(table, place, "words", sizes.query_dim) for place, table in enumerate(words)]
    rows, mask = _padded([prepare_words(table, max_words=sizes.max_words) for table in tables], "words")
    return QueryBatch(words=torch.from_numpy(rows), mask=torch.from_numpy(mask))


def video_batch_of(frames: Sequence[Any], sizes: ModelConfig, *, fixed_frames: bool = False) -> VideoBatch:
    """Return a batch of videos from their raw frame vectors, prepared in the same way as in a data set.

    Raises: FeatureError if the vectors do not fit the model.
    """
    tables = [_finite(table, place, "frames", sizes.video_dim) for place, table in enumerate(frames)]
    prepared = [
        prepare_video(table, num_clips=sizes.num_clips, max_frames=sizes.max_frames, fixed_frames=fixed_frames)
        for table in tables
    ]
    rows, mask = _padded([sampled for _, sampled in prepared], "frames")
    return VideoBatch(
        clips=torch.from_numpy(np.stack([clips for clips, _ in prepared])),
        frames=torch.from_numpy(rows),
        frame_mask=torch.from_numpy(mask),
    )


def _finite(table: Any, place: int, what: str, width: int) -> Float[np.ndarray, "_ _"]:
    values = np.asarray(to_array(table, f"{what}[{place}]"))
    if values.ndim != 2 or values.shape[1] != width or not len(values) or values.dtype.kind not in "fiu":
        actual = f"shape {values.shape} and dtype {values.dtype}"
        raise FeatureError(f"{what}[{place}] has {actual}, expected at least one row of {width} numbers; fix the table")
    if not np.isfinite(values).all():
        raise FeatureError(f"{what}[{place}] contains numbers that are not finite; extract it again")
    return values.astype(np.float32)


def _padded(tables: list[np.ndarray], what: str) -> PaddedRows:
    if not tables:
        raise FeatureError(f"{what}: no table, expected at least one; give a table")
    offsets = np.concatenate([[0], np.cumsum([len(table) for table in tables])])
    return RaggedRows(np.concatenate(tables), offsets).padded(np.arange(len(tables)))


def prefetched(read: Callable[[Int[np.ndarray, " _"]], T], rows: Iterable[Int[np.ndarray, " _"]]) -> Iterator[T]:
    """Yield `read(entry)` for each entry of `rows`. A thread reads the next entry while the caller uses this one."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        current = None
        for entry in rows:
            following = reader.submit(read, entry)
            if current is not None:
                yield current.result()
            current = following
        if current is not None:
            yield current.result()


def query_batches(dataset: RetrievalDataset, size: int, order: QueryOrder = "length") -> list[Int[np.ndarray, " _"]]:
    """Return the row numbers of each batch of captions.

    With `order="length"`, the captions of the whole split are sorted by length, to reduce padding. With
    `order="released"`, batches are in file order, and the captions within a batch are sorted by length, longest first.
    """
    lengths = dataset.features.words_packed.lengths
    if order == "length":
        return in_batches(np.argsort(lengths, kind="stable"), size)
    return [rows[np.argsort(-lengths[rows], kind="stable")] for rows in in_batches(np.arange(len(lengths)), size)]


def in_batches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Divide an array into consecutive parts of at most `size` rows."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
