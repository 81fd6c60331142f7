import pytest
import torch
import torch.nn.functional as F

from untrimmed.nn.init import initialise
from untrimmed.nn.prototypes import PrototypeBuilder

BUILDERS = ("cross_attention", "perceiver", "slot_attention")


def make(num_prototypes=3, dim=8, heads=2, std=0.3, **options):
    torch.manual_seed(0)
    builder = PrototypeBuilder(num_prototypes, dim, heads, **({"iterations": 2} | options))
    initialise(builder, std)
    return builder


@pytest.fixture
def rows():
    torch.manual_seed(1)
    return torch.randn(2, 5, 8), torch.tensor([[True] * 5, [True, True, False, False, False]])


@pytest.mark.parametrize("builder", BUILDERS)
def test_shares_sum_to_one_and_padding_gets_none(builder, rows):
    made = make(builder=builder)(*rows)
    assert made.vectors.shape == (2, 3, 8)
    assert torch.allclose(made.attention.sum(-1), torch.ones(2, 3), atol=1e-6)
    assert made.attention[1, :, 2:].eq(0).all()


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_sequence_is_read_the_same_alone_and_without_its_padding(builder, rows):
    model = make(builder=builder)
    x, mask = rows
    whole = model(x, mask).vectors
    assert torch.allclose(model(x[1:, :2]).vectors, whole[1:], atol=1e-6)
    assert torch.allclose(model(torch.where(mask[..., None], x, 99.0), mask).vectors, whole, atol=1e-6)


@pytest.mark.parametrize("builder", ["cross_attention", "slot_attention"])
def test_one_row_is_all_that_a_prototype_can_read(builder):
    made = make(builder=builder)(torch.randn(1, 1, 8))
    assert torch.allclose(made.attention, torch.ones(1, 3, 1), atol=1e-6)


@pytest.mark.parametrize(("residual", "kept"), [("none", 0), ("anchored", 0), ("all", 1)])
def test_one_reading_is_equation_one(residual, kept):
    # One head, identity maps: softmax(norm(P) norm(X)^T / sqrt(2)) norm(X), and P itself in a layer with a residual.
    model = PrototypeBuilder(1, 2, 1, iterations=1, residual=residual)
    with torch.no_grad():
        for name in ("query", "key", "value", "output"):
            getattr(model, name).weight.copy_(torch.eye(2))
            getattr(model, name).bias.zero_()
        model.prototypes.copy_(torch.tensor([[5.0, 3.0]]))  # normalised: (1, -1)
    rows = torch.tensor([[[2.0, 0.0], [0.0, 7.0]]])  # normalised: (1, -1), (-1, 1)
    share = torch.tensor([2.0, -2.0]).div(2**0.5).softmax(0)
    made = model(rows)
    assert torch.allclose(made.attention[0, 0], share, atol=1e-4)
    read = (share[0] - share[1]) * torch.tensor([1.0, -1.0])
    assert torch.allclose(made.vectors[0, 0], kept * torch.tensor([5.0, 3.0]) + read, atol=1e-4)


def rows_of_one_video(dim):
    """Rows that share a large part, as all clips of a video do."""
    return torch.randn(2, 1, dim) + torch.randn(2, 40, dim)


def difference(attention):
    """How far two prototypes look apart, from 0 to 1."""
    return 0.5 * (attention[:, :, None] - attention[:, None]).abs().sum(-1).mean().item()


@pytest.mark.parametrize(("residual", "differ"), [("none", False), ("all", True), ("anchored", True)])
def test_prototypes_stay_apart_over_six_readings_only_if_they_keep_what_they_had(residual, differ):
    model = make(30, 384, 4, std=0.02, iterations=6, residual=residual)
    vectors = model(rows_of_one_video(384)).vectors
    assert ((vectors - vectors[:, :1]).abs().max().item() > 1e-3) == differ
    (vectors * torch.randn_like(vectors)).sum().backward()
    assert (model.prototypes.grad.abs().max().item() > 1e-3) == differ


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize(("residual", "differ"), [("all", True), ("anchored", False), ("none", False)])
def test_readings_differ_only_if_they_are_added_to_the_prototypes(residual, differ, norm):
    model = make(30, 384, 4, std=0.02, iterations=6, residual=residual, norm=norm)
    first, *later = (made.vectors for made in model.readings(rows_of_one_video(384)))
    cosines = [F.cosine_similarity(first, vectors, dim=-1).mean().item() for vectors in later]
    if differ:
        assert cosines == sorted(cosines, reverse=True)  # each reading leads farther away
        assert 0.5 < cosines[-1] < 0.9
    else:
        assert min(cosines) > 0.98


def test_the_prototypes_are_those_of_the_last_reading(rows):
    model = make(iterations=3)
    *_, last = model.readings(*rows)
    assert torch.equal(last.vectors, model(*rows).vectors)
    assert torch.equal(next(model.readings(*rows)).vectors, make(iterations=1)(*rows).vectors)


@pytest.mark.parametrize("dim", [64, 384])
def test_learned_prototypes_start_so_many_times_as_large_as_what_a_row_gives(dim):
    model = make(30, dim, 4, std=0.02, iterations=1, residual="all", scale=3.0)
    row = torch.randn(200, 1, dim)
    given = model(row).vectors - model.prototypes
    assert model.prototypes.std().item() == pytest.approx(3 * given.std().item(), rel=0.1)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("residual", ["all", "anchored", "none"])
def test_the_norm_after_a_reading_normalises_what_it_gives(builder, residual, rows):
    before, after = (make(builder=builder, residual=residual, norm=norm) for norm in ("before", "after"))
    plain, normed = (next(model.readings(*rows)).vectors for model in (before, after))
    gain = 2.0 * 0.02**2 * 8 if residual == "all" and builder != "slot_attention" else 1.0
    assert torch.allclose(normed, gain * F.layer_norm(plain, (8,)), atol=1e-6)


def test_prototypes_normalised_after_each_reading_keep_the_size_that_they_start_with():
    model = make(30, 64, 4, std=0.02, iterations=6, residual="all", scale=3.0, norm="after")
    start = model.prototypes.std().item()
    for made in model.readings(rows_of_one_video(64)):
        assert made.vectors.std().item() == pytest.approx(start, rel=0.05)


def test_maps_to_queries_and_keys_start_wide_enough_for_uneven_attention_whatever_the_others_do():
    model = make(30, 256, 4, std=0.02)
    assert model.query.weight.std().item() == pytest.approx(1 / 16, rel=0.02)
    assert model.key.weight.std().item() == pytest.approx(1 / 16, rel=0.02)
    assert model.value.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_the_gated_unit_keeps_by_itself():
    rows = torch.randn(2, 5, 8)
    added, anchored = (
        make(builder="slot_attention", iterations=3, residual=residual)(rows).vectors
        for residual in ("all", "anchored")
    )
    assert torch.equal(added, anchored)


@pytest.mark.parametrize("builder", BUILDERS)
def test_iterations_share_their_weights(builder):
    count = lambda iterations: sum(  # noqa: E731
        p.numel() for p in make(builder=builder, iterations=iterations).parameters()
    )
    assert count(1) == count(6)


def test_slots_compete_for_rows_and_prototypes_do_not():
    rows = torch.randn(1, 5, 8)
    crowd = {builder: make(2, builder=builder, iterations=1)(rows).attention for builder in BUILDERS}
    doubled = {}
    for builder in BUILDERS:
        model = make(2, builder=builder, iterations=1)
        with torch.no_grad():
            model.prototypes[1] = -model.prototypes[0]  # changes who else is there, not the first prototype
        doubled[builder] = model(rows).attention
    assert torch.allclose(crowd["cross_attention"][0, 0], doubled["cross_attention"][0, 0], atol=1e-6)
    assert not torch.allclose(crowd["slot_attention"][0, 0], doubled["slot_attention"][0, 0], atol=1e-3)
