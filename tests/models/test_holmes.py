"""What only Holmes does, with one query branch and with two; its losses on other methods."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.released_parameters import check_parameters
from tests.retrieval_world import SIZES, make_batch
from untrimmed.errors import ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.losses.evidence import between_videos
from untrimmed.losses.transport import inside_videos
from untrimmed.models.evidential_losses import Evidence, Transport
from untrimmed.models.registry import create_model, list_compositions
from untrimmed.models.released import UNUSED, export_released, import_released
from untrimmed.presets import load_preset

CASES = Path(__file__).parents[1] / "parity" / "cases" / "holmes"
DUAL = {"ral": {"msra": False}}


def build(name="holmes", **settings):
    torch.manual_seed(0)
    return create_model(name, **SIZES, init_std=0.3, **settings)


def terms_of(model, epoch):
    torch.manual_seed(1)
    return model(make_batch(), draws=Draws(hard_pool=2), epoch=epoch)


@pytest.mark.parametrize(("name", "file", "settings"), [("holmes", "", {}), ("holmes+ral", "dual-", DUAL)])
def test_sizes_initial_values_and_decay_are_the_released_ones(name, file, settings):
    recorded = json.loads((CASES / f"{file}released-parameters.json").read_text())
    torch.manual_seed(0)
    model = create_model(name, query_dim=768, video_dim=3072, **settings)
    assert [name for name, slot in model.released_names().items() if slot is UNUSED] == ["weight_token"]
    assert sum(p.numel() for p in model.parameters()) == recorded["total"] - 384
    check_parameters(model, recorded["parameters"])


@pytest.mark.parametrize(("name", "settings"), [("holmes", {}), ("holmes+ral", DUAL)])
def test_the_token_that_nothing_reads_is_taken_from_checkpoints_and_changes_nothing(name, settings):
    model, other = build(name, **settings), build(name, **settings, temperature=0.5)
    exported = export_released(model.released_names(), model.state_dict())
    assert "weight_token" not in exported
    import_released(other, other.released_names(), exported | {"weight_token": torch.randn(1, 1, SIZES["dim"])})
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


def test_before_the_switch_labels_are_hard_and_nothing_is_transported():
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


def test_evidence_reads_the_pass_that_scores_and_transport_the_second(monkeypatch):
    model = build(dropout=0.5, input_dropout=0.5).train()
    seen = {}
    for loss in (Evidence, Transport):

        def term(self, model, step, loss=loss):
            seen[loss.name] = step.queries
            return step.queries.sentence.sum()

        monkeypatch.setattr(loss, "step_term", term)
    monkeypatch.setattr(type(model), "own_losses", lambda self, step: seen.update(own=step.queries) or {})
    terms_of(model, 20)
    assert seen["evidence"] is seen["own"]
    assert seen["transport"] is not seen["own"]
    assert not torch.equal(seen["transport"].sentence, seen["own"].sentence)


def test_longest_videos_and_short_ones_score_the_same_alone_and_together():
    model, batch = build().eval(), make_batch()
    whole = model.encode_videos(batch.videos).frames
    own = batch.videos.select(slice(2, 3))
    cut = dataclasses.replace(own, frames=own.frames[:, :1], frame_mask=own.frame_mask[:, :1])
    assert torch.allclose(model.encode_videos(cut).frames[0], whole[2, :1], atol=1e-6)


FITS = {"evidence": {"clip4clip", "dl_dkd", "gmmformer", "gmmformer_v2", "jsg", "ms_sl", "proto"}}
FITS["transport"] = {"gmmformer", "gmmformer_v2", "ms_sl"}


@pytest.mark.parametrize("loss", FITS)
def test_the_losses_fit_methods_with_what_they_read_and_others_are_refused_with_the_reason(loss):
    pairs = {name: problem for name, problem in list_compositions().items() if name.endswith(f"+{loss}")}
    known = {name for name in pairs if name.partition("+")[0] in FITS["evidence"]}
    assert {name.partition("+")[0] for name in known if not pairs[name]} == FITS[loss]
    reasons = [pairs[name] for name in known if pairs[name]]
    assert all("it reads clips, and" in reason and "\n" not in reason for reason in reasons)
    assert pairs[f"holmes+{loss}"] == (
        f"holmes carries {loss} already; change its settings with losses.{loss}.KEY=VALUE"
    )


def test_a_loss_that_does_not_fit_is_refused_by_its_settings_too():
    with pytest.raises(ConfigError, match="transport does not fit dl_dkd: it reads clips"):
        create_model("dl_dkd", **SIZES, losses={"transport": {}})


@pytest.mark.parametrize("name", ["ms_sl+transport", "ms_sl+prototypes+transport"])
def test_transport_shares_out_units_of_ms_sl_or_what_stands_for_its_clips(name):
    model, batch = build(name).eval(), make_batch()
    videos = model.encode_videos(batch.videos)
    assert model.base_clips(videos).shape[1] == (30 if "prototypes" in name else 32)
    assert terms_of(model, 20)["transport"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evidence": {"temperature": 0.0}}, "evidence.temperature is 0.0, wanted more than 0"),
        ({"evidence": {"smoothing": 1.5}}, "evidence.smoothing is 1.5, wanted a share"),
        ({"transport": {"iterations": 0}}, "transport.iterations is 0, wanted more than 0"),
        ({"transport": {"regularisation": -1.0}}, "transport.regularisation is -1.0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        create_model("holmes", **SIZES, losses=settings)


def test_the_preset_with_two_query_branches_has_rals_words_and_neither_its_losses_nor_their_weights():
    preset = load_preset("holmes+ral", "tvr")
    sizes = preset.sizes()
    assert (sizes.clip_weight, sizes.parts["ral"].csa, sizes.parts["ral"].msra) == (0.5, True, False)
    assert preset.losses["evidence"]["temperature"] == 0.2
    assert (preset.weights["evidence"], preset.weights["transport"]) == (0.01, 0.1)
    assert {"proxy_matching", "distribution_alignment"} <= sizes.absent_terms
    assert preset.reported["SumR"] == 198.6
    assert load_preset("holmes", "charades").reported["SumR"] == 80.6
