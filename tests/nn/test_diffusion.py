import torch

from untrimmed.nn.diffusion import Diffusion
from untrimmed.nn.init import initialise

START = torch.nn.functional.normalize(torch.randn(2, 6, generator=torch.Generator().manual_seed(0)), dim=-1)
CONDITION = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1))


def diffusion(num_steps=4):
    torch.manual_seed(0)
    made = Diffusion(6, num_steps, num_layers=2, init_std=0.5)
    initialise(made, std=0.5)
    return made


def test_the_last_vectors_are_within_bounds_and_follow_their_conditions_alone():
    made = diffusion(num_steps=10)
    registers = made.trajectory(START, CONDITION)[-1]
    assert made.trajectory(START, CONDITION).shape == (10, 2, 3, 6)
    assert registers.abs().max() <= 1
    other = CONDITION.clone()
    other[0, 1] = -other[0, 1]
    changed = (made.trajectory(START, other)[-1] != registers).any(dim=-1)
    assert changed.tolist() == [[False, True, False], [False, False, False]]


def test_all_steps_at_once_equal_single_steps():
    made = diffusion()
    noised = made.noised(torch.randn(2, 3, 6), START)
    together, hints = made.predicted_noise(noised, CONDITION), made.denoiser.hints(CONDITION)
    for t in range(4):
        assert torch.allclose(together[t], made.denoiser(noised[t], [hint[t] for hint in hints]), atol=1e-6)


def test_the_chain_has_full_precision_under_autocast():
    made = diffusion(num_steps=10)
    exact = made.trajectory(START, CONDITION)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(made.trajectory(START, CONDITION), exact)
        assert made.predicted_noise(made.noised(CONDITION, START), CONDITION).dtype == torch.float32
