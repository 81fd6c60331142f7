"""A short diffusion over a few vectors a video: its schedule, the network that guesses the noise, and the chain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from untrimmed.nn.norm import LayerNorm


@dataclass(frozen=True)
class Schedule:
    """The share of noise that each of T steps adds, step 0 being the least noisy (all numbers in double precision)."""

    added: tuple[float, ...]

    @classmethod
    def cosine(cls, num_steps: int) -> "Schedule":
        """The cosine schedule (Nichol and Dhariwal 2021), no share above 0.999."""

        def level(step: int) -> float:
            return math.cos((step / num_steps + 0.008) / 1.008 * math.pi / 2) ** 2

        return cls(tuple(min(max(1 - level(t + 1) / level(t), 0.0), 0.999) for t in range(num_steps)))

    @property
    def kept(self) -> tuple[float, ...]:
        """The share of the signal, as a variance, that is left after each step."""
        shares = []
        kept = 1.0
        for added in self.added:
            kept *= 1 - added
            shares.append(kept)
        return tuple(shares)

    @property
    def posterior(self) -> tuple[tuple[float, float, float], ...]:
        """Of each step back: what the clean guess and the present vector weigh, and the variance of what is added."""
        weights = []
        for added, before, after in zip(self.added, (1.0, *self.kept[:-1]), self.kept, strict=True):
            noisy = 1 - after
            of_clean = added * math.sqrt(before) / noisy
            of_present = (1 - before) * math.sqrt(1 - added) / noisy
            weights.append((of_clean, of_present, added * (1 - before) / noisy))
        return tuple(weights)


class DenoiserLayer(nn.Module):
    """Two linear maps with norms before them, a hint added in between, and a linear shortcut."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm1 = LayerNorm(dim, decay_gain=True)
        self.layer1 = nn.Linear(dim, dim)
        self.time = nn.Linear(dim, dim)
        self.condition = nn.Linear(dim, dim)
        self.norm2 = LayerNorm(dim, decay_gain=True)
        self.layer2 = nn.Linear(dim, dim)
        self.shortcut = nn.Linear(dim, dim)

    def hint(self, time: Float[Tensor, "T D"], condition: Float[Tensor, "V K D"]) -> Float[Tensor, "T V K D"]:
        """What is added inside the layer: the step and the condition, which no vector changes."""
        return self.time(F.silu(time))[:, None, None] + self.condition(F.silu(condition))

    def forward(self, x: Float[Tensor, "*T V K D"], hint: Float[Tensor, "*T V K D"]) -> Float[Tensor, "*T V K D"]:
        """The layer's output."""
        y = self.layer1(F.silu(self.norm1(x))) + hint
        return self.layer2(F.silu(self.norm2(y))) + self.shortcut(x)


class Denoiser(nn.Module):
    """Guesses the noise in each vector by itself, given the step and a condition of its own.

    As released the table of steps is drawn like any other weight, from normal(0, `init_std`), and never trained.
    """

    steps: Tensor

    def __init__(self, dim: int, num_steps: int, num_layers: int, init_std: float):
        super().__init__()
        self.register_buffer("steps", torch.randn(num_steps, dim) * init_std)
        self.time1 = nn.Linear(dim, dim)
        self.time2 = nn.Linear(dim, dim)
        self.norm = LayerNorm(dim, decay_gain=True)
        self.condition = nn.Linear(dim, dim)
        self.layers = nn.ModuleList(DenoiserLayer(dim) for _ in range(num_layers))
        self.output = nn.Linear(dim, dim)

    def hints(self, condition: Float[Tensor, "V K D"]) -> list[Float[Tensor, "T V K D"]]:
        """What each layer is told at each step, made once for a whole chain."""
        time = self.time2(F.silu(self.time1(self.steps)))
        told = self.condition(self.norm(condition).relu())
        return [layer.hint(time, told) for layer in self.layers]  # type: ignore[operator]

    def forward(
        self, x: Float[Tensor, "*T V K D"], hints: Sequence[Float[Tensor, "*T V K D"]]
    ) -> Float[Tensor, "*T V K D"]:
        """The noise at one step, or at all steps, of which the hints are."""
        y = x
        for layer, hint in zip(self.layers, hints, strict=True):
            y = layer(y, hint)
        return self.output(y + x)


class Diffusion(nn.Module):
    """The chain of DreamPRVR (arXiv 2604.03653): from one vector a video to K, each led by a condition.

    As released nothing is sampled: the start stands where noise would, at the beginning and in every step. All of it
    runs in the format of the weights, also under autocast: the first step back multiplies by 200 what it reads.
    """

    def __init__(self, dim: int, num_steps: int, num_layers: int, init_std: float):
        super().__init__()
        self.schedule = Schedule.cosine(num_steps)
        self.denoiser = Denoiser(dim, num_steps, num_layers, init_std)

    def trajectory(self, start: Float[Tensor, "V D"], condition: Float[Tensor, "V K D"]) -> Float[Tensor, "T V K D"]:
        """The K vectors after each step back, the noisiest first; the last are in [-1, 1]."""
        with torch.autocast(start.device.type, enabled=False):
            start = start.to(self.denoiser.steps.dtype)
            condition = condition.to(self.denoiser.steps.dtype)
            hints = self.denoiser.hints(condition)
            noise = start[:, None].expand_as(condition)
            kept = self.schedule.kept
            posterior = self.schedule.posterior
            x = noise
            made = []
            for t in reversed(range(len(kept))):
                of_clean, of_present, variance = posterior[t]
                guessed = self.denoiser(x, [hint[t] for hint in hints])
                clean = (math.sqrt(1 / kept[t]) * x - math.sqrt(1 / kept[t] - 1) * guessed).clamp(-1, 1)
                x = of_clean * clean + of_present * x
                if t:
                    x = x + math.sqrt(variance) * noise
                made.append(x)
            return torch.stack(made)

    def noised(self, clean: Float[Tensor, "V K D"], noise: Float[Tensor, "V D"]) -> Float[Tensor, "T V K D"]:
        """Clean vectors as each step would have left them, with that noise in all K."""
        kept = torch.tensor(self.schedule.kept, dtype=torch.float64, device=clean.device)[:, None, None, None]
        return kept.sqrt().to(clean.dtype) * clean + (1 - kept).sqrt().to(clean.dtype) * noise[:, None].to(clean.dtype)

    def guessed(self, noised: Float[Tensor, "T V K D"], condition: Float[Tensor, "V K D"]) -> Float[Tensor, "T V K D"]:
        """The noise that the network finds at every step."""
        with torch.autocast(noised.device.type, enabled=False):
            own = self.denoiser.steps.dtype
            return self.denoiser(noised.to(own), self.denoiser.hints(condition.to(own)))
