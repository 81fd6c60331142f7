import math

import pytest
import torch

from untrimmed.nn.window import constraint_windows


def test_the_papers_window_by_hand():
    # GMMFormer Eq. 7: exp(-(j - i)^2 / sigma^2) / 2 pi
    window = constraint_windows(3, [2.0], formula="paper")[0]
    assert window[0].tolist() == pytest.approx([math.exp(-(d**2) / 2) / (2 * math.pi) for d in range(3)], abs=1e-7)


@pytest.mark.parametrize("constraint", ["gaussian", "bartlett", "boxcar"])
@pytest.mark.parametrize("length", [1, 2, 3, 128])
def test_every_row_peaks_at_one_however_narrow(constraint, length):
    window = constraint_windows(length, [1e-9, 0.1, 10.0], constraint=constraint)
    assert torch.equal(window.max(dim=-1).values, torch.ones(3, length))
    assert (window >= 0).all()


def test_an_infinite_width_is_no_window_in_either_formula():
    for formula in ("released", "paper"):
        assert torch.equal(constraint_windows(4, [math.inf], formula=formula)[0], torch.ones(4, 4))


@pytest.mark.parametrize("constraint", ["bartlett", "boxcar"])
def test_other_windows_have_the_variance_of_the_gaussian_they_replace(constraint):
    position = torch.arange(2001, dtype=torch.float64)
    window = constraint_windows(2001, [2 * 100.0**2], constraint=constraint, formula="paper")[0][1000].double()
    variance = (window * (position - 1000) ** 2).sum() / window.sum()
    assert math.sqrt(variance) == pytest.approx(100, rel=0.01)
