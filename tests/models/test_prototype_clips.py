import dataclasses

import pytest
import torch

from tests.retrieval_world import SIZES
from untrimmed.losses.draws import Draws
from untrimmed.models.registry import create_model
from untrimmed.presets import load_preset

CARRIERS = ("ms_sl", "gmmformer", "gmmformer_v2")


def build(name, **settings):
    torch.manual_seed(0)
    return create_model(name, **SIZES, init_std=0.3, **settings).eval()


@pytest.mark.parametrize("method", CARRIERS)
def test_clips_are_as_many_prototypes_as_set(method, batch):
    model = build(f"{method}+prototypes", prototypes={"num_prototypes": 5})
    videos = model.encode_videos(batch.videos)
    assert videos.clips.shape == (3, 5, 8)
    scores = model.score(model.encode_queries(batch.queries), videos)
    assert scores["clip"].best.max() < 5


@pytest.mark.parametrize("method", CARRIERS)
def test_attention_and_timeline_are_those_of_the_units(method, batch):
    model = build(f"{method}+prototypes")
    videos = model.encode_videos(batch.videos)
    shares = videos.attached["prototypes"].unit_attention
    assert shares.shape == (3, 32, 30)
    assert torch.allclose(shares.sum(1), torch.ones(3, 30), atol=1e-5)
    units, mask = model.timeline(videos)
    assert units.shape == (3, 32, 8)
    assert mask is None
    moments = model.locate(model.encode_queries(batch.queries), videos, torch.tensor([30.0, 20.0, 10.0]))
    assert len(moments.video_index) == 4


def test_the_matching_loss_matches_queries_to_prototypes(batch):
    model = build("ms_sl+matching+prototypes", prototypes={"num_prototypes": 1})
    two = dataclasses.replace(batch, video_index=torch.tensor([0, 0, 0, 0]))
    terms = model(two, draws=Draws(hard_pool=2))
    assert terms["orthogonal"] == 0  # a single prototype has no other prototype to differ from
    assert 0 < terms["optimal_matching"] < 2


@pytest.mark.parametrize(("dataset", "weight"), [("tvr", 0.01), ("activitynet", 0.3), ("charades", 0.3)])
def test_presets_lay_prototypes_over_a_method(dataset, weight):
    preset = load_preset("gmmformer_v2+prototypes", dataset)
    assert preset.weights["orthogonal"] == weight
    assert preset.model["prototypes"]["iterations"] == 6
    assert preset.reported == {}
