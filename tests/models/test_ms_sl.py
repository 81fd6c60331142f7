"""MS-SL's clips as moments."""

import pytest
import torch

from tests.retrieval_world import SIZES
from untrimmed.batches import EncodedQueries
from untrimmed.models.ms_sl import MSSLVideos
from untrimmed.models.registry import create_model
from untrimmed.moments.proposals import proposals

FOUR = SIZES | {"num_clips": 4, "dim": 8}


def videos_of_units(units):
    """Encoded videos whose clips are all windows of these units [V, 4, D]."""
    frames = torch.zeros(len(units), 2, units.shape[2])
    return MSSLVideos(clips=proposals(units), frames=frames, frame_mask=torch.ones(len(units), 2, dtype=torch.bool))


def test_clips_are_moments_with_the_spans_of_their_units():
    model = create_model("ms_sl", **FOUR, moments="clips").eval()
    units = torch.eye(8)[:4].repeat(2, 1, 1)
    units[1] = torch.eye(8)[4:]
    videos = videos_of_units(units)
    # the queries are the mean of units 1 and 2 of the second video, and the third unit of the first video
    sentence = torch.stack([videos.clips[1, 5], videos.clips[0, 2]])
    located = model.locate(EncodedQueries(sentence=sentence), videos, torch.tensor([40.0, 8.0]))
    assert located.video_index[:, 0].tolist() == [1, 0]
    assert located.span_s[:, 0].tolist() == [pytest.approx([2.0, 6.0]), pytest.approx([20.0, 30.0])]
    assert located.score[:, 0].tolist() == pytest.approx([1.0, 1.0])


def test_at_most_ten_clips_of_a_video_are_ranked_each_once():
    model = create_model("ms_sl", **FOUR, moments="clips").eval()
    units = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
    queries, videos = EncodedQueries(sentence=units[:2, 0]), videos_of_units(units)
    ranked = model.rank_moments(queries, videos, torch.ones(3))
    assert ranked.count.tolist() == [30, 30]
    first = {
        tuple(span) for span, video in zip(ranked.span_s[0].round(3), ranked.video_index[0], strict=True) if video == 0
    }
    assert first == {
        (start / 4, end / 4) for end in range(1, 5) for start in range(end)
    }  # all ten windows of four units


def test_windows_stay_the_default():
    units = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
    queries = EncodedQueries(sentence=units[0, :1])
    counts = []
    for settings in ({}, {"moments": "windows"}, {"moments": "clips"}):
        windows, similarities = create_model("ms_sl", **FOUR, **settings).window_similarities(
            queries, videos_of_units(units)
        )
        counts.append((len(windows.spans), similarities(slice(None)).shape[2]))
    assert counts == [(320, 320), (320, 320), (10, 10)]
