"""Presets of methods with attachments."""

import shutil
from itertools import product

import pytest

import untrimmed.presets
from tests.refusals import refused
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.registry import create_model, list_attachments
from untrimmed.presets import FOLDER, has_preset, load_preset

SMALL = {"model.dim": 8, "model.query_dim": 6, "model.video_dim": 5}
DATASETS = ("tvr", "activitynet", "charades")


@pytest.mark.parametrize(("base", "dataset"), list(product(("ms_sl", "gmmformer", "gmmformer_v2"), DATASETS)))
def test_ral_adds_its_weights_and_the_published_branch_weights(base, dataset, batch):
    preset, plain = load_preset(f"{base}+ral", dataset, SMALL), load_preset(base, dataset)
    assert preset.method == f"{base}+ral"
    assert preset.weights == plain.weights | {"proxy_matching": 4e-3, "distribution_alignment": 2.5e-4}
    assert preset.model["clip_weight"] == {"tvr": 0.5, "activitynet": 0.6, "charades": 0.7}[dataset]
    model = create_model(preset.method, **preset.settings)
    assert total_loss(model(batch, draws=Draws(preset.train.hard_pool)), preset.weights).isfinite()
    if preset.reported:
        assert preset.reported != plain.reported
        recalls = [value for name, value in preset.reported.items() if name != "SumR"]
        assert preset.reported["SumR"] == pytest.approx(sum(recalls), abs=0.21)  # each of the five is rounded to 0.1


@pytest.mark.parametrize("dataset", DATASETS)
def test_attached_losses_get_the_settings_of_the_data_set(dataset, batch):
    preset, source = load_preset("ms_sl+matching+diversity", dataset, SMALL), load_preset("gmmformer_v2", dataset)
    assert preset.method == "ms_sl+optimal_matching+query_diversity"
    assert preset.losses == source.losses
    assert {name: preset.weights[name] for name in source.losses} == {n: source.weights[n] for n in source.losses}
    assert preset.reported == {}
    model = create_model(preset.method, **preset.settings)
    assert total_loss(model(batch, draws=Draws(preset.train.hard_pool)), preset.weights).isfinite()


def test_every_attachment_has_settings_for_three_data_sets():
    for name, dataset in product(list_attachments(), DATASETS):
        assert (FOLDER / "attachments" / name / f"{dataset}.yaml").is_file(), name


def test_overrides_change_settings_of_an_attachment():
    preset = load_preset("gmmformer_v2+ral", "tvr", {"model.ral.num_proxies": 2, "weights.proxy_matching": 0.0})
    assert preset.model["ral"]["num_proxies"] == 2
    assert preset.weights["proxy_matching"] == 0


def test_removing_a_loss_that_the_name_contains_is_refused():
    preset = load_preset("ms_sl+matching", "tvr", SMALL | {"losses.optimal_matching": None})
    with pytest.raises(ConfigError, match="optimal_matching"):
        create_model(preset.method, **preset.settings)


def test_a_variant_of_a_data_set_takes_the_attachment_settings_of_the_data_set():
    assert load_preset("jsg+diversity", "activitynet_event").weights["query_diversity"] == 3e-3


def test_a_composition_has_a_preset_where_its_method_has_one():
    assert has_preset("ms_sl+matching", "charades")
    assert not has_preset("ms_sl+matching", "my_videos")
    with refused(UnknownNameError, "ms_sl", "'my_videos'"):
        load_preset("ms_sl+matching", "my_videos")


def test_settings_of_one_attachment_also_apply_with_several():
    preset = load_preset("ms_sl+ral+matching", "tvr")
    assert preset.model["clip_weight"] == 0.5
    assert preset.weights.keys() >= {"proxy_matching", "optimal_matching"}
    assert preset.reported == {}


def test_a_set_of_attachments_can_have_its_own_settings_in_any_order(tmp_path, monkeypatch):
    folder = shutil.copytree(FOLDER, tmp_path / "presets", ignore=shutil.ignore_patterns("*.py*"))
    (folder / "ms_sl+ral+transport").mkdir()
    (folder / "ms_sl+ral+transport" / "tvr.yaml").write_text("weights: {transport: 0.3}\n")
    monkeypatch.setattr(untrimmed.presets, "FOLDER", folder)
    weights = [load_preset(f"ms_sl+{rest}", "tvr").weights["transport"] for rest in ("transport+ral", "ral+transport")]
    assert weights == [0.3, 0.3]
    assert load_preset("ms_sl+transport", "tvr").weights["transport"] == 0.8
    assert load_preset("ms_sl+transport+ral+evidence", "tvr").weights["transport"] == 0.8
