import pytest
import torch

from untrimmed.losses.intra_video import intra_video


def test_only_moments_that_do_not_lead_by_the_margin_count():
    # 0.9 leads 0.2 by enough; 0.5 leads 0.4 by 0.1, short of 0.2 by 0.1; averaged over two
    value = intra_video(torch.tensor([0.9, 0.5]), torch.tensor([0.2, 0.4]), margin=0.2)
    assert value.item() == pytest.approx(0.05)
