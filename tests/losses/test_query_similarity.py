import pytest
import torch

from untrimmed.losses.query_similarity import query_similarity

QUERIES = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [1.0, 1.0]])
INDEX = torch.tensor([0, 1, 0, 0])  # not contiguous on purpose


@pytest.mark.parametrize("count", [1, 2])
def test_without_siblings_it_is_0_with_a_gradient_of_0(count):
    query = QUERIES[:count].clone().requires_grad_()
    loss = query_similarity(query, torch.arange(count), temperature=0.1)
    loss.backward()
    assert loss.item() == 0
    assert not query.grad.any()


def test_gradients_are_finite_and_pull_siblings_together():
    query = QUERIES.clone().requires_grad_()
    query_similarity(query, INDEX, temperature=0.1).backward()
    assert query.grad.isfinite().all()
    moved = QUERIES - 0.05 * query.grad
    assert query_similarity(moved, INDEX, temperature=0.1) < query_similarity(QUERIES, INDEX, temperature=0.1)
