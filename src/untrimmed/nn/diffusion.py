"""A diffusion process for a few vectors per video: noise schedule, denoising network and reverse chain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from untrimmed.nn.norm import LayerNorm


@dataclass(frozen=True)
class NoiseSchedule:
    """The variance of the noise that each of T steps adds, in double precision. Step 0 is the least noisy step."""

    betas: tuple[float, ...]

    @classmethod
    def cosine(cls, num_steps: int) -> "NoiseSchedule":
        """Return the cosine schedule (Nichol and Dhariwal 2021), with betas of at most 0.999."""

        def level(step: int) -> float:
            return math.cos((step / num_steps + 0.008) / 1.008 * math.pi / 2) ** 2

        return cls(tuple(min(max(1 - level(t + 1) / level(t), 0.0), 0.999) for t in range(num_steps)))

    @property
    def alpha_bars(self) -> tuple[float, ...]:
        """The share of the signal's variance after each step: the cumulative products of 1 - beta."""
        products = []
        alpha_bar = 1.0
        for beta in self.betas:
            alpha_bar *= 1 - beta
            products.append(alpha_bar)
        return tuple(products)

    @property
    def posterior(self) -> tuple[tuple[float, float, float], ...]:
        """For each step of the reverse chain, the weights of the clean and the current vector, and the noise variance.

        The clean vector is a prediction.
        """
        weights = []
        for beta, previous, current in zip(self.betas, (1.0, *self.alpha_bars[:-1]), self.alpha_bars, strict=True):
            noisy = 1 - current
            clean_weight = beta * math.sqrt(previous) / noisy
            current_weight = (1 - previous) * math.sqrt(1 - beta) / noisy
            weights.append((clean_weight, current_weight, beta * (1 - previous) / noisy))
        return tuple(weights)


class DenoiserLayer(nn.Module):
    """Two pre-norm linear maps with a linear shortcut. The embedded step and condition are added between the maps."""

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
        """Return the sum of the embedded step and the embedded condition for every step."""
        return self.time(F.silu(time))[:, None, None] + self.condition(F.silu(condition))

    def forward(self, x: Float[Tensor, "*T V K D"], hint: Float[Tensor, "*T V K D"]) -> Float[Tensor, "*T V K D"]:
        """Return the layer's output. `hint` is the result of the method `hint` at the steps of `x`."""
        y = self.layer1(F.silu(self.norm1(x))) + hint
        return self.layer2(F.silu(self.norm2(y))) + self.shortcut(x)


class Denoiser(nn.Module):
    """Predicts the noise in each vector from the step and the vector's condition. Vectors do not influence each other.

    As in the authors' program, the step embeddings are drawn from normal(0, `init_std`) and are not trained.
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
        """Return each layer's embedding of steps and conditions, which can be computed once per reverse chain."""
        time = self.time2(F.silu(self.time1(self.steps)))
        embedded = self.condition(self.norm(condition).relu())
        return [layer.hint(time, embedded) for layer in self.layers]  # type: ignore[operator]

    def forward(
        self, x: Float[Tensor, "*T V K D"], hints: Sequence[Float[Tensor, "*T V K D"]]
    ) -> Float[Tensor, "*T V K D"]:
        """Return the predicted noise at the steps of `hints`: one step or all steps."""
        y = x
        for layer, hint in zip(self.layers, hints, strict=True):
            y = layer(y, hint)
        return self.output(y + x)


class Diffusion(nn.Module):
    """DreamPRVR's diffusion (arXiv 2604.03653): computes K vectors per video from a start vector and K conditions.

    As in the authors' program, the result is not random: the start vector replaces the noise at the beginning and in
    every step. Computations are in the dtype of the weights, even under autocast, because the first step multiplies its
    input by 200.
    """

    def __init__(self, dim: int, num_steps: int, num_layers: int, init_std: float):
        super().__init__()
        self.schedule = NoiseSchedule.cosine(num_steps)
        self.denoiser = Denoiser(dim, num_steps, num_layers, init_std)

    def trajectory(self, start: Float[Tensor, "V D"], condition: Float[Tensor, "V K D"]) -> Float[Tensor, "T V K D"]:
        """Return the K vectors after each step of the reverse chain, noisiest step first.

        After the last step, the entries of the vectors are in [-1, 1].
        """
        with torch.autocast(start.device.type, enabled=False):
            start = start.to(self.denoiser.steps.dtype)
            condition = condition.to(self.denoiser.steps.dtype)
            hints = self.denoiser.hints(condition)
            noise = start[:, None].expand_as(condition)
            alpha_bars = self.schedule.alpha_bars
            posterior = self.schedule.posterior
            x = noise
            steps = []
            for t in reversed(range(len(alpha_bars))):
                clean_weight, current_weight, variance = posterior[t]
                predicted = self.denoiser(x, [hint[t] for hint in hints])
                clean = (math.sqrt(1 / alpha_bars[t]) * x - math.sqrt(1 / alpha_bars[t] - 1) * predicted).clamp(-1, 1)
                x = clean_weight * clean + current_weight * x
                if t:
                    x = x + math.sqrt(variance) * noise
                steps.append(x)
            return torch.stack(steps)

    def noised(self, clean: Float[Tensor, "V K D"], noise: Float[Tensor, "V D"]) -> Float[Tensor, "T V K D"]:
        """Return the clean vectors with the noise of every step added. All K vectors of a video get the same noise."""
        bars = torch.tensor(self.schedule.alpha_bars, dtype=torch.float64, device=clean.device)[:, None, None, None]
        return bars.sqrt().to(clean.dtype) * clean + (1 - bars).sqrt().to(clean.dtype) * noise[:, None].to(clean.dtype)

    def predicted_noise(
        self, noised: Float[Tensor, "T V K D"], condition: Float[Tensor, "V K D"]
    ) -> Float[Tensor, "T V K D"]:
        """Return the predicted noise in the vectors `noised` of every step."""
        with torch.autocast(noised.device.type, enabled=False):
            dtype = self.denoiser.steps.dtype
            return self.denoiser(noised.to(dtype), self.denoiser.hints(condition.to(dtype)))
