"""What every registered method can do. A new method is covered as soon as it is registered."""

import dataclasses

import pytest
import torch

from tests.retrieval_world import SIZES, fused, make_batch, one_of_each, with_noisy_padding, without_padding
from untrimmed.losses.draws import Draws
from untrimmed.models.attached_losses import QueryDiversity
from untrimmed.models.base import RetrievalModel
from untrimmed.models.registry import attachment_class, build_model, create_model, list_models
from untrimmed.models.storage import load_model, save_model

METHODS = list_models()
FORMS = {  # of methods whose settings choose between networks
    "dl_dkd later": {"version": "later", "labels": "soft", "exploration_dim": 6},
    "dl_dkd single branch": {"two_branches": False},
    "proto CLIP": {"iterations": 1},
    "proto perceiver": {"builder": "perceiver"},
    "proto slots": {"builder": "slot_attention", "shared_pooling": True},
    "proto cheap": {"frame_decoder": "mixture", "num_prototypes": 10, "ffn_ratio": 4},
}
BOUNDED = {"ms_sl"}  # what an index finds is an upper bound of these methods' scores; for all others it is the score
NOTHING_RANDOM = {"clip4clip"}  # no dropout on its queries, no sampled negatives
LOSSES = ("query_diversity_v1", "query_diversity", "query_similarity", "optimal_matching", "evidence")
ATTACHED = {name: attachment_class(name).Config() for name in LOSSES}


def build(form: str, **settings) -> RetrievalModel:
    torch.manual_seed(0)
    return create_model(form.split()[0], **SIZES, init_std=0.3, **FORMS.get(form, {}), **settings).eval()


@pytest.fixture(params=[*METHODS, *FORMS])
def model(request) -> RetrievalModel:
    return build(request.param)


def test_scores_are_queries_by_videos(model, batch):
    scores = model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    assert scores.fused.shape == (4, 3)
    for score in scores.branches.values():
        assert score.value.shape == (4, 3)
        assert score.best is None or score.best.shape == (4, 3)


def test_a_batch_of_one_query_and_one_video_works(model):
    single = one_of_each()
    assert fused(model, single).shape == (1, 1)
    model.train()
    for draws in (Draws(), Draws(hard_pool=20)):
        terms = model(single, draws=draws)
        assert all(term.isfinite() for term in terms.values())
        sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_scores_of_a_query_do_not_depend_on_other_queries(model, batch):
    whole = fused(model, batch)
    for q in range(4):
        alone = dataclasses.replace(batch, queries=batch.queries.select(slice(q, q + 1)))
        assert torch.allclose(fused(model, alone), whole[q : q + 1], atol=1e-6)


@pytest.mark.parametrize("form", [*METHODS, *FORMS])
def test_a_video_does_not_depend_on_its_batch_mates(form, batch):
    model = build(form, **({"window_length": "full"} if form == "gmmformer" else {}))
    whole = fused(model, batch)
    for v in range(3):
        assert torch.allclose(fused(model, without_padding(batch, v)), whole[:, v : v + 1], atol=1e-6)


def test_values_in_padding_do_not_affect_scores(model, batch):
    assert torch.allclose(fused(model, with_noisy_padding(batch)), fused(model, batch), atol=1e-6)


def test_the_order_of_the_corpus_is_irrelevant(model, batch):
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    order = torch.tensor([2, 0, 1])
    shuffled = model.score(queries, videos.select(order)).fused
    assert torch.allclose(shuffled, model.score(queries, videos).fused[:, order], atol=1e-6)


def test_scoring_in_parts_equals_scoring_at_once(model, batch):
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    parts = [model.score(queries, videos.select(slice(v, v + 1))).fused for v in range(3)]
    assert torch.allclose(torch.cat(parts, dim=1), model.score(queries, videos).fused, atol=1e-6)


@pytest.mark.parametrize("name", [*METHODS, *(f"{m}+ral" for m in ("gmmformer", "gmmformer_v2", "ms_sl", "clip4clip"))])
def test_sketches_and_probes_find_candidates(name, batch):
    torch.manual_seed(0)
    model = create_model(name, **SIZES, init_std=0.3).eval()
    with torch.no_grad():
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        sketch, probe = model.sketch(videos), model.probe(queries)
        score, candidate = model.score(queries, videos).fused, model.candidate_score(queries, videos)
    assert sketch.keys() == probe.keys()
    by_hand = torch.zeros(4, 3)
    for branch, rows in sketch.items():
        assert rows.isfinite().all()
        assert (len(rows), len(probe[branch])) == (3, 4)
        by_hand += torch.einsum("qmd,vnd->qvmn", probe[branch], rows).amax(dim=3).sum(dim=2)
    assert torch.allclose(candidate, by_hand, atol=1e-6)
    for v, length in enumerate((7, 3, 1)):  # each video's rows are those of that video, without padding
        alone = {
            key: tensor[v : v + 1, : tensor.shape[1] if tensor.shape[1] != 7 else length]
            for key, tensor in videos.tensors().items()
            if tensor.ndim > 1
        }
        cut = videos.with_tensors(videos.select(slice(v, v + 1)).tensors() | alone)
        if name != "jsg":  # stretches every video
            assert torch.allclose(model.candidate_score(queries, cut), candidate[:, v : v + 1], atol=1e-6)
    assert (candidate >= score - 1e-6).all()
    assert torch.allclose(candidate, score, atol=1e-6) == (name not in BOUNDED)


def test_a_model_can_be_trained_after_use_in_inference_mode(model, batch):
    with torch.inference_mode():
        model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    sum(model(batch, draws=Draws(hard_pool=2)).values()).backward()


def test_every_parameter_learns(model, batch):
    model.train()
    sum(model(batch, draws=Draws(hard_pool=2)).values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_any_method_trains_with_any_attached_loss(model, batch):
    bare, attached = (
        build_model(type(model), dataclasses.replace(model.config, losses=losses)) for losses in ({}, ATTACHED)
    )
    terms = attached(batch, draws=Draws(hard_pool=2))
    assert terms.keys() == bare(batch, draws=Draws(hard_pool=2)).keys() | ATTACHED
    for name in ATTACHED:
        attached.zero_grad()
        terms[name].backward(retain_graph=True)
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in attached.parameters()), name


def test_attached_losses_read_a_second_pass_of_the_query_tower_in_training(model, batch, monkeypatch):
    config = dataclasses.replace(
        model.config, losses={"query_diversity": QueryDiversity.Config()}, dropout=0.5, input_dropout=0.5
    )
    for separate, passes in ((True, 2), (False, 1)):
        attached = build_model(type(model), dataclasses.replace(config, separate_pass=separate)).train()
        seen = []

        def encode(queries, encode=attached.encode_queries, seen=seen):
            seen.append(encode(queries))
            return seen[-1]

        monkeypatch.setattr(attached, "encode_queries", encode)
        attached(batch, draws=Draws(hard_pool=2))
        assert len(seen) == passes
        if passes == 2:
            assert torch.allclose(seen[0].sentence, seen[1].sentence) == (model.name in NOTHING_RANDOM)
        attached.eval()(batch, draws=Draws(hard_pool=2))
        assert len(seen) == passes + 1


def test_negatives_differ_between_seeds_and_repeat_with_one(model):
    batch = make_batch()
    total = lambda seed: sum(  # noqa: E731
        model(batch, draws=Draws(generator=torch.Generator().manual_seed(seed))).values()
    ).item()
    assert total(3) == total(3)
    assert (len({total(seed) for seed in range(6)}) == 1) == (model.name in NOTHING_RANDOM)


def test_a_saved_model_scores_the_same_when_loaded(model, batch, tmp_path):
    save_model(model, tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert loaded.config == model.config
    assert torch.equal(fused(loaded, batch), fused(model, batch))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "model.safetensors"]
