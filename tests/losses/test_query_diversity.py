import math

import pytest
import torch

from untrimmed.losses.query_diversity import query_diversity, query_diversity_v1

QUERIES = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [1.0, 1.0]])
INDEX = torch.tensor([0, 1, 0, 0])  # not contiguous on purpose


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def test_the_papers_scale_is_per_video():
    # video 0 has 3 queries: 2 / (3 * 2) times the sum over ordered pairs; only one video has pairs
    released = query_diversity(QUERIES, INDEX, margin=0.1, scale=3.0, focus=1.0).item() * 4
    value = query_diversity(QUERIES, INDEX, margin=0.1, scale=3.0, focus=1.0, reduction="paper")
    assert value.item() == pytest.approx(released * 2 / 6, rel=1e-6)


def test_the_first_version_of_the_paper_takes_the_logarithm_pair_by_pair():
    half = 1 / math.sqrt(2)
    expected = 2 * (softplus(3 * (1 + 0.1)) + 2 * softplus(3 * (half + 0.1))) / 4
    value = query_diversity_v1(QUERIES, INDEX, margin=0.1, scale=3.0, reduction="paper")
    assert value.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        lambda q, i: query_diversity(q, i, margin=0.2, scale=32.0, focus=1.0),
        lambda q, i: query_diversity_v1(q, i, margin=0.2, scale=32.0),
        lambda q, i: query_diversity_v1(q, i, margin=0.2, scale=32.0, reduction="paper"),
    ],
)
def test_a_query_alone_in_its_video_costs_nothing(loss):
    assert loss(QUERIES[:1], torch.tensor([0])).item() == 0
    assert loss(QUERIES[:2], torch.tensor([0, 1])).item() == 0


def test_opposite_queries_with_a_fractional_focus_have_finite_gradients():
    query = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    query_diversity(query, torch.tensor([0, 0]), margin=0.2, scale=32.0, focus=0.5).backward()
    assert torch.isfinite(query.grad).all()


def test_a_large_scale_does_not_overflow():
    assert torch.isfinite(query_diversity_v1(QUERIES, INDEX, margin=1.0, scale=500.0))
