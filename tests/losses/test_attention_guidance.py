import math

import pytest
import torch

from untrimmed.losses.attention_guidance import attention_guidance

FIRST = torch.tensor([True])


def test_enough_attention_on_the_right_video_costs_nothing():
    for share, first in ((0.8, True), (0.97, True), (0.2, False), (0.0, False)):
        assert attention_guidance(torch.tensor([share]), torch.tensor([first]), margin=0.2).abs() < 1e-6


def test_less_attention_costs_its_negative_logarithm():
    assert attention_guidance(torch.tensor([0.3]), FIRST, margin=0.2).item() == pytest.approx(-math.log(0.5), abs=1e-6)


def test_swapping_the_two_videos_changes_nothing():
    share = torch.tensor([0.1, 0.45, 0.7])
    first = torch.tensor([True, False, True])
    kept = attention_guidance(share, first, margin=0.2)
    assert torch.allclose(attention_guidance(1 - share, ~first, margin=0.2), kept)


def test_without_the_clamp_it_is_equation_seven():
    # -[ln(0.9 + 0.2) + ln(1 - (0.05 - 0.2))] / 2, which is negative
    value = attention_guidance(torch.tensor([0.9, 0.05]), torch.tensor([True, False]), margin=0.2, clamp=False)
    assert value.item() == pytest.approx(-(math.log(1.1) + math.log(1.15)) / 2, abs=1e-6)
