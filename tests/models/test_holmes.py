"""What only Holmes does, with one query branch and with two; its losses on other methods."""

from pathlib import Path

import pytest
import torch

from tests.refusals import require_named
from tests.retrieval_world import SIZES, make_batch
from untrimmed.losses.draws import Draws
from untrimmed.losses.evidence import between_videos
from untrimmed.losses.transport import inside_videos
from untrimmed.models.evidential_losses import EvidenceLoss, TransportLoss
from untrimmed.models.registry import create_model, list_compositions
from untrimmed.models.released import export_released, import_released
from untrimmed.presets import load_preset

CASES = Path(__file__).parents[1] / "parity" / "cases" / "holmes"
DUAL = {"ral": {"msra": False}}


def build(name="holmes", **settings):
    torch.manual_seed(0)
    return create_model(name, **SIZES, init_std=0.3, **settings)


def terms_of(model, epoch):
    torch.manual_seed(1)
    return model(make_batch(), draws=Draws(hard_pool=2), epoch=epoch)


@pytest.mark.parametrize(("name", "settings"), [("holmes", {}), ("holmes+ral", DUAL)])
def test_the_unused_token_of_checkpoints_is_accepted_and_ignored(name, settings):
    model, other = build(name, **settings), build(name, **settings, temperature=0.5)
    exported = export_released(model.released_names(), model.state_dict())
    assert "weight_token" not in exported
    import_released(other, other.released_names(), exported | {"weight_token": torch.randn(1, 1, SIZES["dim"])})
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


def test_before_warmup_labels_are_hard_and_the_transport_loss_is_zero():
    model = build().eval()
    batch = make_batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    branches = [score.value for score in model.score(queries, videos).branches.values()]
    index, settings = batch.video_index, {"temperature": 0.05, "bound": 0.3, "smoothing": 0.2}
    transported = inside_videos(
        queries.sentence, videos.clips, index, temperature=0.06, regularisation=0.1, iterations=50
    )
    for epoch, divides, transport in ((19, False, 0.0), (20, True, transported.item())):
        terms = terms_of(model, epoch)
        expected = between_videos(branches, index, divides=divides, **settings)
        assert terms["evidence"].item() == pytest.approx(expected.item(), abs=1e-6)
        assert terms["transport"].item() == pytest.approx(transport, abs=1e-6)


def test_evidence_uses_the_first_pass_of_queries_and_transport_the_second(monkeypatch):
    model = build(dropout=0.5, input_dropout=0.5).train()
    seen = {}
    for loss in (EvidenceLoss, TransportLoss):

        def term(self, model, step, loss=loss):
            seen[loss.name] = step.queries
            return step.queries.sentence.sum()

        monkeypatch.setattr(loss, "step_term", term)
    monkeypatch.setattr(type(model), "compute_losses", lambda self, step: seen.update(own=step.queries) or {})
    terms_of(model, 20)
    assert seen["evidence"] is seen["own"]
    assert seen["transport"] is not seen["own"]
    assert not torch.equal(seen["transport"].sentence, seen["own"].sentence)


FITS = {"evidence": {"clip4clip", "dl_dkd", "gmmformer", "gmmformer_v2", "jsg", "ms_sl", "proto"}}
FITS["transport"] = {"gmmformer", "gmmformer_v2", "ms_sl"}


@pytest.mark.parametrize("loss", FITS)
def test_the_losses_are_refused_for_methods_without_their_inputs(loss):
    pairs = {name: problem for name, problem in list_compositions().items() if name.endswith(f"+{loss}")}
    known = {name for name in pairs if name.partition("+")[0] in FITS["evidence"]}
    assert {name.partition("+")[0] for name in known if not pairs[name]} == FITS[loss]
    for name in known:
        if pairs[name]:
            require_named(pairs[name], *name.split("+"))
    require_named(pairs[f"holmes+{loss}"], "holmes", f"losses.{loss}.KEY=VALUE")


@pytest.mark.parametrize("name", ["ms_sl+transport", "ms_sl+prototypes+transport"])
def test_transport_on_ms_sl_uses_units_or_the_clips_that_replace_them(name):
    model, batch = build(name).eval(), make_batch()
    videos = model.encode_videos(batch.videos)
    assert model.base_clips(videos).shape[1] == (30 if "prototypes" in name else 32)
    assert terms_of(model, 20)["transport"] > 0


def test_the_preset_with_two_query_branches_has_rals_words_and_neither_its_losses_nor_their_weights():
    preset = load_preset("holmes+ral", "tvr")
    sizes = preset.sizes()
    assert (sizes.clip_weight, sizes.parts["ral"].csa, sizes.parts["ral"].msra) == (0.5, True, False)
    assert preset.losses["evidence"]["temperature"] == 0.2
    assert (preset.weights["evidence"], preset.weights["transport"]) == (0.01, 0.1)
    assert {"proxy_matching", "distribution_alignment"} <= sizes.absent_terms
    assert preset.reported["SumR"] == 198.6
    assert load_preset("holmes", "charades").reported["SumR"] == 80.6
