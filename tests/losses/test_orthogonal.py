import pytest
import torch

from untrimmed.losses.orthogonal import orthogonal


def test_orthogonal_and_opposite_prototypes_cost_nothing():
    assert orthogonal(torch.eye(4)[None] * 3) == 0
    assert orthogonal(torch.tensor([[[1.0, 2.0], [-2.0, -4.0]]])) == 0


def test_equal_prototypes_cost_one():
    assert orthogonal(torch.ones(2, 5, 3)).item() == pytest.approx(1, abs=1e-6)


def test_three_prototypes_by_hand():
    # Cosines 0.6, 0.8 and 0; each pair counts twice of six: (0.6 + 0.8) / 3; squared: (0.36 + 0.64) / 3.
    prototypes = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [3.0, 4.0]]])
    assert orthogonal(prototypes).item() == pytest.approx(1.4 / 3, abs=1e-6)
    assert orthogonal(prototypes, norm="squared").item() == pytest.approx(1 / 3, abs=1e-6)


def test_videos_are_averaged_and_a_single_prototype_costs_nothing():
    pair = torch.tensor([[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [-0.6, 0.8]]])
    assert orthogonal(pair).item() == pytest.approx(0.3, abs=1e-6)
    assert orthogonal(pair[:, :1]) == 0


def test_prototypes_with_a_negative_cosine_have_no_gradient():
    prototypes = torch.tensor([[[1.0, 0.0], [-0.6, 0.8]]], requires_grad=True)
    orthogonal(prototypes).backward()
    assert prototypes.grad.eq(0).all()
