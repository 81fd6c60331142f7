import torch

from untrimmed.batches import EncodedVideos, QueryBatch, TrainingBatch, VideoBatch


def videos(count: int, length: int) -> EncodedVideos:
    return EncodedVideos(
        clips=torch.randn(count, 2, 5),
        frames=torch.randn(count, length, 5),
        frame_mask=torch.ones(count, length, dtype=torch.bool),
    )


def test_joining_pads_shorter_videos_and_masks_the_padding():
    short, long = videos(2, 3), videos(1, 4)
    joined = EncodedVideos.cat([short, long])
    assert len(joined) == 3
    assert joined.frame_mask.tolist() == [[True] * 3 + [False], [True] * 3 + [False], [True] * 4]
    assert torch.equal(joined.frames[:2, :3], short.frames)
    assert joined.frames[:2, 3].abs().sum() == 0
    assert joined.video is None


def test_selected_rows_keep_their_order():
    all_videos = videos(4, 3)
    chosen = all_videos.select(torch.tensor([2, 0]))
    assert torch.equal(chosen.clips, all_videos.clips[[2, 0]])
    assert len(all_videos.select(slice(1, 3))) == 2


def test_moving_changes_the_type_of_numbers_but_not_of_masks():
    moved = videos(1, 2).to("cpu", torch.float64)
    assert moved.clips.dtype == torch.float64
    assert moved.frame_mask.dtype == torch.bool


def test_a_training_batch_moves_as_a_whole():
    mask = torch.ones(1, 2, dtype=torch.bool)
    batch = TrainingBatch(
        queries=QueryBatch(words=torch.randn(1, 2, 3), mask=mask),
        videos=VideoBatch(clips=torch.randn(1, 2, 4), frames=torch.randn(1, 2, 4), frame_mask=mask),
        video_index=torch.tensor([0]),
    )
    moved = batch.to("meta")
    assert {moved.queries.words.device.type, moved.videos.frames.device.type, moved.video_index.device.type} == {"meta"}
