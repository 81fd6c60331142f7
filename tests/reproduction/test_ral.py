"""The rows of RAL's tables have the settings that their names describe."""

from pathlib import Path

import pytest
import torch

from untrimmed.models.registry import create_model
from untrimmed.reproduction.papers import paper_named
from untrimmed.reproduction.runner import RunSettings, pairs_of, trial_of


def test_rows_on_msrvtt_start_as_the_clip_network():
    pairs = list(pairs_of(paper_named("ral").entry("table5")))
    assert [(column.name, row.method, row.paper[column.name][0]) for row, column in pairs] == [
        ("msrvtt", "clip4clip", 44.5),
        ("msrvtt", "clip4clip+ral", 47.2),
        ("msrvtt_b16", "clip4clip", 47.1),
        ("msrvtt_b16", "clip4clip+ral", 50.2),
    ]
    for row, column in pairs:
        settled = trial_of(row, column, RunSettings(Path("runs"), root=Path("data"))).settings
        sizes = settled.sizes()
        assert (sizes.query_dim, sizes.video_dim, sizes.max_frames, sizes.sentence) == (512, 512, 12, "last")
        model = create_model(row.method, **settled.settings)
        assert torch.equal(model.frame_map.weight, torch.eye(512))
        assert 1 / model.logit_scale.exp().item() == pytest.approx(0.01)
