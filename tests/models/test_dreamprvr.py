"""What only DreamPRVR does, and its registers on other methods."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.refusals import require_named
from tests.retrieval_world import SIZES, make_batch, one_of_each
from untrimmed.losses.draws import Draws
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.registers import Registers, RegisterVideos
from untrimmed.models.registry import create_model, list_compositions
from untrimmed.presets import load_preset

CASES = Path(__file__).parents[1] / "parity" / "cases" / "dreamprvr"
TABLE = "diffusion_mlp.time_embedding.timembedding.0.weight"


def build(name="dreamprvr", **settings):
    torch.manual_seed(0)
    return create_model(name, **SIZES, init_std=0.3, **settings)


def fused(model):
    batch = make_batch()
    with torch.no_grad():
        return model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused


@pytest.mark.parametrize("dataset", ["tvr", "activitynet", "charades"])
def test_presets_have_the_released_sizes(dataset):
    preset = load_preset("dreamprvr", dataset)
    recorded = json.loads((CASES / "released-parameters.json").read_text())["totals"][dataset]
    model = create_model("dreamprvr", **preset.settings)
    assert sum(t.numel() for t in model.state_dict().values()) == recorded["total"]
    assert sum(p.numel() for p in model.parameters()) == recorded["trainable"]


def test_evaluation_uses_no_random_numbers():
    model = build().eval()
    first = fused(model)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(fused(model), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_clips_are_embedded_once_per_pass_with_one_dropout_mask():
    model = build(dropout=0.5, input_dropout=0.5).train()
    made, read = [], []
    model.clip_tower.register_forward_hook(lambda module, inputs, output: made.append(output))
    model.clip_block.register_forward_hook(lambda module, inputs, output: read.append(inputs[0]))
    model.attachments["registers"].context.register_forward_hook(lambda module, inputs, output: read.append(inputs[0]))
    model.encode_videos(make_batch().videos)
    assert len(made) == 1
    assert len(read) == 2
    assert all(same is made[0] for same in read)


def test_sentence_losses_and_scores_use_different_passes_of_the_queries(monkeypatch):
    model = build(dropout=0.5, input_dropout=0.5).train()
    seen = {}
    monkeypatch.setattr(Registers, "losses", lambda self, model, step: seen.update(registers=step.queries) or {})
    for name in ("query_diversity", "query_similarity"):
        loss = type(model.attachments[name])
        monkeypatch.setattr(
            loss, "step_term", lambda self, model, step, name=name: seen.update({name: step.queries}) or torch.zeros(())
        )
    monkeypatch.setattr(type(model), "compute_losses", lambda self, step: seen.update(own=step.queries) or {})
    model(make_batch(), draws=Draws(hard_pool=2))
    assert seen["registers"] is seen["query_diversity"] is seen["query_similarity"]
    assert not torch.equal(seen["registers"].sentence, seen["own"].sentence)


def test_the_noise_of_scales_is_drawn_before_that_of_shifts():
    asked = []

    class Noted(Draws):
        def normal(self, term, *shape):
            asked.append((term, shape))
            return super().normal(term, *shape)

    build()(make_batch(), draws=Noted(hard_pool=2))
    assert asked == [("register_scale", (3, 8, 8)), ("register_shift", (3, 8, 8))]


def test_dropout_before_the_layers_has_the_rate_of_layers():
    part = build(dropout=0.25, input_dropout=0.5).attachments["registers"]
    assert (part.clip_input.dropout.p, part.frame_input.dropout.p) == (0.25, 0.25)


def test_loss_inputs_of_registers_are_encoded_in_training_but_not_for_an_index():
    model, batch = build(), make_batch()
    made = RegisterVideos.of(model.encode_videos(batch.videos).attached["registers"])
    assert (made.mean.shape, made.log_variance.shape, made.condition.shape) == ((3, 8), (3, 8), (3, 8, 8))
    assert torch.allclose(made.mean.norm(dim=-1), torch.ones(3), atol=1e-6)
    with torch.no_grad():
        assert model.eval().encode_videos(batch.videos).attached == {}


def test_both_branches_read_the_registers():
    model = build().eval()
    before = {branch: score.value for branch, score in scores_of(model).items()}
    for branch in ("clip", "frame"):
        layer = getattr(model.attachments["registers"], f"{branch}_input").linear
        with torch.no_grad():
            layer.bias.add_(1.0)
        changed = {name: not torch.equal(score.value, before[name]) for name, score in scores_of(model).items()}
        assert changed == {name: name == branch for name in ("clip", "frame")}
        with torch.no_grad():
            layer.bias.sub_(1.0)


def scores_of(model):
    batch = make_batch()
    with torch.no_grad():
        return model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).branches


@pytest.mark.parametrize("settings", [{"num_registers": 1}, {"num_steps": 1}, {"perturbation": 0.0}])
def test_the_smallest_settings_train_with_finite_gradients(settings):
    model = build(registers=settings)
    terms = model(one_of_each(), draws=Draws(hard_pool=2))
    assert all(term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_video_without_queries_does_not_affect_the_diffusion_loss():
    model, batch = build().eval(), make_batch()
    queries = batch.queries.select(slice(0, 3))  # of the first two videos
    without = dataclasses.replace(batch, queries=queries, video_index=batch.video_index[:3])
    alone = dataclasses.replace(without, videos=batch.videos.select(slice(0, 2)))

    class Same(Draws):
        def normal(self, term, *shape):
            return torch.ones(shape)

    part, terms = model.attachments["registers"], []
    for given in (without, alone):
        encoded = model.encode_queries(given.queries), model.encode_videos(given.videos)
        terms.append(part.losses(model, TrainingStep(*encoded, given, Same()))["register_diffusion"].item())
    assert terms[0] == pytest.approx(terms[1], rel=1e-5)


FITS = {"gmmformer_v2", "holmes"}
REFUSED = {"clip4clip", "dl_dkd", "gmmformer", "hlformer", "jsg", "ms_sl", "proto"}


def test_registers_fit_methods_with_the_same_layers_and_others_are_refused_with_the_reason():
    pairs = list_compositions()
    assert [name for name in FITS if pairs[f"{name}+registers"]] == []
    for name in REFUSED:
        require_named(pairs[f"{name}+registers"], "registers", name)
    known = FITS | REFUSED
    assert [name for name in known if pairs[f"{name}+query_similarity"]] == []
    require_named(pairs["dreamprvr+registers"], "dreamprvr", "model.registers.KEY=VALUE")
    require_named(pairs["dreamprvr+query_similarity"], "dreamprvr", "losses.query_similarity.KEY=VALUE")


def test_registers_attached_to_v2_score_like_dreamprvr():
    settings = {"gaussian_widths": [0.5, 1.0], "temperature": 0.3, "losses": {}}
    own = build(**settings, fusion_token="learned", clip_weight=0.7, frame_weight=0.3).eval()
    carried = build("gmmformer_v2+registers", **settings).eval()
    carried.load_state_dict(own.state_dict())
    assert torch.equal(fused(carried), fused(own))
    assert not torch.allclose(fused(carried), fused(build("gmmformer_v2", **settings).eval()), atol=1e-3)


def test_settings_of_a_default_part_are_set_by_its_name():
    model = build(**{"registers.num_registers": 3})
    assert model.name == "dreamprvr"
    assert model.config.parts["registers"].num_registers == 3
    assert model.attachments["registers"].tokens.shape == (3, SIZES["dim"])


def test_attachments_bring_the_settings_and_weights_of_dreamprvr():
    for dataset in ("tvr", "activitynet", "charades"):
        own = load_preset("dreamprvr", dataset)
        carried = load_preset("gmmformer_v2+registers+query_similarity", dataset)
        assert carried.model["registers"] == own.model["registers"]
        assert carried.losses["query_similarity"] == own.losses["query_similarity"]
        for term in ("register_kl", "register_diffusion", "query_similarity"):
            assert carried.weights[term] == own.weights[term]
