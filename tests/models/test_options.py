"""If paper and release differ, or a table of the paper varies a setting, both variants can be selected."""

import dataclasses
import zlib

import pytest
import torch

from tests.retrieval_world import SIZES, make_batch, with_noisy_padding, without_padding
from untrimmed.losses.draws import Draws
from untrimmed.models.registry import create_model

V2 = [
    {"norm": "pre"},
    {"window": "paper"},
    {"constraint": "bartlett"},
    {"constraint": "boxcar"},
    {"weight_generator": "paper"},
    {"aggregation": "mean"},
    {"aggregation": "weighted"},
    {"aggregation": "dynamic"},
    {"fusion_token": "mean"},
    {"fusion_token": "mean", "aggregation": "dynamic"},
    {"second_branch": "video"},
    {"gaussian_widths": (1.0,)},
    {"gaussian_widths": (float("inf"), 5.0)},
]
V1 = [
    {"norm": "pre", "ffn_ratio": 4, "output_map": False},
    {"window": "paper"},
    {"window_length": "full"},
    {"constraint": "boxcar"},
    {"second_branch": "frame"},
    {"gaussian_widths": (float("inf"),)},
    {"num_blocks": 1},
]


@pytest.mark.parametrize(
    ("method", "option"),
    [("gmmformer_v2", o) for o in V2] + [("gmmformer", o) for o in V1] + [("ms_sl", {"norm": "pre"})],
)
def test_every_option_changes_the_scores_and_still_trains(method, option, batch):
    scores = []
    for settings in ({}, option):
        model = create_model(method, **SIZES, **settings)
        # The same seed does not give two forms equal weights for shared parameters, so weights are drawn by name.
        for name, parameter in model.named_parameters():
            parameter.data.normal_(generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
        scores.append(model.eval().score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused)
        model.train()
        sum(model(batch, draws=Draws(hard_pool=2)).values()).backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert not torch.allclose(scores[0], scores[1], atol=1e-4)


def test_the_mean_token_depends_neither_on_the_batch_nor_on_values_in_padding(batch):
    torch.manual_seed(0)
    model = create_model("gmmformer_v2", **SIZES, init_std=0.3, fusion_token="mean").eval()
    whole = model.encode_videos(with_noisy_padding(batch).videos).frames
    for v, length in enumerate((7, 3, 1)):
        alone = model.encode_videos(without_padding(batch, v).videos).frames[0]
        assert torch.allclose(alone, whole[v, :length], atol=1e-6)


@pytest.mark.parametrize(
    ("method", "option", "term"),
    [
        ("gmmformer", {"triplet": "paper"}, "clip_triplet"),
        ("gmmformer_v2", {"triplet": "paper"}, "frame_triplet"),
        ("gmmformer", {"nce": "paper"}, "clip_nce"),
        ("gmmformer_v2", {"nce": "paper"}, "frame_nce"),
        ("gmmformer", {"losses": {"query_diversity_v1": {"reduction": "paper"}}}, "query_diversity_v1"),
        ("gmmformer_v2", {"losses": {"query_diversity": {"reduction": "paper"}}}, "query_diversity"),
        ("gmmformer_v2", {"losses": {"optimal_matching": {"reduction": "paper"}}}, "optimal_matching"),
    ],
)
def test_an_option_of_a_loss_changes_only_that_loss(method, option, term, batch):
    three = {"words": batch.queries.words[[0, 0, 1, 2, 3]] + torch.arange(5.0)[:, None, None]}
    queries = dataclasses.replace(batch.queries, **three, mask=batch.queries.mask[[0, 0, 1, 2, 3]], teacher=None)
    # three queries of one video and two of another, so that means over pairs and over videos differ
    batch = dataclasses.replace(batch, queries=queries, video_index=torch.tensor([0, 0, 0, 1, 1]))
    terms = []
    for settings in ({}, option):
        torch.manual_seed(0)
        model = create_model(method, **SIZES, init_std=0.3, margin=1.0, **settings).eval()
        terms.append(model(batch, draws=Draws(hard_pool=1)))
    released, other = terms
    assert released[term].item() != pytest.approx(other[term].item(), rel=1e-4)
    for name in released.keys() & other.keys():
        if not name.endswith(term.removeprefix("clip").removeprefix("frame")):
            assert released[name].item() == pytest.approx(other[name].item(), rel=1e-6), name


def test_the_released_zero_floor_lifts_only_videos_with_padding():
    batch = make_batch()
    settings = SIZES | {"max_frames": 7}  # the first video is full, the others are padded
    torch.manual_seed(0)
    zero = create_model("gmmformer_v2", **settings, init_std=0.3).eval()
    excluded = create_model("gmmformer_v2", **settings, padding_scores="excluded").eval()
    excluded.load_state_dict(zero.state_dict())
    queries = zero.encode_queries(batch.queries)
    frames = zero.encode_videos(batch.videos).frames
    away = torch.linalg.lstsq(frames[0], -torch.ones(7, 1)).solution[:, 0]  # from every frame of the full video
    opposite = dataclasses.replace(queries, sentence=torch.stack([-frames[2, 0], away]))
    floored = zero.score(opposite, zero.encode_videos(batch.videos))["frame"].value
    free = excluded.score(opposite, excluded.encode_videos(batch.videos))["frame"].value
    assert free[0, 2].item() == pytest.approx(-1)
    assert floored[0, 2].item() == 0
    assert free[1, 0] < -0.01
    assert torch.equal(floored[:, 0], free[:, 0])


def test_the_released_window_of_gmmformer_depends_on_the_longest_video_of_the_batch(batch):
    model = create_model("gmmformer", **SIZES, init_std=0.5).eval()
    together = model.encode_videos(batch.videos).video[1]
    short = dataclasses.replace(
        batch.videos.select(slice(1, 2)),
        frames=batch.videos.frames[1:2, :3],
        frame_mask=batch.videos.frame_mask[1:2, :3],
    )
    assert not torch.allclose(model.encode_videos(short).video[0], together, atol=1e-4)
