import math

import pytest
import torch

from untrimmed.nn.init import initialise
from untrimmed.nn.prototypes import PrototypeBuilder

BUILDERS = ("cross_attention", "perceiver", "slot_attention")


def new_builder(num_prototypes=3, dim=8, heads=2, std=0.3, **options):
    torch.manual_seed(0)
    builder = PrototypeBuilder(num_prototypes, dim, heads, **({"iterations": 2} | options))
    initialise(builder, std)
    return builder


@pytest.fixture
def rows():
    torch.manual_seed(1)
    return torch.randn(2, 5, 8), torch.tensor([[True] * 5, [True, True, False, False, False]])


@pytest.mark.parametrize("builder", BUILDERS)
def test_attention_sums_to_one_and_padding_gets_none(builder, rows):
    prototypes = new_builder(builder=builder)(*rows)
    assert prototypes.vectors.shape == (2, 3, 8)
    assert torch.allclose(prototypes.attention.sum(-1), torch.ones(2, 3), atol=1e-6)
    assert prototypes.attention[1, :, 2:].eq(0).all()


@pytest.mark.parametrize("builder", BUILDERS)
def test_padding_and_other_sequences_do_not_change_prototypes(builder, rows):
    model = new_builder(builder=builder)
    x, mask = rows
    whole = model(x, mask).vectors
    assert torch.allclose(model(x[1:, :2]).vectors, whole[1:], atol=1e-6)
    assert torch.allclose(model(torch.where(mask[..., None], x, 99.0), mask).vectors, whole, atol=1e-6)


def test_two_iterations_by_hand():
    # Identity maps and one prototype: softmax(norm(P) norm(X)^T / sqrt(2)) X, then with norm(mixture) + P as the query.
    model = PrototypeBuilder(1, 2, 1, iterations=2)
    with torch.no_grad():
        for linear in (model.query, model.key):
            linear.weight.copy_(torch.eye(2))
            linear.bias.zero_()
        model.prototypes.copy_(torch.tensor([[5.0, 3.0]]))  # normalised: (1, -1)
    rows = torch.tensor([[[2.0, 0.0], [0.0, 7.0]]])  # normalised: (1, -1), (-1, 1)
    first, second = model.readings(rows)
    share = 1 / (1 + math.exp(-4 / math.sqrt(2)))  # logits are 2 and -2, divided by sqrt(2)
    assert first.attention[0, 0].tolist() == pytest.approx([share, 1 - share], abs=1e-4)
    assert first.vectors[0, 0].tolist() == pytest.approx([2 * share, 7 * (1 - share)], abs=1e-4)
    # The mixture is (1.89, 0.39), normalised (1, -1). The next query is (6, 2): logits 4 and -4.
    share = 1 / (1 + math.exp(-8 / math.sqrt(2)))
    assert second.attention[0, 0].tolist() == pytest.approx([share, 1 - share], abs=1e-4)
    assert second.vectors[0, 0].tolist() == pytest.approx([2 * share, 7 * (1 - share)], abs=1e-4)


def test_a_prototype_is_the_mean_of_the_rows_weighted_by_its_attention(rows):
    x, mask = rows
    prototypes = new_builder()(x, mask)
    assert torch.allclose(prototypes.vectors, prototypes.attention @ x, atol=1e-6)


def test_each_iteration_yields_its_prototypes(rows):
    model = new_builder(iterations=3)
    *_, last = model.readings(*rows)
    assert torch.equal(last.vectors, model(*rows).vectors)
    assert torch.equal(next(model.readings(*rows)).vectors, new_builder(iterations=1)(*rows).vectors)


@pytest.mark.parametrize("dim", [64, 384])
@pytest.mark.parametrize("sharpness", [1.0, 4.0])
def test_initial_logits_have_the_given_deviation(dim, sharpness):
    model = new_builder(60, dim, std=0.02, iterations=1, sharpness=sharpness)
    query = model.query(model.prototype_norm(model.prototypes))
    key = model.key(model.input_norm(torch.randn(500, dim)))
    assert (query @ key.T / math.sqrt(dim)).std().item() == pytest.approx(sharpness, rel=0.1)


@pytest.mark.parametrize("iterations", [1, 6])
def test_prototypes_of_a_video_differ_and_receive_gradients(iterations):
    rows = torch.randn(2, 1, 384) + torch.randn(2, 40, 384)  # a shared part, as the clips of a video have
    model = new_builder(30, 384, std=0.02, iterations=iterations)
    vectors = model(rows).vectors
    assert (vectors - vectors[:, :1]).abs().mean().item() > 0.1
    (vectors * torch.randn_like(vectors)).sum().backward()
    assert model.prototypes.grad.abs().max().item() > 1e-3


@pytest.mark.parametrize("builder", BUILDERS)
def test_iterations_share_their_weights(builder):
    def num_parameters(iterations):
        return sum(p.numel() for p in new_builder(builder=builder, iterations=iterations).parameters())

    assert num_parameters(1) == num_parameters(6)


def test_prototypes_compete_for_rows_only_in_slot_attention():
    rows = torch.randn(1, 5, 8)
    for builder in BUILDERS:
        model = new_builder(2, builder=builder, iterations=1)
        before = model(rows).attention[0, 0]
        with torch.no_grad():
            model.prototypes[1] = -model.prototypes[0]  # the first prototype stays as it is
        after = model(rows).attention[0, 0]
        assert torch.allclose(before, after, atol=1e-6) == (builder != "slot_attention")
