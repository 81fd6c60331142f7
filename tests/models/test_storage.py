import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.refusals import refused
from tests.retrieval_world import SIZES
from untrimmed.errors import CheckpointError
from untrimmed.models import storage
from untrimmed.models.registry import create_model
from untrimmed.models.storage import load_model, save_model, write_tensors


@pytest.fixture
def folder(tmp_path):
    save_model(create_model("gmmformer_v2", **SIZES), tmp_path / "run")
    return tmp_path / "run"


def test_settings_are_plain_json_that_names_the_method(folder):
    settings = json.loads((folder / "config.json").read_text())
    assert settings["method"] == "gmmformer_v2"
    assert settings["model"]["gaussian_widths"][0] == "inf"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "gmmformer_v9"}, ("'gmmformer_v2'",)),
        ({"format": 99}, ("config.json",)),
        ({"weights_sha256": None}, ("config.json",)),
        ({"model": {"query_dim": 6}}, ("'video_dim'",)),
        ({"model": SIZES | {"dim": 16}}, ()),
    ],
)
def test_settings_that_do_not_fit_are_refused(folder, change, message):
    settings = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(settings))
    with refused(CheckpointError, *message):
        load_model(folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_or_truncated_file_is_named(folder, file):
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=file):
        load_model(folder)
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match=file):
        load_model(folder)


def test_a_failed_write_of_weights_is_reported_and_leaves_no_file(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with refused(CheckpointError, "model.safetensors"):
        write_tensors(tmp_path / "model.safetensors", {"weight": torch.zeros(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("damage", ["flipped", "zeroed", "another"])
def test_weights_that_were_not_saved_with_the_settings_are_refused(damage, folder):
    """The weights are complete, finite and of the right shapes, but belong to another model."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    if damage == "flipped":
        next(iter(tensors.values())).view(torch.uint8).reshape(-1)[:1] ^= 1
    elif damage == "zeroed":
        tensors = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    else:
        tensors = create_model("gmmformer_v2", **SIZES).state_dict()
    save_file(tensors, path)
    with refused(CheckpointError, "model.safetensors", "config.json"):
        load_model(folder)


def test_a_saved_model_is_complete_if_saving_is_killed_at_any_time(folder, monkeypatch):
    """After the settings are written, both the old and the new weights are valid; at the end only the new ones."""
    settings = folder / "config.json"
    before, old = (folder / "model.safetensors").read_bytes(), json.loads(settings.read_text())["weights_sha256"]
    monkeypatch.setattr(storage, "write_tensors", lambda path, tensors: kept.append((path, tensors)))
    kept: list = []
    with monkeypatch.context() as patch:
        patch.setattr(
            storage,
            "_write_settings",
            lambda path, values, write=storage._write_settings: (
                write(path, values) if len(values["weights_sha256"]) == 2 else None
            ),
        )
        save_model(create_model("gmmformer_v2", **SIZES), folder)
    load_model(folder)
    monkeypatch.undo()
    write_tensors(*kept[0])
    load_model(folder)
    (folder / "model.safetensors").write_bytes(before)
    save_model(load_model(folder), folder)
    assert json.loads(settings.read_text())["weights_sha256"] == old
