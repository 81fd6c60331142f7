import numpy as np
import pytest
import torch

from tests.refusals import refused
from untrimmed.errors import ConfigError
from untrimmed.models.registry import create_model
from untrimmed.models.storage import save_model
from untrimmed.running.evaluate import evaluate
from untrimmed.running.loaded import open_model


def test_a_model_opens_with_other_settings_than_it_was_saved_with(data_root, tmp_path):
    torch.manual_seed(0)
    save_model(create_model("jsg", query_dim=12, video_dim=10, dim=8, max_frames=20, init_std=0.3), tmp_path)
    glance = {"model.glance_weight": 1.0, "model.gaze_weight": 0.0}
    original, changed = (open_model(tmp_path, data="tvr", root=data_root, changed=by).score() for by in (None, glance))
    np.testing.assert_array_equal(changed.fused, original.branches["glance"])
    assert not np.allclose(original.fused, changed.fused)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"train.epochs": 3},
            ("'train.epochs'", "model.KEY=VALUE", "train.annotators=COUNT"),
        ),
        ({"model.glanceweight": 1.0}, ("'glanceweight'",)),
        ({"model.dim": 4}, ("model.dim", "8", "4")),
    ],
)
def test_settings_fixed_by_training_cannot_be_changed(changed, message, data_root, tmp_path):
    save_model(create_model("jsg", query_dim=12, video_dim=10, dim=8, max_frames=20), tmp_path)
    with refused(ConfigError, *message):
        open_model(tmp_path, data="tvr", root=data_root, changed=changed)


def test_a_report_names_the_changed_settings(data_root, tmp_path):
    save_model(create_model("jsg", query_dim=12, video_dim=10, dim=8, max_frames=20), tmp_path)
    report = evaluate(tmp_path, data="tvr", root=data_root, moments=False, changed={"model.gaze_weight": 0.5})
    assert report.title == "jsg on tvr, test, model.gaze_weight=0.5"
