import math

import pytest
import torch

from untrimmed.nn.diffusion import Diffusion, Schedule
from untrimmed.nn.init import initialise

START = torch.nn.functional.normalize(torch.randn(2, 6, generator=torch.Generator().manual_seed(0)), dim=-1)
CONDITION = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1))


def diffusion(num_steps=4):
    torch.manual_seed(0)
    made = Diffusion(6, num_steps, num_layers=2, init_std=0.5)
    initialise(made, std=0.5)
    return made


def test_the_schedule_of_ten_steps_is_the_printed_one():
    schedule = Schedule.cosine(10)
    kept = [0.972, 0.899, 0.787, 0.647, 0.494, 0.341, 0.203, 0.0940, 0.0241, 2.41e-5]
    assert schedule.kept == pytest.approx(kept, rel=3e-3)
    of_clean, of_present, variance = zip(*schedule.posterior, strict=True)
    assert of_clean == pytest.approx([1, 0.735, 0.553, 0.446, 0.377, 0.330, 0.296, 0.267, 0.234, 0.155], rel=3e-3)
    assert of_present == pytest.approx([0, 0.265, 0.445, 0.548, 0.608, 0.638, 0.639, 0.599, 0.470, 0.0309], rel=3e-3)
    spread = [math.sqrt(v) for v in variance]
    assert spread == pytest.approx([0, 0.144, 0.243, 0.327, 0.407, 0.488, 0.578, 0.687, 0.831, 0.987], rel=4e-3)


def test_one_step_is_the_clamped_guess():
    made = diffusion(num_steps=1)
    kept = made.schedule.kept[0]
    noise = START[:, None].expand_as(CONDITION)
    guessed = made.denoiser(noise, [hint[0] for hint in made.denoiser.hints(CONDITION)])
    expected = (noise / math.sqrt(kept) - math.sqrt(1 / kept - 1) * guessed).clamp(-1, 1)
    assert torch.allclose(made.trajectory(START, CONDITION)[-1], expected, atol=1e-5)


def test_the_last_vectors_are_within_bounds_and_follow_their_conditions_alone():
    made = diffusion(num_steps=10)
    registers = made.trajectory(START, CONDITION)[-1]
    assert made.trajectory(START, CONDITION).shape == (10, 2, 3, 6)
    assert registers.abs().max() <= 1
    other = CONDITION.clone()
    other[0, 1] = -other[0, 1]
    changed = (made.trajectory(START, other)[-1] != registers).any(dim=-1)
    assert changed.tolist() == [[False, True, False], [False, False, False]]


def test_noise_takes_over_from_the_first_step_to_the_last():
    made = diffusion(num_steps=10)
    clean = torch.randn(2, 3, 6)
    noised = made.noised(clean, START)
    for t, kept in enumerate(made.schedule.kept):
        expected = math.sqrt(kept) * clean + math.sqrt(1 - kept) * START[:, None]
        assert torch.allclose(noised[t], expected, atol=1e-6)


def test_all_steps_at_once_are_each_step_by_itself():
    made = diffusion()
    noised = made.noised(torch.randn(2, 3, 6), START)
    together, hints = made.guessed(noised, CONDITION), made.denoiser.hints(CONDITION)
    for t in range(4):
        assert torch.allclose(together[t], made.denoiser(noised[t], [hint[t] for hint in hints]), atol=1e-6)


def test_the_chain_is_as_exact_under_autocast():
    made = diffusion(num_steps=10)
    exact = made.trajectory(START, CONDITION)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(made.trajectory(START, CONDITION), exact)
        assert made.guessed(made.noised(CONDITION, START), CONDITION).dtype == torch.float32
