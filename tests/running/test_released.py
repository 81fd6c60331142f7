import pytest
import torch

from tests.refusals import refused
from tests.retrieval_world import SIZES, make_batch
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.models.registry import create_model, plain_settings
from untrimmed.models.released import export_released
from untrimmed.running.released import FROM_TENSORS, import_released_file

CONFIG = {"hidden_size": 8, "n_heads": 2, "max_ctx_l": 9, "max_desc_l": 4, "map_size": 32}
CONSOLIDATED = {"sft_factor": 0.6, "clip_scale_w": 0.55, "frame_scale_w": 0.45}
V2 = {"temperature": 0.6, "clip_weight": 0.55, "frame_weight": 0.45}
RELEASES = {  # method: the program's settings, and ours
    "ms_sl": ({"clip_scale_w": 0.6, "frame_scale_w": 0.4}, {"clip_weight": 0.6, "frame_weight": 0.4}),
    "gmmformer": ({"clip_scale_w": 0.6, "frame_scale_w": 0.4}, {"clip_weight": 0.6, "frame_weight": 0.4}),
    "gmmformer_v2": (CONSOLIDATED, V2),
    "gmmformer_v2+ral": (CONSOLIDATED, V2),
    "hlformer": (
        CONSOLIDATED | {"attention_num": 4, "lorentz_dim": 11},
        V2 | {"gaussian_widths": [float("inf"), 2.0], "lorentz_widths": [float("inf"), 2.0], "lorentz_dim": 11},
    ),
    "holmes": (CONSOLIDATED, V2),
    "holmes+ral": (CONSOLIDATED, V2 | {"ral": {"msra": False}}),
    "dreamprvr": (CONSOLIDATED, V2 | {"registers": {"num_registers": 3, "num_steps": 4}}),
    "dl_dkd": ({}, {}),
    "jsg": (
        {"clip_scale_w": 0.3, "frame_scale_w": 0.7, "num_gauss_center": 5},
        {"glance_weight": 0.3, "gaze_weight": 0.7, "num_centers": 5, "variant": "video"},
    ),
}


def save_release(path, model, **entries):
    released = export_released(model.released_names(), model.state_dict())
    torch.save({"state_dict": {f"module.{name}": t.clone() for name, t in released.items()}, **entries}, path)


def fused(model):
    batch = make_batch()
    with torch.no_grad():
        return model.eval().score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused


@pytest.mark.parametrize("method", RELEASES)
def test_a_checkpoint_with_its_settings_scores_like_the_model_that_it_was_made_of(method, tmp_path):
    theirs, ours = RELEASES[method]
    torch.manual_seed(0)
    model = create_model(method, **SIZES, **ours)
    save_release(tmp_path / "best.ckpt", model, config=CONFIG | theirs)
    data = "charades" if method == "jsg" else "tvr"
    imported = import_released_file(method, tmp_path / "best.ckpt", data=data)
    assert torch.equal(fused(imported.model), fused(model))
    assert imported.unknown == {}


def test_every_difference_from_the_preset_is_reported_and_those_of_the_model_are_used(tmp_path):
    torch.manual_seed(0)
    model = create_model("gmmformer_v2", **SIZES, temperature=0.6)
    config = CONFIG | {
        "collection": "tvr",
        "sft_factor": 0.6,
        "clip_scale_w": 0.7,
        "neg_factor": [0.2, 32, 1],
        "loss_factor": [0.05, 0.04, 8e-05, 0.11],
        "lr": 0.0002,
        "wd": 0.5,
        "n_epoch": "many",
        "novelty": [1, 2],
    }
    validation = [16.2, 37.6, 48.8, 86.4, 189.0]
    save_release(tmp_path / "best.ckpt", model, config=config, model_val=validation, epoch=31)
    imported = import_released_file("gmmformer_v2", tmp_path / "best.ckpt")
    differences = {difference.setting: difference for difference in imported.differences}
    assert differences.keys() == {
        "model.query_dim",
        "model.video_dim",
        "model.dim",
        "model.num_heads",
        "model.max_frames",
        "model.max_words",
        "model.temperature",
        "losses.query_diversity.margin",
        "weights.optimal_matching",
        "train.learning_rate",
    }
    temperature = differences["model.temperature"]
    assert (temperature.preset, temperature.checkpoint, temperature.used) == (0.09, 0.6, 0.6)
    assert temperature.key == "sft_factor"
    assert differences["model.video_dim"].key == FROM_TENSORS
    assert differences["train.learning_rate"].used is None
    assert imported.model.config.losses["query_diversity"].margin == 0.2
    assert imported.unknown.keys() == {"n_epoch", "novelty"}
    assert imported.dataset == "tvr"
    assert imported.validation == {"R@1": 16.2, "R@5": 37.6, "R@10": 48.8, "R@100": 86.4, "SumR": 189.0}
    assert imported.epoch == 31


def test_given_settings_come_before_those_of_the_file(tmp_path):
    save_release(tmp_path / "v2.ckpt", create_model("gmmformer_v2", **SIZES), config=CONFIG | {"sft_factor": 0.6})
    overrides = {"model.temperature": 0.3}
    imported = import_released_file("gmmformer_v2", tmp_path / "v2.ckpt", data="tvr", overrides=overrides)
    assert imported.model.config.temperature == 0.3
    (given,) = [change for change in imported.differences if change.setting == "model.temperature"]
    assert (given.checkpoint, given.used) == (0.6, 0.3)
    with refused(ConfigError, "temperatur"):
        import_released_file("gmmformer_v2", tmp_path / "v2.ckpt", data="tvr", overrides={"model.temperatur": 0.3})


def test_sizes_come_from_tensors_if_the_file_has_no_settings(tmp_path):
    model = create_model(
        "dreamprvr", **SIZES | {"max_frames": 40}, num_clips=16, registers={"num_registers": 3, "num_steps": 4}
    )
    save_release(tmp_path / "best.ckpt", model)
    overrides = {"model.num_heads": 2}
    imported = import_released_file("dreamprvr", tmp_path / "best.ckpt", data="tvr", overrides=overrides)
    expected = plain_settings(model.config)
    settings = plain_settings(imported.model.config)
    for name in ("query_dim", "video_dim", "dim", "max_frames", "max_words", "num_clips"):
        assert settings[name] == expected[name], name
    assert settings["registers"]["num_registers"] == 3
    assert settings["registers"]["num_steps"] == 4
    assert not imported.has_settings
    assert imported.validation == {}


def test_contradicting_tensors_are_named(tmp_path):
    model = create_model("ms_sl", **SIZES | {"max_frames": 40})
    released = export_released(model.released_names(), model.state_dict())
    released["clip_input_proj.LayerNorm.weight"] = torch.zeros(7)
    torch.save({"model": dict(released)}, tmp_path / "model.ckpt")
    with refused(CheckpointError, "clip_input_proj.LayerNorm.weight", "7", "5"):
        import_released_file("ms_sl", tmp_path / "model.ckpt", data="tvr")


def test_one_tensor_of_a_wrong_size_is_named_and_does_not_set_the_size_of_the_model(tmp_path):
    model = create_model("ms_sl", **SIZES)
    released = export_released(model.released_names(), model.state_dict())
    name = next(name for name in released if name.endswith("self.key.weight"))
    released[name] = released[name][:, :-1].clone()
    torch.save({"model": dict(released)}, tmp_path / "model.ckpt")
    with refused(CheckpointError, name):
        import_released_file("ms_sl", tmp_path / "model.ckpt", data="tvr", overrides={"model.num_heads": 2})


def test_a_checkpoint_with_numbers_that_are_not_finite_is_refused(tmp_path):
    model = create_model("ms_sl", **SIZES)
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] = torch.nan
    save_release(tmp_path / "model.ckpt", model, config=CONFIG)
    with refused(CheckpointError, "finite"):
        import_released_file("ms_sl", tmp_path / "model.ckpt", data="tvr")


def test_a_folder_is_not_called_a_damaged_file(tmp_path):
    with refused(CheckpointError, "folder"):
        import_released_file("ms_sl", tmp_path, data="tvr")


def test_a_file_whose_sizes_need_more_memory_than_it_has_is_refused(tmp_path):
    """The width of one small vector would make square maps of a million numbers a side."""
    model = create_model("ms_sl", **SIZES)
    released = export_released(model.released_names(), model.state_dict())
    wide = {name: torch.zeros(1_000_000) for name in released if name.endswith("_encoder.output.LayerNorm.weight")}
    torch.save({"model": wide | {"modular_vector_mapping.weight": torch.zeros(1, 1_000_000)}}, tmp_path / "model.ckpt")
    with refused(CheckpointError, str(tmp_path / "model.ckpt")):
        import_released_file("ms_sl", tmp_path / "model.ckpt", data="tvr")


def test_impossible_numbers_in_settings_are_not_read(tmp_path):
    config = CONFIG | {"hidden_size": 2**62, "map_size": float("inf"), "attention_num": 10**9, "n_heads": 2}
    model = create_model("hlformer", **SIZES, lorentz_dim=11)
    save_release(tmp_path / "best.ckpt", model, config=config)
    imported = import_released_file("hlformer", tmp_path / "best.ckpt", data="tvr")
    assert imported.unknown.keys() == {"hidden_size", "map_size", "attention_num"}
    assert imported.model.config.dim == SIZES["dim"]


def test_results_that_are_not_recalls_are_left_out(tmp_path):
    save_release(tmp_path / "v2.ckpt", create_model("ms_sl", **SIZES), config=CONFIG, model_val=[1.0, 2.0, 3.0, 4.0, 5])
    assert import_released_file("ms_sl", tmp_path / "v2.ckpt", data="tvr").validation == {}
