import math

import pytest
import torch

from untrimmed.losses.branch import square_branch_terms
from untrimmed.losses.draws import Draws


def test_the_papers_nce_divides_cosines_without_exponentials():
    cosine = torch.tensor([[0.6, 0.2], [0.3, 0.5]])
    terms = square_branch_terms("x", cosine, 100 * cosine, margin=0.2, draws=Draws(), contrast="paper")
    shares = [0.6 / 0.8, 0.6 / 0.9, 0.5 / 0.8, 0.5 / 0.7]  # row and column of each positive
    assert terms["x_nce"].item() == pytest.approx(-sum(math.log(share) for share in shares) / 2)


@pytest.mark.parametrize(("contrast", "expected"), [("released", math.log(4)), ("per_direction", 2 * math.log(2))])
def test_one_logarithm_over_both_directions_or_one_each(contrast, expected):
    # all zero: 2 + 2 numbers in one logarithm, or 2 in each of two
    dot = torch.zeros(2, 2)
    terms = square_branch_terms("x", dot, dot, margin=0.2, draws=Draws(), contrast=contrast)
    assert terms["x_nce"].item() == pytest.approx(expected)
