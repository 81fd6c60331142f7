"""A run from settings to folder, and the ways in which it is refused before anything is written."""

import json
import math

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.refusals import refused
from untrimmed import precision
from untrimmed.data.dataset import load_dataset
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError
from untrimmed.models.registry import create_model
from untrimmed.presets import load_preset
from untrimmed.running.batches import epoch_batches
from untrimmed.running.loaded import open_model
from untrimmed.running.opened import OpenedModel
from untrimmed.running.run import open_run
from untrimmed.training import loop as loop_module
from untrimmed.training import sampling
from untrimmed.training.train import train


def test_a_run_keeps_settings_metrics_and_the_best_model(data_root, small, tmp_path):
    seen = []
    run = train("gmmformer_v2", data="tvr", root=data_root, out=tmp_path / "run", callback=seen.append, **small)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["model"]["dim"] == 8
    assert config["model"]["temperature"] == 0.09
    assert config["losses"]["query_diversity"]["margin"] == 0.15
    assert config["data"] == {
        "name": "tvr", "root": str(data_root), "video_features": None, "encoder_identity": None, "digest": None,
    }  # fmt: skip
    assert [entry["epoch"] for entry in run.history] == [1, 2]
    assert run.history == open_run(tmp_path / "run").history
    first = run.history[0]
    weighted = sum(weight * first[name] for name, weight in run.config.weights.items())
    assert first["loss"] == pytest.approx(weighted)
    assert set(run.config.weights) < first.keys()
    assert run.best["val"]["SumR"] == max(entry["val"]["SumR"] for entry in run.history)
    assert run.load_model().config.dim == 8
    stages = [(step.stage, step.epoch, step.step) for step in seen]
    assert stages[:6] == [("training", 1, n) for n in (1, 2, 3, 4)] + [("validating", 1, 4), ("validated", 1, 4)]
    told = [step for step in seen if step.stage == "validated"]
    assert [step.sum_r for step in told] == [entry["val"]["SumR"] for entry in run.history]
    assert [step.loss for step in told] == [entry["loss"] for entry in run.history]
    assert stages[-1][0] == "finished"
    assert seen[-2].best_sum_r is not None
    assert all(math.isfinite(step.left_s) for step in seen)


def test_without_an_epoch_the_model_is_kept_as_it_was_drawn(data_root, small, tmp_path):
    seen = []
    settings = small | {"train.epochs": 0, "train.seed": 5}
    run = train("gmmformer", data="tvr", root=data_root, out=tmp_path / "run", callback=seen.append, **settings)
    torch.manual_seed(5)
    drawn = create_model("gmmformer", **load_preset("gmmformer", "tvr", settings).settings)
    assert all(torch.equal(a, b) for a, b in zip(run.load_model().parameters(), drawn.parameters(), strict=True))
    assert [step.stage for step in seen] == ["validating", "validated", "finished"]
    assert [step.best_epoch for step in seen] == [None, None, None]
    (entry,) = run.history
    assert (entry["epoch"], entry["updates"]) == (0, 0)
    assert entry["val"]["SumR"] > 0
    again = train("gmmformer", data="tvr", root=data_root, out=tmp_path / "run", **settings)
    assert again.history == run.history


def test_the_same_seed_gives_the_same_run_and_another_seed_another(data_root, small, tmp_path):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train("gmmformer", data="tvr", root=data_root, out=tmp_path / name, seed=seed, **small)
        weights.append(load_file(tmp_path / name / "last.safetensors"))
    a, b, c = weights
    assert all((a[name] == b[name]).all() for name in a)
    assert any((a[name] != c[name]).any() for name in a)


def test_the_plain_layout_trains_with_the_widths_of_its_features(data_root, small, tmp_path):
    sizes = {key: value for key, value in small.items() if key not in ("model.query_dim", "model.video_dim")}
    run = train("ms_sl", data="mine", root=data_root, out=tmp_path / "run", **sizes)
    assert (run.config.model["query_dim"], run.config.model["video_dim"]) == (12, 10)
    assert run.config.dataset == "tvr"


@pytest.mark.parametrize(
    ("method", "off", "dropped"),
    [
        ("gmmformer_v2", {"losses.optimal_matching": None}, {"optimal_matching"}),
        ("gmmformer_v2+ral", {"model.ral.msra": False}, {"proxy_matching", "distribution_alignment"}),
        ("ms_sl+ral", {"model.ral.csa": False}, set()),
    ],
)
def test_a_loss_that_is_switched_off_takes_its_weight_along(method, off, dropped, data_root, small, tmp_path):
    weights = load_preset(method, "tvr", small | off).weights
    run = train(method, data="tvr", root=data_root, out=tmp_path / "run", **(small | off | {"train.epochs": 1}))
    assert weights.keys() - run.config.weights.keys() == dropped
    assert not dropped & run.history[0].keys()
    assert train(method, data="tvr", root=data_root, out=tmp_path / "run", **(small | off | {"train.epochs": 1}))


def test_a_run_may_pack_its_features_in_half_the_space(data_root, small, tmp_path):
    losses = {}
    for dtype in ("float32", "float16"):
        before = set((data_root / "tvr" / "packed").iterdir())
        run = train("ms_sl", data="tvr", root=data_root, out=tmp_path / dtype, **small, **{"features.dtype": dtype})
        losses[dtype] = run.history[0]["loss"]
        made = set((data_root / "tvr" / "packed").iterdir()) - before
        assert {np.load(folder / "clips.npy", mmap_mode="r").dtype for folder in made} <= {np.dtype(dtype)}
    assert made  # float16 is packed by this test alone
    assert losses["float16"] == pytest.approx(losses["float32"], rel=1e-3)
    assert losses["float16"] != losses["float32"]


def test_training_learns(data_root, small, tmp_path):
    settings = small | {
        "train.epochs": 12,
        "train.batch_size": 16,
        "train.learning_rate": 0.003,
        "train.warmup_share": 0.2,
    }
    settings |= {"model.dim": 16, "model.dropout": 0.0, "model.input_dropout": 0.0}
    run = train("gmmformer_v2", data="tvr", root=data_root, out=tmp_path / "run", **settings)
    assert run.history[-1]["loss"] < 0.7 * run.history[0]["loss"]


def test_hard_negatives_come_from_their_epoch_on(data_root, small, tmp_path, monkeypatch):
    pools = []
    make = loop_module.Draws
    monkeypatch.setattr(
        loop_module, "Draws", lambda **settings: pools.append(settings.get("hard_pool")) or make(**settings)
    )
    settings = small | {"train.epochs": 3, "train.hard_negatives_from_epoch": 1, "train.hard_pool": 7}
    train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", **settings)
    assert pools == [None] * 4 + [7] * 8


def test_training_stops_after_more_than_patience_epochs_without_a_new_best(data_root, small, tmp_path, monkeypatch):
    sums = iter([10.0, 12.0, 12.0, 11.0, 12.5, 12.5, 12.4, 12.5, 99.0])
    monkeypatch.setattr(loop_module, "retrieval_metrics", lambda scores, truth: {"SumR": next(sums)})
    settings = small | {"train.epochs": 20, "train.patience": 2}
    run = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", **settings)
    assert len(run.history) == 8  # an equal SumR is no new best: the third failure in a row is one too many
    assert run.best["epoch"] == 5


EVENT = {"preset": "charades_event", "model.num_centers": 4, "model.num_widths": 3}


def test_an_epoch_of_captions_sees_every_caption_once(data_root, small, tmp_path, monkeypatch):
    seen = []
    read = sampling.caption_training_batch
    monkeypatch.setattr(sampling, "caption_training_batch", lambda data, rows: seen.append(rows) or read(data, rows))
    settings = small | EVENT | {"train.epochs": 1, "train.batch_size": 7}
    run = train("jsg", data="tvr", root=data_root, out=tmp_path / "run", **settings)
    num_captions = len(load_dataset("tvr", data_root, "train", max_frames=20).caption_ids)
    batches = seen[1:]  # the first is the trial before anything is written
    assert sorted(np.concatenate(batches).tolist()) == list(range(num_captions))
    assert run.history[0]["updates"] == len(batches) == math.ceil(num_captions / 7)


def test_the_event_variant_keeps_the_epoch_with_the_best_recall_of_moments(data_root, small, tmp_path, monkeypatch):
    sums = iter([1.0, 3.0, 3.0, 2.0])
    real = OpenedModel.event_recall
    monkeypatch.setattr(OpenedModel, "event_recall", lambda opened: dict.fromkeys(real(opened), next(sums)))
    settings = small | EVENT | {"train.epochs": 4, "train.batch_size": 20}
    run = train("jsg", data="tvr", root=data_root, out=tmp_path / "run", **settings)
    assert [entry["val"]["event SumR"] for entry in run.history] == [6.0, 18.0, 18.0, 12.0]
    assert run.best["epoch"] == 2
    assert run.best["val"]["R@10 IoU=0.7"] == 3.0
    assert "SumR" in run.best["val"]


def test_choosing_by_moments_needs_moments(data_root, small, tmp_path, monkeypatch):
    monkeypatch.setattr(loop_module, "why_no_events", lambda dataset: "no caption has a moment")
    with refused(FeatureError, "train.select_by=SumR"):
        train("jsg", data="tvr", root=data_root, out=tmp_path / "run", **(small | EVENT))
    assert not (tmp_path / "run").exists()
    with refused(UnknownNameError, "select_by", "'R@2'", "SumR", "event SumR"):
        train("jsg", data="tvr", root=data_root, out=tmp_path / "run", **(small | EVENT), **{"train.select_by": "R@2"})


def test_a_finished_run_is_given_back_untouched(data_root, small, tmp_path):
    first = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", **small)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    again = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", **small)
    assert again.history == first.history
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize("fast", [True, False])
def test_a_run_of_auto_precision_goes_on_where_auto_means_another(fast, data_root, small, tmp_path, monkeypatch):
    for has_it in (fast, not fast):
        monkeypatch.setattr(precision, "has_fast_bfloat16", lambda device, has_it=has_it: has_it)
        run = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", precision="auto", **small)
        assert run.config.precision == ("bfloat16" if fast else "float32")
    asked = "float32" if fast else "bfloat16"
    with refused(ConfigError, "precision"):
        train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", precision=asked, **small)


def test_a_run_does_not_go_on_with_other_settings_of_the_model(data_root, small, tmp_path):
    train("gmmformer", data="tvr", root=data_root, out=tmp_path / "run", **small)
    for other in ({"model.triplet": "paper"}, {"losses.query_diversity_v1": None}):
        with pytest.raises(ConfigError, match=next(iter(other)).partition(".")[2]):
            train("gmmformer", data="tvr", root=data_root, out=tmp_path / "run", **small, **other)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.temprature": 0.1}, ("'temperature'",)),
        ({"train.epochs": "many"}, ("epochs", "'many'")),
        ({"train.epochs": -1}, ("train.epochs", "-1")),
        ({"trian.epochs": 3}, ("'trian'",)),
        ({"weights.clip_nce": None}, ("clip_nce",)),
        ({"weights.extra": 1.0}, ("weights.extra", "clip_nce")),
        ({"losses.query_diversity_v1": {}}, ("query_diversity_v1",)),
        ({"model.dim": 10}, ("num_heads",)),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(overrides, message, data_root, small, tmp_path):
    with refused(ConfigError, *message):
        train("gmmformer_v2", data="tvr", root=data_root, out=tmp_path / "run", **(small | overrides))
    assert not (tmp_path / "run").exists()


def test_names_nobody_knows_are_refused(data_root, small, tmp_path):
    with refused(UnknownNameError, "'gmmformer_v2'"):
        train("gmmformer_v3", data="tvr", root=data_root, out=tmp_path / "run", **small)
    with refused(UnknownNameError, "ms_sl", "'tvrr'", "'tvr'"):
        train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", preset="tvrr", **small)
    with pytest.raises(FeatureError):
        train("ms_sl", data="tvr", root=tmp_path / "nowhere", out=tmp_path / "run", **small)
    assert not (tmp_path / "run").exists()


def test_wrong_widths_are_refused_with_both_numbers(data_root, small, tmp_path):
    del small["model.video_dim"]
    with refused(FeatureError, "10", "ms_sl/tvr", "3072", "model.video_dim=10"):
        train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", **small)
    assert not (tmp_path / "run").exists()


def test_a_preset_file_of_ones_own_is_taken(data_root, small, tmp_path):
    run = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "a", **small)
    content = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    own = {key: content[key] for key in ("method", "dataset", "model", "losses", "weights", "train")}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    again = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "b", preset=str(tmp_path / "own.yaml"))
    assert [e["loss"] for e in again.history] == [e["loss"] for e in run.history]
    with refused(ConfigError, "ms_sl", "gmmformer"):
        train("gmmformer", data="tvr", root=data_root, preset=str(tmp_path / "own.yaml"))


def test_a_damaged_metrics_file_is_named(data_root, small, tmp_path):
    run = train("ms_sl", data="tvr", root=data_root, out=tmp_path / "run", **small)
    (run.folder / "metrics.jsonl").write_text(json.dumps({"epoch": 0})[:-3])
    with refused(Exception, "metrics.jsonl"):
        open_run(run.folder)


def test_every_video_is_seen_once_an_epoch(data_root):
    dataset = load_dataset("tvr", data_root, "train", max_frames=20)
    epochs = [epoch_batches(len(dataset.video_ids), 5, seed=3, epoch=epoch) for epoch in (0, 1)]
    for batches in epochs:
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(dataset.video_ids)))
        assert [len(batch) for batch in batches[:-1]] == [5] * (len(batches) - 1)
    assert np.concatenate(epochs[0]).tolist() != np.concatenate(epochs[1]).tolist()


def test_uncertainties_of_queries_and_videos_are_followed_over_the_epochs(data_root, small, tmp_path):
    run = train("gmmformer_v2+ral", data="tvr", root=data_root, out=tmp_path / "ral", **small)
    last = open_model(tmp_path / "ral", split="val", device="cpu")
    by_itself = last.all_queries.attached["ral"].uncertainty.double()
    assert run.best["val"]["query_uncertainty"] == pytest.approx(float(by_itself.mean()), rel=1e-6)
    assert run.best["val"]["query_uncertainty_p90"] == pytest.approx(np.quantile(by_itself.numpy(), 0.9), rel=1e-6)
    first, second = (entry["val"] for entry in run.history)
    assert 0 < second["video_uncertainty"] != first["video_uncertainty"] > 0
    without = train(
        "gmmformer_v2+ral", data="tvr", root=data_root, out=tmp_path / "csa", **small, **{"model.ral.msra": False}
    )
    assert not any("uncertainty" in name for entry in without.history for name in entry["val"])
