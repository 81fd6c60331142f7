"""What the released programs recorded of their parameters, held against ours."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from untrimmed.models.base import RetrievalModel
from untrimmed.training.optim import parameter_groups


def check_parameters(model: RetrievalModel, recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Names, and of each its shape and first values; of what is trained the decay too.

    Tensors recorded as not trained are left out, since we have none; those recorded as frozen are stored alone.
    """
    ours, names = model.state_dict(), model.released_names()
    parameters = dict(model.named_parameters())
    decay_of = {id(p): group["weight_decay"] for group in parameter_groups(model) for p in group["params"]}
    assert names.keys() == recorded.keys()
    for name, entry in recorded.items():
        if not entry.get("trained", True):
            continue
        values = names[name].export(ours)
        assert list(values.shape) == entry["shape"], name
        if "frozen" in entry:
            assert names[name].parameter not in parameters, name
        else:
            assert decay_of[id(parameters[names[name].parameter])] == entry["weight_decay"], name
        check_drawn(values, entry["init"], name)


def check_drawn(values: Tensor, init: str, name: str) -> None:
    """Values against the words in which the record tells how they are drawn."""
    if init.startswith("constant"):
        assert (values == float(init.removeprefix("constant "))).all(), name
    elif init.startswith("orthogonal"):
        assert torch.allclose(values.T @ values, torch.eye(values.shape[1]), atol=1e-5), name
    elif init.startswith("xavier_uniform"):
        bound = (6 / sum(values.shape)) ** 0.5
        assert bound * 0.99 < values.abs().max() <= bound, name
    else:
        std = float(init.removeprefix("normal(0, ").rstrip(")"))
        assert values.std().item() == pytest.approx(std, rel=5 / (2 * values.numel()) ** 0.5), name
