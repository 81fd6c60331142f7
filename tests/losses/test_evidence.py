import math

import pytest
import torch

from untrimmed.losses.evidence import (
    POLYSEMOUS,
    PRECISE,
    UNDERDETERMINED,
    ambiguous,
    between_videos,
    combine,
    dirichlet_error,
    divide,
    evidence,
)

SETTINGS = {"temperature": 0.2, "bound": 0.3, "smoothing": 0.2}
LABELS = torch.tensor([0, 0, 1, 2, 2, 3])


def cosines(seed: int, rows: int = 6, columns: int = 4) -> torch.Tensor:
    return 0.9 * torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_evidence_of_half_precision_is_finite():
    assert evidence(torch.tensor([1.0]).half(), temperature=0.04).tolist() == pytest.approx(
        [math.exp(math.tanh(1) / 0.04)]
    )


def test_combined_evidence_follows_dempsters_rule():
    first, second = evidence(cosines(0), temperature=0.2), evidence(cosines(1), temperature=0.2)
    total = [(e + 1).sum(dim=1, keepdim=True) for e in (first, second)]
    belief, uncertainty = ([first / total[0], second / total[1]], [4 / t for t in total])
    products = belief[0][:, :, None] * belief[1][:, None, :]
    conflict = products.sum(dim=(1, 2)) - products.diagonal(dim1=1, dim2=2).sum(dim=1)
    together = belief[0] * belief[1] + belief[0] * uncertainty[1] + belief[1] * uncertainty[0]
    together = together / (1 - conflict)[:, None]
    left = uncertainty[0] * uncertainty[1] / (1 - conflict)[:, None]
    assert torch.allclose(combine(first, second), together * 4 / left, rtol=1e-4)


def test_fully_conflicting_sources_combine_to_finite_evidence():
    sides = torch.full((2, 128), -0.1)
    sides[0, 0], sides[1, 1] = 0.98, 0.98
    first, second = evidence(sides, temperature=0.033)
    assert combine(first, second).isfinite().all()


def test_the_error_is_the_mean_over_draws_of_the_distribution():
    torch.manual_seed(0)
    found, target = torch.tensor([3.0, 0.5, 1.0]), torch.tensor([0.2, 0.8, 0.0])
    drawn = torch.distributions.Dirichlet(found + 1).sample((200_000,))
    assert dirichlet_error(target, found).item() == pytest.approx(
        (drawn - target).square().sum(1).mean().item(), abs=2e-3
    )


def test_queries_are_divided_by_their_own_cosine_their_uncertainty_and_their_entropy():
    similarity = torch.tensor(
        [
            [0.9, 0.1, 0.1, 0.1],  # sure of its own
            [0.2, 0.1, 0.1, 0.9],  # sure of another: its own cosine is below all of those that are right
            [0.5, 0.6, 0.5, 0.4],  # right, but several fit
            [0.1, 0.1, 0.35, 0.1],  # right, but not sure
        ]
    )
    found, own = evidence(similarity, temperature=0.2), torch.tensor([0, 0, 1, 2])
    made = divide(similarity, found, own, bound=0.3)
    assert made.group.tolist() == [PRECISE, POLYSEMOUS, POLYSEMOUS, POLYSEMOUS]
    assert made.uncertainty_limit == made.uncertainty[3]
    assert made.consensus_limit.item() == pytest.approx(0.35)
    strict = divide(similarity, found, own, bound=0.8)
    assert strict.group.tolist() == [PRECISE, POLYSEMOUS, POLYSEMOUS, UNDERDETERMINED]
    assert (strict.uncertainty_limit.item(), strict.consensus_limit.item()) == pytest.approx((0.2, 0.8))


def test_the_limit_of_entropy_is_the_lower_of_two_middle_ones():
    similarity = cosines(3)
    made = divide(similarity, evidence(similarity, temperature=0.2), LABELS, bound=0.3)
    assert made.entropy_limit == made.entropy.sort().values[2]
    assert (made.entropy > made.entropy_limit).sum() == 3


def test_without_a_correct_query_the_bounds_are_the_limits():
    similarity = torch.tensor([[0.1, 0.8], [0.8, 0.1]])
    made = divide(similarity, evidence(similarity, temperature=0.2), torch.tensor([0, 1]), bound=0.3)
    assert (made.uncertainty_limit.item(), made.consensus_limit.item()) == pytest.approx((0.7, 0.3))


def test_a_query_underdetermined_in_one_branch_is_not_ambiguous():
    parts = [divide(c, evidence(c, temperature=0.2), LABELS, bound=0.3) for c in (cosines(0), cosines(1))]
    groups = [part.group for part in parts]
    expected = [
        UNDERDETERMINED not in pair and POLYSEMOUS in pair for pair in zip(*(g.tolist() for g in groups), strict=True)
    ]
    assert ambiguous(parts).tolist() == expected
    assert ambiguous(parts[:1]).tolist() == (groups[0] == POLYSEMOUS).tolist()


def test_the_loss_of_one_branch_is_its_error_alone_and_of_two_also_that_of_both():
    first, second = cosines(0), cosines(1)
    target = torch.eye(4)[LABELS]
    alone = between_videos([first], LABELS, divides=False, **SETTINGS)
    assert alone.item() == pytest.approx(dirichlet_error(target, evidence(first, temperature=0.2)).mean().item())
    both = between_videos([first, second], LABELS, divides=False, **SETTINGS)
    together = combine(evidence(first, temperature=0.2), evidence(second, temperature=0.2))
    other = between_videos([second], LABELS, divides=False, **SETTINGS)
    assert (both - alone - other).item() == pytest.approx(dirichlet_error(target, together).mean().item(), abs=1e-6)
    assert between_videos([first, second], LABELS, divides=True, **SETTINGS) != both


def test_one_query_of_one_video_has_a_finite_loss():
    single = torch.tensor([[0.7]], requires_grad=True)
    loss = between_videos([single, single], torch.tensor([0]), divides=True, **SETTINGS)
    loss.backward()
    assert loss.isfinite()
    assert single.grad.isfinite().all()
