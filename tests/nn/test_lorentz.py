import math

import pytest
import torch

from untrimmed.nn.init import initialise
from untrimmed.nn.lorentz import (
    LorentzAttention,
    bounded,
    centroid,
    exponential_map,
    logarithmic_map,
    points_of,
)


def attention(count=2, *, dropout=0.0, lorentz_dim=7, std=0.3):
    torch.manual_seed(0)
    made = LorentzAttention(count, dim=8, lorentz_dim=lorentz_dim, num_heads=2, dropout=dropout)
    initialise(made, std)
    return made


def test_the_logarithmic_map_undoes_the_exponential_map():
    torch.manual_seed(0)
    tangent = torch.randn(20, 5, dtype=torch.float64)
    assert torch.allclose(logarithmic_map(exponential_map(tangent)), tangent, atol=1e-6)
    assert logarithmic_map(exponential_map(torch.zeros(1, 5))).tolist() == [[0.0] * 5]


def test_tangent_vectors_longer_than_ten_count_as_ten():
    direction = torch.tensor([[0.6, 0.8]])
    assert torch.allclose(exponential_map(30 * direction), exponential_map(10 * direction))


def test_maps_have_the_gradients_of_their_formulas():
    torch.manual_seed(0)
    tangent = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([[3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(exponential_map, tangent)
    assert torch.autograd.gradcheck(lambda x: logarithmic_map(exponential_map(x)), tangent)
    assert torch.autograd.gradcheck(points_of, (rows, scale))
    assert torch.autograd.gradcheck(lambda x: centroid(exponential_map(x).sum(dim=0)), tangent)


@pytest.mark.parametrize("function", [exponential_map, logarithmic_map, lambda x: points_of(x, torch.ones(1, 1))])
def test_zero_vectors_have_finite_gradients(function):
    x = torch.zeros(1, 4, requires_grad=True)
    made = function(x)
    made.sum().backward()
    assert made.isfinite().all()
    assert x.grad.isfinite().all()


def test_stacked_attentions_equal_single_ones():
    torch.manual_seed(1)
    both, x, mask = attention(2), torch.randn(3, 5, 8), torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    windows = torch.rand(2, 5, 5)
    for k in range(2):
        alone = attention(1)
        alone.load_state_dict({name: tensor[k : k + 1] for name, tensor in both.state_dict().items()})
        assert torch.allclose(alone(x, windows[k : k + 1], mask)[0], both(x, windows, mask)[k], atol=1e-6)
    assert torch.allclose(both(x.expand(2, 3, 5, 8), windows, mask), both(x, windows, mask), atol=1e-6)


def test_padding_attends_to_real_rows_and_is_not_attended_to():
    torch.manual_seed(1)
    made, x, mask = attention(), torch.randn(1, 5, 8), torch.tensor([[True, True, True, False, False]])
    other = x.clone()
    other[0, 4] = 9.0
    before, after = made(x, None, mask), made(other, None, mask)
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.allclose(before[:, :, 4], after[:, :, 4])


@pytest.mark.parametrize("lorentz_dim", [3, 7])
def test_dropout_of_a_whole_point_gives_finite_results(lorentz_dim):
    made = attention(dropout=0.9, lorentz_dim=lorentz_dim).train()
    x = torch.randn(4, 6, 8, requires_grad=True)
    for _ in range(5):
        out = made(x)
        out.sum().backward()
        assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in made.parameters())


def test_queries_keys_and_values_have_separate_dropout():
    made = attention(1, dropout=0.5)
    with torch.no_grad():
        made.linear.weight.copy_(made.linear.weight[:, :1].expand_as(made.linear.weight))
    points = exponential_map(torch.rand(1, 3, 5, 7))
    query, key, value = made.eval().linear(points)
    assert torch.equal(query, key)
    assert torch.equal(key, value)
    query, key, value = made.train().linear(points)
    assert not torch.allclose(query, key)
    assert not torch.allclose(key, value)


def test_under_autocast_points_stay_in_single_precision():
    torch.manual_seed(1)
    made, x = attention(), torch.randn(3, 5, 8)
    exact = made(x)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = made(x)
    assert torch.allclose(narrow.float(), exact, atol=0.05)


def test_a_bound_is_stored_in_training_and_lets_gradients_pass():
    parameter = torch.nn.Parameter(torch.tensor([0.4, -1.0]))
    value = bounded(parameter, -math.inf, 0.0, overwrite=False)
    assert value.tolist() == [0.0, -1.0]
    assert parameter.tolist() == pytest.approx([0.4, -1.0])
    value.sum().backward()
    assert parameter.grad.tolist() == [1.0, 1.0]
    assert bounded(parameter, -math.inf, 0.0, overwrite=True).tolist() == [0.0, -1.0]
    assert parameter.tolist() == [0.0, -1.0]
