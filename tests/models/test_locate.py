"""Every registered method finds moments in seconds and within the video.

Parts of a corpus give the same moments as all at once.
"""

import dataclasses

import numpy as np
import pytest
import torch

from tests.retrieval_world import SIZES, make_batch, one_of_each, with_noisy_padding
from untrimmed.batches import EncodedVideos
from untrimmed.errors import ConfigError
from untrimmed.models.registry import create_model, list_models
from untrimmed.moments.localise import LocateSettings
from untrimmed.moments.ranked_moments import RankedMoments

DURATION_S = torch.tensor([12.0, 3.0, 40.0])


@pytest.fixture(params=list_models())
def model(request):
    torch.manual_seed(0)
    option = {"window_length": "full"} if request.param == "gmmformer" else {}
    return create_model(request.param, **SIZES, init_std=0.3, **option).eval()


def encoded(model, batch):
    with torch.no_grad():
        return model.encode_queries(batch.queries), model.encode_videos(batch.videos)


def test_moments_are_inside_their_videos_and_sorted_by_score(model):
    located = model.locate(*encoded(model, make_batch()), DURATION_S)
    assert located.video_index.shape[0] == 4
    assert (located.count >= 3).all()  # at least one of each video
    real = located.video_index >= 0
    ends = DURATION_S.numpy()[np.maximum(located.video_index, 0)]
    assert (located.span_s[..., 0] >= 0).all()
    assert (located.span_s[..., 1] <= ends)[real].all()
    for query in range(4):
        assert (np.diff(located.score[query, : located.count[query]]) <= 0).all()
        assert set(located.video_index[query, : located.count[query]]) == {0, 1, 2}


def test_one_query_and_one_video_of_one_frame_work(model):
    located = model.locate(*encoded(model, one_of_each()), torch.tensor([2.0]))
    assert located.count[0] >= 1


def test_videos_ranked_in_parts_give_the_same_list(model):
    queries, videos = encoded(model, make_batch())
    settings = LocateSettings(per_video=4, before_suppression=9)
    whole = model.rank_moments(queries, videos, DURATION_S, settings)
    parts = [
        model.rank_moments(queries, videos.select(slice(v, v + 1)), DURATION_S[v : v + 1], settings).shifted(v)
        for v in range(3)
    ]
    joined = RankedMoments.best(parts, 9)
    assert np.allclose(joined.score, whole.score, atol=1e-5)
    assert joined.score.shape == (4, 9)


def test_values_in_padding_do_not_change_moments(model):
    batch = make_batch()
    first, second = (model.rank_moments(*encoded(model, b), DURATION_S) for b in (batch, with_noisy_padding(batch)))
    assert np.allclose(first.score, second.score, atol=1e-5)


def test_a_large_video_weight_ranks_moments_by_video(model):
    queries, videos = encoded(model, make_batch())
    led = model.locate(queries, videos, DURATION_S, LocateSettings(video_weight=1000.0))
    assert led.video_index[:, 0].tolist() == model.score(queries, videos).fused.argmax(dim=1).tolist()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneVector(EncodedVideos):
    video: torch.Tensor


def test_a_method_with_one_vector_per_video_has_no_moments():
    model = create_model("gmmformer_v2", **SIZES)
    queries, _ = encoded(model, make_batch())
    pooled = OneVector(video=torch.zeros(3, 8))
    with pytest.raises(ConfigError):
        model.locate(queries, pooled, DURATION_S)
