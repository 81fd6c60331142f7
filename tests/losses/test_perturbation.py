import torch

from untrimmed.losses.draws import Draws
from untrimmed.losses.perturbation import perturbed

MEAN = torch.tensor([[1.0, 3.0, 5.0, 7.0], [-2.0, 0.0, 1.0, 1.0]])


def test_gradients_flow_through_the_standardised_vector_only():
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
