import numpy as np
import torch

from untrimmed.models.registry import create_model
from untrimmed.models.storage import save_model
from untrimmed.running.opened import open_model


def test_a_model_opens_with_other_settings_than_it_was_saved_with(data_root, tmp_path):
    torch.manual_seed(0)
    save_model(create_model("jsg", query_dim=12, video_dim=10, dim=8, max_frames=20, init_std=0.3), tmp_path)
    glance = {"glance_weight": 1.0, "gaze_weight": 0.0}
    own, changed = (open_model(tmp_path, data="tvr", root=data_root, changed=by).score() for by in (None, glance))
    np.testing.assert_array_equal(changed.fused, own.branches["glance"])
    assert not np.allclose(own.fused, changed.fused)
