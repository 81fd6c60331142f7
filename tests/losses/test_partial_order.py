import math

import pytest
import torch

from untrimmed.losses.partial_order import exterior_angle, lifted, partial_order

ONE = torch.tensor(1.0)


def test_very_long_tangent_vectors_stay_finite():
    assert lifted(torch.full((1, 4), 1e4), ONE).norm().item() == pytest.approx(2**15, rel=1e-4)


def test_angles_near_the_origin_are_those_of_the_plane():
    video = torch.tensor([[1.0, 0.0]]).expand(3, 2) * 1e-2
    text = torch.tensor([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]]) * 1e-2
    expected = [math.pi / 4, math.pi / 2, 3 * math.pi / 4]  # from (1, 0) these are (1, 1), (0, 1), (-1, 1)
    exact = exterior_angle(video.double(), text.double(), ONE.double())
    assert exact.tolist() == pytest.approx(expected, abs=1e-3)


def test_the_angle_is_that_of_the_law_of_cosines_in_hyperbolic_space():
    video, text, c = (
        torch.tensor([[0.8, 0.0]]).double(),
        torch.tensor([[0.5, 0.9]]).double(),
        torch.tensor(2.0).double(),
    )
    at_video = exterior_angle(video, text, c)
    distance = lambda x, y: torch.acosh(  # noqa: E731
        c * ((1 / c + (x * x).sum(-1)).sqrt() * (1 / c + (y * y).sum(-1)).sqrt() - (x * y).sum(-1))
    )
    a, b, d = distance(video, text), distance(torch.zeros_like(video), video), distance(torch.zeros_like(text), text)
    inner = (
        (a.cosh() * b.cosh() - d.cosh()) / (a.sinh() * b.sinh())
    ).arccos()  # the angle of the triangle at the video
    assert at_video.item() == pytest.approx(math.pi - inner.item(), abs=1e-6)


def test_gradients_are_finite_where_the_formula_has_none():
    for tangent in (torch.zeros(2, 3), torch.eye(3)[:1].expand(2, 3)):
        text, video = tangent.clone().requires_grad_(), (tangent / 2).requires_grad_()
        c = torch.tensor(1.0, requires_grad=True)
        partial_order(lifted(text, c), lifted(video, c), torch.arange(2), c).backward()
        assert all(x.grad.isfinite().all() for x in (text, video, c))


def test_gradients_are_those_of_the_formula():
    torch.manual_seed(0)
    text, video = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    c, index = torch.tensor(0.7, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 1, 3])
    loss = lambda text, video, c: partial_order(lifted(text, c), lifted(video, c), index, c)  # noqa: E731
    assert torch.autograd.gradcheck(loss, (text, video, c))
