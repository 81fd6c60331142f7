import numpy as np
import pytest
import torch
import torch.nn.functional as F

from untrimmed.losses.evidence import dirichlet_error, evidence
from untrimmed.losses.transport import inside_videos, similarities, transport_plan

LABELS = torch.tensor([0, 0, 0, 1])
SETTINGS = {"temperature": 0.1, "regularisation": 0.1, "iterations": 50}


def world(labels=LABELS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    num_videos = int(labels.max()) + 1
    return torch.randn(len(labels), 5, generator=generator), torch.randn(num_videos, 6, 5, generator=generator)


def plan_by_scaling(similarity: np.ndarray, dustbin: float) -> np.ndarray:
    """Sinkhorn's algorithm as textbooks have it, in float64, for the queries of one video and a dustbin below them."""
    num_queries, num_clips = similarity.shape
    kernel = np.exp(np.vstack([similarity, np.full((1, num_clips), dustbin)]) / 0.1)
    mass = np.append(np.ones(num_queries), num_clips) / (num_queries + num_clips)
    columns = np.ones(num_clips)
    for _ in range(2000):
        rows = mass / (kernel @ columns)
        columns = (1 / num_clips) / (kernel.T @ rows)
    plan = (rows[:, None] * kernel * columns)[:-1]
    return plan / plan.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dustbin", [0.0, 0.4, 0.9])
def test_the_plan_is_that_of_optimal_transport_whatever_the_dustbin_costs(dustbin):
    query, clips = world()
    shared = similarities(query, clips, LABELS)
    plan = transport_plan(shared.similarity, shared.mask, regularisation=0.1, iterations=50)
    expected = plan_by_scaling(shared.similarity[0].double().numpy(), dustbin)
    assert np.allclose(plan[0].numpy(), expected, atol=1e-5)
    assert torch.allclose(plan.sum(dim=2), shared.mask.float(), atol=1e-5)


def test_similarities_run_from_the_smallest_to_the_largest_of_a_video_with_0_for_empty_places():
    query, clips = world()
    shared = similarities(query, clips, LABELS)
    cosine = F.normalize(query, dim=-1) @ F.normalize(clips, dim=-1).mT
    assert shared.mask.tolist() == [[True] * 3, [True, False, False]]
    own = cosine[0, :3]
    assert torch.allclose(shared.similarity[0], (own - own.min()) / (own.max() - own.min()), atol=1e-5)
    clips = query[3].abs() + 0.1 * torch.rand(2, 6, 5)  # all cosines of the second video are above 0
    query = query.abs()
    own = F.normalize(query[3], dim=-1) @ F.normalize(clips[1], dim=-1).T
    found = similarities(query, clips, LABELS).similarity[1, 0]
    assert torch.allclose(found, own / own.max(), atol=1e-5)  # 0 of the empty places is the smallest
    alone = similarities(query[3:], clips[1:], torch.tensor([0])).similarity[0, 0]
    assert alone.min() == 0


def test_queries_in_any_order_have_the_same_loss():
    query, clips = world()
    order = torch.tensor([3, 1, 0, 2])
    loss, mixed = (
        inside_videos(query[rows], clips, LABELS[rows], **SETTINGS).item() for rows in (torch.arange(4), order)
    )
    assert loss == pytest.approx(mixed, abs=1e-6)


def test_the_loss_is_the_mean_of_videos_and_one_without_a_query_is_left_out():
    query, clips = world()
    shared = similarities(query, clips, LABELS)
    plan = transport_plan(shared.similarity, shared.mask, regularisation=0.1, iterations=50)
    error = dirichlet_error(plan, evidence(shared.similarity, temperature=0.1))
    expected = (error[0].mean() + error[1, 0]) / 2
    more = torch.cat([clips, torch.randn(1, 6, 5)])
    for given in (clips, more):
        assert inside_videos(query, given, LABELS, **SETTINGS).item() == pytest.approx(expected.item(), abs=1e-6)


def test_gradient_flows_through_similarities_and_their_bounds_but_not_through_the_plan():
    query, clips = world()
    query.requires_grad_()
    inside_videos(query, clips, LABELS, **SETTINGS).backward()
    assert (query.grad.abs().sum(dim=1) > 0).all()
    shared = similarities(query, clips, LABELS)
    assert shared.similarity.requires_grad
    assert not transport_plan(shared.similarity, shared.mask, regularisation=0.1, iterations=5).requires_grad


def test_equal_clips_get_equal_shares():
    query, clips = torch.ones(1, 5, requires_grad=True), torch.ones(1, 6, 5)
    loss = inside_videos(query, clips, torch.tensor([0]), **SETTINGS)
    loss.backward()
    assert loss.isfinite()
    assert query.grad.isfinite().all()
