"""HLFormer, and its partial order loss on other methods."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.refusals import require_named
from tests.retrieval_world import SIZES, make_batch
from untrimmed.losses.draws import Draws
from untrimmed.models.partial_order import PartialOrder
from untrimmed.models.registry import create_model, list_compositions
from untrimmed.models.released import export_released, import_released

CASES = Path(__file__).parents[1] / "parity" / "cases" / "hlformer"


def build(name="hlformer", **settings):
    torch.manual_seed(0)
    return create_model(name, **SIZES, init_std=0.3, **settings)


def test_an_authors_checkpoint_names_the_curvature_of_the_manifold_forty_one_times():
    recorded = json.loads((CASES / "released-parameters.json").read_text())
    model, other = build(), create_model("hlformer", **SIZES)
    released = export_released(model.released_names(), model.state_dict())
    constants = dict.fromkeys(["manifold.k", *recorded["state_dict_aliases_of_manifold_k"]], torch.tensor(1.0))
    assert len(constants) == 41
    import_released(other, other.released_names(), released | constants)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


def test_scalars_out_of_range_are_clamped_in_place_only_in_training(batch):
    model = build()
    loss, scale = model.attachments["partial_order"], model.clip_block.layers.second.attention.log_scale
    with torch.no_grad():
        scale.fill_(0.4)
        loss.log_curvature.fill_(-9.0)
        loss.log_text_scale.fill_(0.2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    terms = model.eval()(batch, draws=Draws(hard_pool=1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.train()(batch, draws=Draws(hard_pool=1))
    assert (scale == 0).all()
    assert loss.log_text_scale.item() == 0
    assert loss.log_curvature.exp().item() == pytest.approx(0.1)
    again = model.eval()(batch, draws=Draws(hard_pool=1))
    assert all(torch.allclose(again[name], terms[name]) for name in terms)


def test_the_mean_of_all_layers_fuses_euclidean_and_lorentz_layers(batch):
    model = build(gaussian_widths=(2.0,), lorentz_widths=(float("inf"), 4.0)).eval()
    seen = {}
    model.clip_block.aggregation.register_forward_pre_hook(
        lambda _, inputs: seen.update(token=inputs[3], rows=inputs[0])
    )
    model.encode_videos(batch.videos)
    assert seen["token"] is None
    assert seen["rows"].shape == (3, 3, 32, 8)
    learned = build(fusion_token="learned")
    assert learned.token is not None


def test_the_partial_order_loss_fits_methods_that_keep_frames_and_no_others():
    pairs = {name: why for name, why in list_compositions().items() if name.endswith("+partial_order")}
    with_clips, with_frames = {"ms_sl", "gmmformer", "gmmformer_v2"}, {"dl_dkd", "clip4clip", "jsg"}
    for method in with_clips | with_frames:
        assert not pairs[f"{method}+partial_order"]
        loss = build(f"{method}+partial_order").attachments["partial_order"]
        assert isinstance(loss, PartialOrder)
        assert (loss.clip_pooling is not None) == (method in with_clips)
    require_named(pairs["proto+partial_order"], "partial_order", "proto")


def test_for_a_method_without_clips_the_video_vector_pools_frames_only(batch):
    model = build("dl_dkd+partial_order").eval()
    loss = model.attachments["partial_order"]
    videos, queries = model.encode_videos(batch.videos), model.encode_queries(batch.queries)
    moved = dataclasses.replace(videos, frames=videos.frames + torch.randn(videos.frames.shape))
    assert not torch.allclose(loss.hierarchy(queries, videos).video, loss.hierarchy(queries, moved).video)


def test_gmmformers_pooled_frame_vector_is_used_by_the_loss(batch):
    model = build("gmmformer+partial_order")
    loss = model.attachments["partial_order"]
    assert isinstance(loss, PartialOrder)
    assert loss.frame_pooling is None
    videos, queries = model.encode_videos(batch.videos), model.encode_queries(batch.queries)
    assert videos.frames is None
    moved = dataclasses.replace(videos, video=videos.video + 1)
    assert not torch.allclose(loss.hierarchy(queries, videos).video, loss.hierarchy(queries, moved).video)


def test_the_loss_does_not_depend_on_the_padded_length():
    model, batch = build("gmmformer_v2+partial_order"), make_batch()
    loss = model.attachments["partial_order"].eval()
    model.eval()
    videos, queries = model.encode_videos(batch.videos), model.encode_queries(batch.queries)
    cut = dataclasses.replace(videos, frames=videos.frames[:, :3], frame_mask=videos.frame_mask[:, :3])
    whole, part = loss.hierarchy(queries, videos).video, loss.hierarchy(queries, cut).video
    assert torch.allclose(part[1:], whole[1:])
