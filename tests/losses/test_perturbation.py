import torch

from untrimmed.losses.draws import Draws
from untrimmed.losses.perturbation import mean_queries, perturbed

MEAN = torch.tensor([[1.0, 3.0, 5.0, 7.0], [-2.0, 0.0, 1.0, 1.0]])


def test_means_are_of_each_videos_own_queries_and_not_of_length_1():
    query = torch.tensor([[1.0, 0.0], [4.0, 4.0], [3.0, 2.0]])
    assert mean_queries(query, torch.tensor([2, 0, 2]), 3).tolist() == [[4.0, 4.0], [0.0, 0.0], [2.0, 1.0]]


def test_without_noise_a_vector_is_standardised_around_its_own_mean():
    nothing = torch.zeros(2, 3, 4)
    deviation = MEAN.var(dim=1, correction=0, keepdim=True).add(1e-5).sqrt()
    centre = MEAN.mean(dim=1, keepdim=True)
    expected = (MEAN - centre) / deviation + centre
    assert torch.allclose(perturbed(MEAN, nothing, nothing, strength=0.1), expected[:, None].expand(2, 3, 4), atol=1e-6)


def test_noise_scales_and_shifts_by_a_tenth_of_the_deviation():
    nothing, one = torch.zeros(2, 1, 4), torch.ones(2, 1, 4)
    plain = perturbed(MEAN, nothing, nothing, strength=0.1)
    deviation = MEAN.std(dim=1)[:, None, None]  # divisor D - 1
    assert torch.allclose(
        perturbed(MEAN, nothing, one, strength=0.1) - plain, 0.1 * deviation.expand_as(plain), atol=1e-5
    )
    standardised = plain - MEAN.mean(dim=1)[:, None, None]
    assert torch.allclose(
        perturbed(MEAN, one, nothing, strength=0.1) - plain, 0.1 * deviation * standardised, atol=1e-5
    )


def test_gradients_go_through_what_is_changed_and_not_through_how_much():
    mean = MEAN.clone().requires_grad_()
    noise = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    perturbed(mean, noise, noise, strength=0.1).square().sum().backward()
    again = MEAN.clone().requires_grad_()
    scale = 1 + 0.1 * MEAN.std(dim=1)[:, None, None] * noise
    shift = MEAN.mean(dim=1)[:, None, None] + 0.1 * MEAN.std(dim=1)[:, None, None] * noise
    standardised = torch.nn.functional.layer_norm(again, (4,))[:, None]
    (scale * standardised + shift).square().sum().backward()
    assert torch.allclose(mean.grad, again.grad, atol=1e-6)


def test_fresh_noise_is_standard_normal():
    draws = Draws(generator=torch.Generator().manual_seed(0))
    first, second = (draws.normal(name, 50, 8, 64) for name in ("register_scale", "register_shift"))
    assert not torch.equal(first, second)
    for noise in (first, second):
        assert abs(noise.mean().item()) < 0.02
        assert abs(noise.std().item() - 1) < 0.02
