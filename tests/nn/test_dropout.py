"""Masks: how many are kept, how evenly, and by which seed."""

import pytest
import torch

from untrimmed.nn.dropout import Dropout, keep_mask


def test_dropout_keeps_the_mean_and_passes_gradients_where_it_keeps():
    x = torch.ones(200_000, requires_grad=True)
    out = Dropout(0.31)(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, out.detach())
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.69])
    assert out.mean().item() == pytest.approx(1, abs=0.01)
    assert Dropout(0.31).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_masks_are_even_over_all_lanes_and_follow_the_seed():
    torch.manual_seed(5)
    mask = keep_mask((4, 100_000), 0.2, torch.float32)
    by_lane = mask.flatten().view(-1, 4).float().mean(dim=0)
    assert by_lane.tolist() == pytest.approx([0.8] * 4, abs=0.005)
    torch.manual_seed(5)
    assert torch.equal(mask, keep_mask((4, 100_000), 0.2, torch.float32))
    assert keep_mask((3,), 0.5, torch.float32).shape == (3,)
