"""JSG's special features: its variants, its sampling, its gradients, and its ablations."""

import dataclasses
import json
import zlib
from pathlib import Path

import pytest
import torch

from tests.refusals import refused
from tests.retrieval_world import SIZES, fused, make_batch, one_of_each
from untrimmed.errors import FeatureError
from untrimmed.losses.draws import Draws
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.jsg import JSG
from untrimmed.models.registry import create_model
from untrimmed.models.released import export_released, import_released
from untrimmed.moments.localise import LocateSettings

LARGE = SIZES | {"max_frames": 40, "num_centers": 5, "num_widths": 4}  # enough rows for the convolution
OPTIONS = [
    {"proposals": "sliding"},
    {"proposals": "sliding", "sliding_step": 5},
    {"pooling": "mean"},
    {"pooling": "density"},
    {"glance_input": "frames"},
    {"glance_input": "clips"},
    {"shared_encoder": False},
    {"centers": "paper"},
    {"frame_sampling": "padded"},
    {"pool_size": 2, "pool_stride": 2},
]
OPTIONS_OF_LOSSES = [
    {"side_negatives": "paper"},
    {"nce": "per_direction"},
    {"nce": "paper"},
    {"variant": "video"},
]


def build(**options) -> JSG:
    torch.manual_seed(0)
    model = create_model("jsg", **LARGE, **options)
    # The same seed does not give two forms equal weights for shared parameters, so weights are drawn by name.
    for name, parameter in model.named_parameters():
        parameter.data.normal_(std=0.5, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    return model.eval()


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_network_changes_the_scores_and_still_trains(option, batch):
    model = build(**option)
    assert not torch.allclose(fused(model, batch), fused(build(), batch), atol=1e-4)
    model.train()
    sum(model(batch, draws=Draws(hard_pool=2)).values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("option", OPTIONS_OF_LOSSES)
def test_every_option_of_the_losses_changes_them(option, batch):
    totals = [sum(build(**o)(batch, draws=Draws(hard_pool=1)).values()).item() for o in ({}, option)]
    assert abs(totals[0] - totals[1]) > 1e-5


def test_the_papers_nce_also_applies_to_the_glance_of_the_video_variant(batch):
    terms = [build(variant="video", nce=form)(batch, draws=Draws(hard_pool=1)) for form in ("released", "paper")]
    changed = {name for name in terms[0] if not torch.allclose(terms[0][name], terms[1][name], atol=1e-6)}
    assert changed == {"glance_nce", "attention_nce", "gaze_nce"}


@pytest.mark.parametrize(
    "option", [{}, {"variant": "video"}, {"proposals": "sliding", "gaze_proposals": "centered"}, *OPTIONS]
)
def test_a_batch_of_one_query_and_one_video_works(option):
    model, single = build(**option), one_of_each()
    assert fused(model, single).shape == (1, 1)
    terms = model.train()(single, draws=Draws())
    assert all(term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_short_video_is_stretched_like_the_released_segment_means():
    batch = make_batch()
    frames, mask = build()._sampled(batch.videos)
    assert frames.shape == (3, 40, 5)
    assert mask.all()
    # bounds round(i / 40 * 3), at most 2, ties to even: 1.5 (i = 20) rounds to 2
    index = [min(round(i / 40 * 3), 2) for i in range(40)]
    assert torch.equal(frames[1], batch.videos.frames[1, index])
    assert torch.equal(frames[2], batch.videos.frames[2, :1].expand(40, -1))


def test_a_video_of_full_length_is_unchanged():
    batch = make_batch()
    model = create_model("jsg", **(SIZES | {"max_frames": 7}))
    assert torch.equal(model._sampled(batch.videos)[0][0], batch.videos.frames[0])


def test_more_frames_than_positions_are_refused():
    model = create_model("jsg", **(SIZES | {"max_frames": 6}))
    with refused(FeatureError, "6"):
        model.encode_videos(make_batch().videos)


def test_an_encoding_depends_on_the_batch_only_with_padded_sampling(batch):
    alone = batch.videos.select(slice(2, 3))
    cut = dataclasses.replace(alone, frames=alone.frames[:, :1], frame_mask=alone.frame_mask[:, :1])
    for sampling, same in (("fixed", True), ("padded", False)):
        model = build(frame_sampling=sampling)
        together, by_itself = model.encode_videos(batch.videos), model.encode_videos(cut)
        assert (together.frames.shape[1] == by_itself.frames.shape[1]) is same
        assert not same or torch.allclose(together.clips[2:], by_itself.clips, atol=1e-6)


def test_the_gaze_of_the_video_variant_trains_the_video_side_only(batch):
    for variant, query_learns in (("event", True), ("video", False)):
        model = build(variant=variant).train()
        terms = model(batch, draws=Draws(hard_pool=1))
        (terms["gaze_triplet"] + terms["gaze_nce"] + terms["intra_whole"]).backward()
        assert (model.query_tower.pooling.score.weight.grad is not None) is query_learns
        assert model.frame_embedding.input.linear.weight.grad.abs().sum() > 0


def test_the_gaze_looks_with_several_widths_at_the_focus_of_each_query(batch):
    model = build(num_focus_widths=3)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    own_best = torch.tensor([0, 7, 13, 19])  # four widths a centre: centres 0, 1, 3 and 4
    gaze = model.gaze(queries.sentence, videos, own_best, batch.video_index)
    assert gaze.focus.tolist() == pytest.approx([0.025, 0.2625, 0.7375, 0.975])
    assert gaze.widths.tolist() == pytest.approx([0.05, 0.525, 1.0])
    assert gaze.proposals.shape == (4, 3, 8)
    # a query's own column is its own video at its own focus
    own = torch.einsum("qd,qmd->qm", queries.sentence, gaze.proposals).max(dim=1).values
    assert torch.allclose(gaze.dot.diagonal(), own, atol=1e-5)


def test_the_event_variant_sees_a_video_once_for_each_of_its_captions(batch):
    model = build()
    queries = model.encode_queries(batch.queries)
    videos = model.encode_videos(batch.videos)
    repeated = dataclasses.replace(batch, video_index=torch.arange(4))
    again = model.compute_losses(TrainingStep(queries, videos.select(batch.video_index), repeated, Draws(hard_pool=1)))
    terms = model.compute_losses(TrainingStep(queries, videos, batch, Draws(hard_pool=1)))
    assert terms.keys() == again.keys()
    assert all(torch.allclose(terms[name], again[name], atol=1e-6) for name in terms)


def test_moments_are_ranked_by_the_chosen_branch(batch):
    best = {}
    for rank_by in ("gaze", "glance", "sum"):
        model = build(rank_moments_by=rank_by)
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        located = model.locate(queries, videos, torch.tensor([10.0, 20.0, 30.0]))
        best[rank_by] = torch.from_numpy(located.score[:, 0])
        scores = model.score(queries, videos)
        if rank_by != "sum":
            assert torch.allclose(best[rank_by], scores[rank_by].value.max(dim=1).values, atol=1e-6)
    assert not torch.allclose(best["sum"], best["gaze"], atol=1e-4)


def test_sliding_proposals_can_apply_to_the_glance_only(batch):
    glance_alone = {"proposals": "sliding", "gaze_proposals": "centered"}
    options = {"neither": {}, "both": {"proposals": "sliding"}, "glance": glance_alone}
    scores, windows = {}, {}
    for name, option in options.items():
        model = build(glance_input="clips", **option)
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        scores[name], windows[name] = model.score(queries, videos), model.window_similarities(queries, videos)[0].spans
    for branch, same, other in (("glance", "both", "neither"), ("gaze", "neither", "both")):
        assert torch.equal(scores["glance"][branch].value, scores[same][branch].value)
        assert not torch.allclose(scores["glance"][branch].value, scores[other][branch].value, atol=1e-4)
    assert torch.equal(windows["glance"], windows["neither"])  # the gaze ranks moments
    by_glance, by_both = (build(glance_input="clips", **glance_alone, rank_moments_by=by) for by in ("glance", "sum"))
    assert torch.equal(by_glance.window_similarities(queries, videos)[0].spans, windows["both"])
    proposals, similarities = by_both.window_similarities(queries, videos)
    assert similarities(slice(None)).shape == (4, 3, len(proposals.spans))


def test_moments_per_video_are_limited_by_the_setting(batch):
    model = build(moments_per_video=3)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    assert model.rank_moments(queries, videos, torch.ones(3)).count.tolist() == [9] * 4
    settings = LocateSettings(per_video=1)
    assert model.rank_moments(queries, videos, torch.ones(3), settings).count.tolist() == [3] * 4


def test_the_released_tensors_at_published_size_are_all_named():
    released = json.loads(
        (Path(__file__).parents[1] / "parity" / "cases" / "jsg" / "released-parameters.json").read_text()
    )["parameters"]
    model = create_model("jsg", query_dim=1024, video_dim=1024, max_frames=64, num_centers=16)
    names = model.released_names()
    assert names.keys() == released.keys()
    exported = export_released(names, model.state_dict())
    assert {name: list(t.shape) for name, t in exported.items()} == {n: released[n]["shape"] for n in exported}
    unread = {name for name in released if name not in exported}
    assert {name.partition(".")[0] for name in unread} == {"frame_encoder", "ml_head", "global_conv1d"}
    assert sum(t.numel() for t in exported.values()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("shared", [True, False])
def test_a_released_checkpoint_loads_with_and_without_its_unused_tensors(shared):
    source, target = build(shared_encoder=shared), create_model("jsg", **LARGE, shared_encoder=shared)
    tensors = export_released(source.released_names(), source.state_dict())
    import_released(target, target.released_names(), tensors | {"ml_head.mapping_linear.0.weight": torch.zeros(8, 8)})
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))
