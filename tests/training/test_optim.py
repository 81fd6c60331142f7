import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from untrimmed.models.registry import create_model
from untrimmed.models.released import UNUSED
from untrimmed.nn.linear import StackedLinear
from untrimmed.training.optim import BertAdam, parameter_groups, tensor_norms

CASES = Path(__file__).parents[1] / "parity" / "cases"


def test_two_updates_by_hand():
    weight = nn.Parameter(torch.tensor([0.5]))
    optimizer = BertAdam([weight], lr=0.1, weight_decay=0.01)
    mean = square = 0.0
    value = 0.5
    for _ in range(2):
        weight.grad = torch.tensor([3.0])
        optimizer.step()
        clipped = 3.0 * min(1, 1 / (3.0 + 1e-6))
        mean, square = 0.9 * mean + 0.1 * clipped, 0.999 * square + 0.001 * clipped**2
        value -= 0.1 * (mean / (square**0.5 + 1e-6) + 0.01 * value)
        assert weight.item() == pytest.approx(value, rel=1e-6)


def test_each_tensor_of_a_stack_is_clipped_by_its_own_norm():
    torch.manual_seed(0)
    stack = StackedLinear(2, 3, 3)
    nn.init.zeros_(stack.weight)
    nn.init.zeros_(stack.bias)
    gradient = torch.stack([torch.full((3, 3), 100.0), torch.full((3, 3), 0.01)])
    stack.weight.grad = gradient.clone()
    singles = [nn.Parameter(torch.zeros(3, 3)) for _ in range(2)]
    for single, own in zip(singles, gradient, strict=True):
        single.grad = own.clone()
    BertAdam(parameter_groups(stack), lr=0.1).step()
    BertAdam(singles, lr=0.1).step()
    assert torch.equal(stack.weight, torch.stack([single.data for single in singles]))
    assert tensor_norms(gradient, 1).flatten().tolist() == pytest.approx([300.0, 0.03])
    assert tensor_norms(torch.tensor([[3.0, -4.0]]), 2).tolist() == [[3.0, 4.0]]  # stacked numbers
    assert tensor_norms(torch.tensor(-4.0), 0).item() == 4.0


def test_a_parameter_without_gradient_is_left_alone_decay_included():
    weight = nn.Parameter(torch.ones(2))
    optimizer = BertAdam([weight], lr=0.1, weight_decay=0.5)
    optimizer.step()
    assert weight.tolist() == [1.0, 1.0]


def test_the_state_survives_saving():
    weight = nn.Parameter(torch.ones(2))
    optimizer = BertAdam([weight], lr=0.1)
    weight.grad = torch.tensor([0.1, 0.2])
    optimizer.step()
    twin = nn.Parameter(weight.detach().clone())
    resumed = BertAdam([twin], lr=0.1)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for w, o in ((weight, optimizer), (twin, resumed)):
        w.grad = torch.tensor([0.3, -0.1])
        o.step()
    assert torch.equal(weight, twin)


def read(names):
    """Those that a release reads."""
    return {name: slot for name, slot in names.items() if slot is not UNUSED}


@pytest.mark.parametrize("method", ["ms-sl", "gmmformer", "gmmformer-v2", "hlformer"])
def test_decay_applies_to_the_released_tensors(method):
    recorded = json.loads((CASES / method / "released-parameters.json").read_text())
    entry = recorded["datasets"]["tvr"] if "datasets" in recorded else recorded
    dims, parameters = entry["dims"], entry["parameters"]
    model = create_model(method.replace("-", "_"), query_dim=dims["text_dim"], video_dim=dims["visual_dim"])
    ours = dict(model.named_parameters())
    decay_of = {id(p): group["weight_decay"] for group in parameter_groups(model) for p in group["params"]}
    names = model.released_names()
    assert names.keys() == parameters.keys() | set(recorded.get("state_dict_aliases_of_manifold_k", []))
    for name, slot in read(names).items():
        assert decay_of[id(ours[slot.parameter])] == parameters[name]["weight_decay"], name
        assert list(slot.export(dict(ours)).shape) == parameters[name]["shape"], name
    assert len(decay_of) == len(ours)


@pytest.mark.parametrize("method", ["ms-sl", "gmmformer", "gmmformer-v2", "hlformer"])
def test_initial_weights_have_the_released_distribution(method):
    recorded = json.loads((CASES / method / "released-parameters.json").read_text())
    entry = recorded["datasets"]["tvr"] if "datasets" in recorded else recorded
    torch.manual_seed(0)
    model = create_model(method.replace("-", "_"), query_dim=768, video_dim=3072)
    state = model.state_dict()
    for name, slot in read(model.released_names()).items():
        values, init = slot.export(state), entry["parameters"][name]["init"]
        if init.startswith("normal(0, "):
            std = float(init.removeprefix("normal(0, ").rstrip(")"))
            assert values.std().item() == pytest.approx(std, rel=4 / (2 * values.numel()) ** 0.5), name
        else:
            constant = float(init.removeprefix("constant ").partition(" (")[0])
            assert values.flatten().tolist() == pytest.approx([constant] * values.numel(), rel=1e-6), name
