import math

import pytest
import torch

from untrimmed.losses.nce import nce, nce_of_shares, nce_of_videos


def test_a_video_without_query_is_left_out():
    scores = torch.randn(3, 3)
    index = torch.tensor([0, 0, 2])
    with_empty = nce_of_videos(scores, index)
    without = nce_of_videos(scores[:, [0, 2]], torch.tensor([0, 0, 1]))
    assert with_empty.item() == pytest.approx(without.item())


def test_one_query_and_one_video_give_zero():
    assert nce(torch.tensor([[3.0]]), torch.tensor([0])).item() == pytest.approx(0)


def test_large_scores_do_not_overflow():
    assert torch.isfinite(nce(torch.tensor([[1e4, -1e4], [0.0, 1e4]]), torch.tensor([0, 1])))


def test_shares_exclude_other_queries_of_the_same_video():
    cosine = torch.tensor([[0.6, 0.2], [0.3, 0.1], [0.4, 0.8]])
    shares = [(0.6 / 0.8, 0.6 / 1.0), (0.3 / 0.4, 0.3 / 0.7), (0.8 / 1.2, 0.8 / 1.1)]  # among videos, among queries
    expected = -sum(math.log(videos) + math.log(queries) for videos, queries in shares) / 3
    assert nce_of_shares(cosine, torch.tensor([0, 0, 1])).item() == pytest.approx(expected)


def test_negative_similarities_have_no_share_and_finite_gradients():
    cosine = torch.tensor([[0.5, -0.9], [-0.2, -0.1]], requires_grad=True)
    loss = nce_of_shares(cosine, torch.tensor([0, 1]))
    loss.backward()
    assert loss.item() == pytest.approx(2 * math.log(2) / 2, abs=1e-4)  # the second pair: 1e-6 among two of them
    assert cosine.grad.isfinite().all()
    assert cosine.grad[1].tolist() == [0, 0]
