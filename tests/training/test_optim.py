import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from untrimmed.nn.linear import StackedLinear
from untrimmed.training.optim import BertAdam, parameter_groups, tensor_norms

CASES = Path(__file__).parents[1] / "parity" / "cases"


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
