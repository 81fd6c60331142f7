"""RAL: its ablations, the values that it returns, and what does not depend on the batch."""

import dataclasses
import zlib
from pathlib import Path

import pytest
import torch

from tests.retrieval_world import SIZES, make_batch, with_noisy_padding
from untrimmed.losses.draws import Draws
from untrimmed.models.registry import create_model

CASES = Path(__file__).parents[1] / "parity" / "cases" / "ral"
BASES = ("ms_sl", "gmmformer", "gmmformer_v2", "clip4clip")
MSRA_ONLY = {"proxy_matching", "distribution_alignment"}


def build(base: str = "gmmformer_v2", **ral):
    model = create_model(f"{base}+ral", **SIZES, ral=ral)
    # The same seed does not give two forms equal weights for shared parameters, so weights are drawn by name.
    for name, parameter in model.named_parameters():
        parameter.data.normal_(std=0.5, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    return model.eval()


def terms_of(model, batch=None, seed: int = 1):
    draws = Draws(hard_pool=2, generator=torch.Generator().manual_seed(seed))
    return model(batch or make_batch(), draws=draws)


@pytest.mark.parametrize("base", BASES)
def test_csa_replaces_the_frame_branch_and_uses_the_methods_losses(base):
    model = build(base)
    terms = terms_of(model)
    assert "frame_nce" in terms
    assert terms.keys() >= MSRA_ONLY
    sum(terms.values()).backward()
    csa = model.attachments["ral"].csa
    assert csa.confidence.weight.grad.abs().sum() > 0
    batch = make_batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    frame = model.score(queries, videos)["frame"].value
    assert torch.equal(frame, model.attachments["ral"].word_score(model, queries, videos).value)


@pytest.mark.parametrize("base", BASES)
def test_without_csa_scores_are_the_methods_and_without_msra_its_losses_are_absent(base):
    plain = create_model(base, **SIZES).eval()
    batch = make_batch()
    only_msra = build(base, csa=False)
    plain.load_state_dict({k: v for k, v in only_msra.state_dict().items() if not k.startswith("attachments.ral.")})
    scores = [m.score(m.encode_queries(batch.queries), m.encode_videos(batch.videos)).fused for m in (plain, only_msra)]
    assert torch.equal(*scores)
    terms = terms_of(only_msra)
    assert terms.keys() - terms_of(plain).keys() == MSRA_ONLY
    sum(terms[name] for name in MSRA_ONLY).backward()
    assert only_msra.attachments["ral"].video_head.mean_norm.weight.grad.abs().sum() > 0
    only_csa = build(base, msra=False)
    assert not terms_of(only_csa).keys() & MSRA_ONLY
    assert only_csa.encode_queries(batch.queries).attached["ral"].uncertainty is None


@pytest.mark.parametrize(
    "option",
    [
        {"support": "single"},
        {"aggregation": "global"},
        {"aggregation": "local"},
        {"num_proxies": 0},
        {"num_proxies": 2},
        {"word_tower": "shared"},
        {"pooling_rows": "real"},
        {"distribution_form": "paper"},
        {"distribution_form": "paper", "aggregation": "global"},
        {"distribution_form": "paper", "aggregation": "local"},
        {"support_captions": 3},
        {"proxy_form": "paper"},
        {"alignment_form": "paper"},
    ],
    ids=str,
)
def test_every_ablation_changes_the_losses_and_still_trains(option):
    released, varied = build(), build(**option)
    ours, theirs = terms_of(varied), terms_of(released)
    assert any(not torch.allclose(ours[name], theirs[name], atol=1e-5) for name in MSRA_ONLY)
    sum(ours.values()).backward()
    assert [name for name, p in varied.named_parameters() if p.grad is None] == []


def test_padding_of_short_videos_competes_only_as_released():
    batch = make_batch()
    scores = []
    for padding in ("zero", "excluded"):
        model = build(padding_scores=padding)
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        own = queries.attached["ral"]
        away = -videos.frames[2, 0].expand_as(own.words)
        opposite = queries.attach("ral", dataclasses.replace(own, words=away))
        scores.append(model.score(opposite, videos)["frame"].value[0, 2].item())
    assert scores == [0, pytest.approx(-1)]


def test_word_weights_sum_to_one_over_real_words():
    batch = make_batch()
    weights = build().encode_queries(batch.queries).attached["ral"].word_weights
    assert torch.allclose(weights.sum(dim=1), torch.ones(4))
    assert (weights[~batch.queries.mask] == 0).all()
    assert weights[1].tolist() == [1, 0, 0]


@pytest.mark.parametrize("confidences", ["paper", "even"])
def test_confidences_affect_only_the_frame_branch(confidences):
    batch, models = make_batch(), [build(), build(confidences=confidences)]
    for model in models:
        model.attachments["ral"].csa.confidence.weight.data *= 30  # far from even
    encoded = [(model.encode_queries(batch.queries), model.encode_videos(batch.videos)) for model in models]
    scores = [model.score(*both)["frame"].value for model, both in zip(models, encoded, strict=True)]
    assert not torch.allclose(*scores, atol=1e-3)
    weights = encoded[1][0].attached["ral"].word_weights
    assert (weights[~batch.queries.mask] == 0).all()
    released, other = map(terms_of, models)
    changed = {name for name in released if not torch.allclose(released[name], other[name], atol=1e-6)}
    assert changed == {"frame_nce", "frame_triplet"}


def test_without_csa_distributions_use_the_methods_words():
    model, batch = build(csa=False), make_batch()
    assert model.attachments["ral"].word_tower is None
    words = model.encode_queries(batch.queries).attached["ral"].words
    assert torch.equal(words[batch.queries.mask], model.encode_words(batch.queries)[batch.queries.mask])
    terms = terms_of(model)
    sum(terms[name] for name in MSRA_ONLY).backward()
    assert model.query_tower.tower.input.linear.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "ral",
    [{}, {"support": "single"}, {"distribution_form": "paper"}, {"pooling_rows": "real"}, {"aggregation": "global"}],
)
def test_the_uncertainty_of_a_query_does_not_depend_on_its_batch(ral):
    model, batch = build(**ral), make_batch()
    together = model.encode_queries(batch.queries).attached["ral"].uncertainty
    assert (together > 0).all()
    assert together.unique().numel() == 4
    for q, length in enumerate((3, 1, 2, 2)):
        own = batch.queries.select(slice(q, q + 1))
        cut = dataclasses.replace(own, words=own.words[:, :length], mask=own.mask[:, :length])
        assert torch.allclose(model.encode_queries(cut).attached["ral"].uncertainty, together[q : q + 1], rtol=1e-5)


def test_uncertainty_follows_the_predicted_spread():
    model = build()
    before = model.encode_queries(make_batch().queries).attached["ral"].uncertainty
    model.attachments["ral"].text_head.scale_global.bias.data += 0.7
    after = model.encode_queries(make_batch().queries).attached["ral"].uncertainty
    assert torch.allclose(after, before * torch.tensor(0.7).exp(), rtol=1e-5)


def test_values_in_padding_affect_neither_scores_nor_losses():
    model, batch = build(), make_batch()
    for name, term in terms_of(model, with_noisy_padding(batch)).items():
        assert torch.allclose(term, terms_of(model)[name], atol=1e-5), name


def test_a_support_set_may_be_larger_than_the_released_buffer_and_videos_may_lack_queries():
    model, batch = build(support_captions=1), make_batch()
    assert all(term.isfinite() for term in terms_of(model).values())
    lacking = dataclasses.replace(batch, video_index=torch.tensor([0, 0, 2, 2]))
    terms = terms_of(model, lacking)
    assert all(terms[name].isfinite() for name in MSRA_ONLY)


def test_losses_without_sampling_use_no_noise():
    model = build(num_proxies=0)
    first, second = terms_of(model, seed=1), terms_of(model, seed=2)
    assert all(torch.equal(first[name], second[name]) for name in MSRA_ONLY)
    sampled = build()
    assert terms_of(sampled, seed=1)["proxy_matching"] != terms_of(sampled, seed=2)["proxy_matching"]


def test_with_csa_moments_come_from_clips():
    model, batch = build(), make_batch()
    videos = model.encode_videos(batch.videos)
    assert model.timeline(videos)[0] is videos.clips
    assert build(csa=False).timeline(videos)[0] is videos.frames
