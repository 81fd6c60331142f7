import json

import pytest
import torch

from tests.retrieval_world import SIZES
from untrimmed.errors import CheckpointError
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
        ({"method": "gmmformer_v9"}, "Did you mean 'gmmformer_v2'"),
        ({"format": 99}, "format 99, this version reads 1"),
        ({"model": {"query_dim": 6}}, "'video_dim' is missing"),
        ({"model": SIZES | {"dim": 16}}, "the settings beside it want"),
    ],
)
def test_settings_that_do_not_fit_are_refused(folder, change, message):
    settings = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=message):
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


def test_weights_that_cannot_be_written_are_told_and_leave_nothing(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be written .* free space"):
        write_tensors(tmp_path / "model.safetensors", {"weight": torch.zeros(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
