"""Items of different length -> padded batches, in the released order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch
from untrimmed.errors import FeatureError

SortBy = Literal["frames", "captions"]


@dataclass(frozen=True)
class CaptionItem:
    """One query, its word rows prepared."""

    caption_id: str
    words: Float[np.ndarray, "W E"]
    teacher: Float[np.ndarray, " S"] | None = None


@dataclass(frozen=True)
class VideoItem:
    """One video, its clip and frame rows prepared."""

    video_id: str
    clips: Float[np.ndarray, "L C"]
    frames: Float[np.ndarray, "T C"]
    teacher: Float[np.ndarray, "N S"] | None = None


@dataclass(frozen=True)
class CollatedTraining:
    """A training batch and what its rows are."""

    batch: TrainingBatch
    video_ids: list[str]
    caption_ids: list[str]


@dataclass(frozen=True)
class CollatedQueries:
    """A query batch and what its rows are."""

    batch: QueryBatch
    caption_ids: list[str]


@dataclass(frozen=True)
class CollatedVideos:
    """A video batch and what its rows are."""

    batch: VideoBatch
    video_ids: list[str]


def collate_training(
    items: Sequence[tuple[VideoItem, Sequence[CaptionItem]]], *, sort_by: SortBy = "frames"
) -> CollatedTraining:
    """Videos with all their captions, most frames first (DL-DKD: most captions first), ties in the given order.

    The captions of a video are consecutive.
    """
    key = {"frames": lambda item: -len(item[0].frames), "captions": lambda item: -len(item[1])}[sort_by]
    ordered = sorted(items, key=key)
    captions = [caption for _, own in ordered for caption in own]
    videos = [video for video, _ in ordered]
    index = np.repeat(np.arange(len(ordered)), [len(own) for _, own in ordered])
    batch = TrainingBatch(
        queries=_query_batch(captions), videos=_video_batch(videos), video_index=torch.from_numpy(index)
    )
    return CollatedTraining(batch, [v.video_id for v in videos], [c.caption_id for c in captions])


def collate_queries(captions: Sequence[CaptionItem]) -> CollatedQueries:
    """Captions of an evaluation, most words first, ties in the given order; `caption_ids` tells the new order."""
    ordered = sorted(captions, key=lambda caption: -len(caption.words))
    return CollatedQueries(_query_batch(ordered), [c.caption_id for c in ordered])


def collate_videos(videos: Sequence[VideoItem]) -> CollatedVideos:
    """Videos of an evaluation in the given order."""
    return CollatedVideos(_video_batch(videos), [v.video_id for v in videos])


def _query_batch(captions: Sequence[CaptionItem]) -> QueryBatch:
    for caption in captions:
        if len(caption.words) == 0:
            raise FeatureError(f"caption {caption.caption_id!r} has no word features; remove it or extract them")
    words, mask = pad([caption.words for caption in captions])
    teachers = [caption.teacher for caption in captions if caption.teacher is not None]
    teacher = torch.from_numpy(np.stack(teachers)).float() if teachers else None
    return QueryBatch(words=words, mask=mask, teacher=teacher)


def _video_batch(videos: Sequence[VideoItem]) -> VideoBatch:
    for video in videos:
        if len(video.frames) == 0:
            raise FeatureError(f"video {video.video_id!r} has no frame features; remove it or extract them")
    frames, mask = pad([video.frames for video in videos])
    clips = torch.from_numpy(np.stack([video.clips for video in videos])).float()
    teachers = [video.teacher for video in videos if video.teacher is not None]
    teacher, teacher_mask = pad(teachers) if teachers else (None, None)
    return VideoBatch(clips=clips, frames=frames, frame_mask=mask, teacher=teacher, teacher_mask=teacher_mask)


def pad(rows: Sequence[Float[np.ndarray, "_ D"]]) -> tuple[Float[Tensor, "N T D"], Bool[Tensor, "N T"]]:
    """Arrays padded with zero rows to the longest, float32, and the mask of real rows."""
    lengths = np.array([len(r) for r in rows])
    padded = np.zeros((len(rows), lengths.max(), rows[0].shape[1]), dtype=np.float32)
    for i, r in enumerate(rows):
        padded[i, : len(r)] = r
    return torch.from_numpy(padded), torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
