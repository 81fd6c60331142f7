"""The differences of prototypes: figures computed by hand, and runs with the same settings share a row."""

import pytest
import torch

from benchmarks import prototype_readings
from untrimmed.nn.prototypes import Prototypes


def test_figures_of_two_readings_worked_out_by_hand():
    # Two videos of two prototypes each. All vectors are along two axes.
    x, y = [1.0, 0.0], [0.0, 2.0]
    first = torch.tensor([[x, x], [x, y]])  # pairs of a video: 1, 0; one prototype in both: 1, 0
    last = torch.tensor([[x, y], [y, x]])  # the second, third and fourth have turned
    looks = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]])  # half of four pairs differ by 1
    made = prototype_readings.figures([Prototypes(first, looks), Prototypes(last, looks)])
    assert made == pytest.approx([0.25, 0.5, 0.0, 0.5, 0.0, 0.25])
