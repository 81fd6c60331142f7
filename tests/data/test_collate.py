import numpy as np
import pytest

from untrimmed.data.collate import CaptionItem, VideoItem, collate_queries, collate_training, collate_videos
from untrimmed.errors import FeatureError


def video(name: str, num_frames: int, **more) -> VideoItem:
    return VideoItem(name, np.ones((2, 3), np.float32), np.full((num_frames, 3), 2, np.float32), **more)


def caption(name: str, num_words: int, **more) -> CaptionItem:
    return CaptionItem(name, np.ones((num_words, 4), np.float32), **more)


def test_training_batches_put_long_videos_first_and_keep_captions_together():
    items = [
        (video("a", 2), [caption("a#0", 3), caption("a#1", 1)]),
        (video("b", 5), [caption("b#0", 2)]),
        (video("c", 2), [caption("c#0", 2)]),
    ]
    made = collate_training(items)
    assert made.video_ids == ["b", "a", "c"]
    assert made.caption_ids == ["b#0", "a#0", "a#1", "c#0"]
    assert made.batch.video_index.tolist() == [0, 1, 1, 2]
    assert made.batch.videos.frames.shape == (3, 5, 3)
    assert made.batch.videos.frame_mask.sum(dim=1).tolist() == [5, 2, 2]
    assert made.batch.videos.frames[1, 2:].abs().sum() == 0
    assert made.batch.queries.mask.sum(dim=1).tolist() == [2, 3, 1, 2]


def test_sorting_by_captions_is_the_other_released_order():
    items = [(video("a", 9), [caption("a#0", 1)]), (video("b", 1), [caption("b#0", 1), caption("b#1", 1)])]
    assert collate_training(items, sort_by="captions").video_ids == ["b", "a"]


def test_queries_go_longest_first_and_videos_keep_their_order():
    made = collate_queries([caption("x", 1), caption("y", 3), caption("z", 3)])
    assert made.caption_ids == ["y", "z", "x"]
    assert collate_videos([video("a", 1), video("b", 4)]).video_ids == ["a", "b"]


def test_teachers_travel_along():
    items = [
        (video("a", 2, teacher=np.ones((2, 6), np.float32)), [caption("a#0", 1, teacher=np.ones(6, np.float32))]),
        (video("b", 1, teacher=np.ones((1, 6), np.float32)), [caption("b#0", 1, teacher=np.ones(6, np.float32))]),
    ]
    batch = collate_training(items).batch
    assert batch.videos.teacher.shape == (2, 2, 6)
    assert batch.videos.teacher_mask.sum().item() == 3
    assert batch.queries.teacher.shape == (2, 6)


def test_one_video_of_one_frame_with_one_caption_of_one_word():
    batch = collate_training([(video("a", 1), [caption("a#0", 1)])]).batch
    assert batch.videos.frames.shape == (1, 1, 3)
    assert batch.queries.words.shape == (1, 1, 4)


def test_items_without_rows_are_refused_by_name():
    with pytest.raises(FeatureError, match="video 'a' has no frame"):
        collate_videos([video("a", 0)])
    with pytest.raises(FeatureError, match="caption 'x' has no word"):
        collate_queries([caption("x", 0)])
