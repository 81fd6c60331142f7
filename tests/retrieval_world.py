"""A training batch in which all sizes differ: three videos of 1 to 7 frames, four queries of 1 to 3 words.

Vectors of a teacher, which only DL-DKD reads, are 4 wide. Videos have 2, 1 and 5 passages.
"""

import dataclasses

import pytest
import torch

from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch
from untrimmed.models.base import RetrievalModel

SIZES = {"query_dim": 6, "video_dim": 5, "dim": 8, "num_heads": 2, "max_frames": 9, "max_words": 4}
NUM_CLIPS = 32


def make_batch(num_clips: int = NUM_CLIPS) -> TrainingBatch:
    generator = torch.Generator().manual_seed(7)
    frame_mask = torch.arange(7) < torch.tensor([7, 3, 1])[:, None]
    word_mask = torch.arange(3) < torch.tensor([3, 1, 2, 2])[:, None]
    normal = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    queries = QueryBatch(words=normal(4, 3, 6) * word_mask[..., None], mask=word_mask)
    videos = VideoBatch(
        clips=normal(3, num_clips, 5), frames=normal(3, 7, 5) * frame_mask[..., None], frame_mask=frame_mask
    )
    taught = {"teacher": normal(3, 7, 4) * frame_mask[..., None], "teacher_mask": frame_mask}
    queries = dataclasses.replace(queries, teacher=normal(4, 4))
    passage_mask = torch.arange(5) < torch.tensor([2, 1, 5])[:, None]
    said = {"passages": normal(3, 5, 6) * passage_mask[..., None], "passage_mask": passage_mask}
    return TrainingBatch(
        queries=queries,
        videos=dataclasses.replace(videos, **taught, **said),
        video_index=torch.tensor([0, 0, 1, 2]),
    )


def one_of_each(num_clips: int = NUM_CLIPS) -> TrainingBatch:
    """A batch of one video with one frame and one query with one word."""
    batch = make_batch(num_clips)
    queries = QueryBatch(
        words=batch.queries.words[1:2, :1], mask=batch.queries.mask[1:2, :1], teacher=batch.queries.teacher[1:2]
    )
    videos = VideoBatch(
        clips=batch.videos.clips[2:],
        frames=batch.videos.frames[2:, :1],
        frame_mask=batch.videos.frame_mask[2:, :1],
        teacher=batch.videos.teacher[2:, :1],
        teacher_mask=batch.videos.teacher_mask[2:, :1],
        passages=batch.videos.passages[2:],
        passage_mask=batch.videos.passage_mask[2:],
    )
    return TrainingBatch(queries=queries, videos=videos, video_index=torch.tensor([0]))


def fused(model: RetrievalModel, batch: TrainingBatch) -> torch.Tensor:
    """The model's scores of all queries for all videos."""
    with torch.no_grad():
        return model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused


def without_padding(batch: TrainingBatch, video: int) -> TrainingBatch:
    """A batch of one video without padding, with all queries."""
    single = batch.videos.select(slice(video, video + 1))
    length = int(single.frame_mask.sum())
    by_frame = ("frames", "frame_mask", "teacher", "teacher_mask")
    cut = {name: tensor[:, :length] for name, tensor in vars(single).items() if name in by_frame}
    return dataclasses.replace(batch, videos=dataclasses.replace(single, **cut))


def with_noisy_padding(batch: TrainingBatch) -> TrainingBatch:
    """The batch with other numbers in the padding of words and frames."""
    queries, videos = batch.queries, batch.videos
    return dataclasses.replace(
        batch,
        queries=dataclasses.replace(queries, words=torch.where(queries.mask[..., None], queries.words, 9.0)),
        videos=dataclasses.replace(
            videos,
            frames=torch.where(videos.frame_mask[..., None], videos.frames, 9.0),
            passages=torch.where(videos.passage_mask[..., None], videos.passages, 9.0),
        ),
    )


@pytest.fixture
def batch() -> TrainingBatch:
    """The training batch of `make_batch`."""
    return make_batch()
