from dataclasses import dataclass

import torch
from jaxtyping import Float

from tests.refusals import refused
from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, Record, TrainingBatch, VideoBatch
from untrimmed.errors import ConfigError


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
    assert EncodedVideos.cat([EncodedVideos(clips=short.clips), EncodedVideos(clips=long.clips)]).frames is None


@dataclass(frozen=True, kw_only=True)
class Own(Record):
    words: Float[torch.Tensor, "Q W D"]
    weight: Float[torch.Tensor, " Q"] | None = None


def with_words(count: int, length: int) -> EncodedQueries:
    return EncodedQueries(sentence=torch.randn(count, 5)).attach("mine", Own(words=torch.randn(count, length, 3)))


def test_encodings_of_an_attachment_are_selected_joined_and_moved_with_the_others():
    short, long = with_words(2, 3), with_words(1, 4)
    joined = EncodedQueries.cat([short, long])
    assert joined.tensors().keys() == {"sentence", "mine.words"}
    mine = Own.of(joined.attached["mine"])
    assert mine.words.shape == (3, 4, 3)
    assert torch.equal(mine.words[:2, :3], short.attached["mine"].words)
    assert mine.words[:2, 3].abs().sum() == 0
    assert torch.equal(joined.select(slice(2, 3)).attached["mine"].words, long.attached["mine"].words)
    assert joined.to("cpu", torch.float64).attached["mine"].words.dtype == torch.float64


def test_encodings_are_replaced_by_name():
    queries = with_words(2, 3)
    doubled = queries.with_tensors({name: 2 * tensor for name, tensor in queries.tensors().items()})
    assert torch.equal(doubled.sentence, 2 * queries.sentence)
    assert torch.equal(doubled.attached["mine"].words, 2 * queries.attached["mine"].words)


def test_encodings_of_another_model_are_refused():
    with refused(ConfigError, "EncodedQueries", "Own"):
        Own.of(with_words(1, 1))


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
