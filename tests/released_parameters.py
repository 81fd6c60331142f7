"""What the released programs recorded of their parameters, held against ours."""

from collections.abc import Mapping
from typing import Any

import pytest

from untrimmed.models.base import RetrievalModel
from untrimmed.training.optim import parameter_groups


def check_parameters(model: RetrievalModel, recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Names, and of each that is trained its shape, decay and first values, the drawn ones by their deviation."""
    ours, names = dict(model.named_parameters()), model.released_names()
    decay_of = {id(p): group["weight_decay"] for group in parameter_groups(model) for p in group["params"]}
    assert names.keys() == recorded.keys()
    for name, entry in recorded.items():
        if not entry.get("trained", True):
            continue
        values = names[name].export(ours).detach()
        assert list(values.shape) == entry["shape"], name
        assert decay_of[id(ours[names[name].parameter])] == entry["weight_decay"], name
        if entry["init"].startswith("constant"):
            assert (values == float(entry["init"].removeprefix("constant "))).all(), name
        else:
            std = float(entry["init"].removeprefix("normal(0, ").rstrip(")"))
            assert values.std().item() == pytest.approx(std, rel=5 / (2 * values.numel()) ** 0.5), name
