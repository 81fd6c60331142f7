"""Optimizers: BertAdam, exactly as in the released programs, and the optimizers of torch.optim."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from untrimmed.errors import ConfigError, nearest
from untrimmed.nn.attention import stacked_dims
from untrimmed.presets.settings import TrainSettings
from untrimmed.training.choices import call_choice, choose, classes_of

# LBFGS needs a closure, and SparseAdam needs sparse gradients; the training loop provides neither
_OTHERS = ("LBFGS", "SparseAdam")


class BertAdam(Optimizer):
    """Adam without bias correction, with decoupled weight decay. The gradient of each tensor is clipped separately.

    A parameter can be a stack of tensors, which are then clipped separately. The value `stacked_dims` of a parameter
    group is the number of leading axes that count the stacked tensors. Parameters without a gradient are not updated
    and do not decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        max_norm: float = 1.0,
    ):
        defaults = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "max_norm": max_norm, "stacked_dims": 0}
        super().__init__(params, {"lr": lr, **defaults})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient, and return the result of `closure`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        mean = state["mean"]
        square = state["square"]
        beta_mean, beta_square = group["betas"]
        norm = tensor_norms(parameter.grad, group["stacked_dims"])  # type: ignore[arg-type]
        gradient = parameter.grad * (group["max_norm"] / (norm + 1e-6)).clamp_max(1)
        mean.lerp_(gradient, 1 - beta_mean)
        square.mul_(beta_square).addcmul_(gradient, gradient, value=1 - beta_square)
        update = mean / square.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
        parameter.sub_(update.mul_(group["lr"]))


def tensor_norms(gradient: Tensor, leading: int) -> Tensor:
    """Return the norm of each tensor in a stack. The first `leading` axes count the tensors.

    In the result, all other axes have size 1.
    """
    # here each tensor is a single number; with an empty `dim`, `vector_norm` would return the norm of the whole stack
    if leading == gradient.ndim:
        return gradient.abs()
    tensor_axes = tuple(range(leading, gradient.ndim))
    return torch.linalg.vector_norm(gradient, dim=tensor_axes, keepdim=True)


def choose_optimizer(train: TrainSettings) -> Callable[..., Optimizer]:
    """Return the optimizer class that `train.optimizer` selects; raises the errors of `choose`."""
    named = {"BertAdam": BertAdam, **classes_of(torch.optim, Optimizer, without=_OTHERS)}
    return choose("train.optimizer", train.optimizer, named)


def create_optimizer(model: nn.Module, train: TrainSettings) -> Optimizer:
    """Return an optimizer for the parameters of a model.

    Raises: ConfigError for settings that the optimizer does not accept, and for a pattern that matches no parameter.
    """
    chosen = choose_optimizer(train)
    for name, other in (("lr", "learning_rate"), ("weight_decay", "weight_decay")):
        if name in train.optimizer_settings:
            raise ConfigError(f"train.optimizer_settings.{name}: set train.{other} instead")
    groups = parameter_groups(model, train.weight_decay, train.learning_rates)
    optimizer = call_choice(
        "train.optimizer", chosen, groups, lr=train.learning_rate, settings=train.optimizer_settings
    )
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"train.optimizer returned a {type(optimizer).__name__}, expected a torch.optim.Optimizer")
    if train.weight_decay and "weight_decay" not in optimizer.defaults:
        name = type(optimizer).__name__
        raise ConfigError(f"train.weight_decay is {train.weight_decay:g}, but {name} has no weight decay; set it to 0")
    return optimizer


def parameter_groups(
    model: nn.Module, weight_decay: float = 0.01, learning_rates: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return groups of parameters for an optimizer. Weight decay applies to all except biases and gains of layer norms.

    Weight decay also applies to the gains of norms with `decay_gain`. The released programs exempt gains by their
    names, and the gains of these norms have other names.

    Keys of `learning_rates` are patterns with wildcards, such as `clip_*`. A parameter gets the rate of the first
    pattern that matches its name.

    Raises: ConfigError for a pattern that matches no parameter.
    """
    patterns = list(learning_rates or ())
    groups: dict[tuple[int, bool, int], list[nn.Parameter]] = {}
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen or not parameter.requires_grad:
                continue
            seen.add(id(parameter))
            spared_gain = name == "weight" and not getattr(module, "decay_gain", True)
            decayed = "bias" not in name and not spared_gain
            path = f"{prefix}.{name}" if prefix else name
            matches = (place for place, pattern in enumerate(patterns) if fnmatchcase(path, pattern))
            key = (next(matches, -1), decayed, stacked_dims(module, name))
            groups.setdefault(key, []).append(parameter)
    _require_matches(patterns, {place for place, _, _ in groups}, model)
    return [
        {"params": parameters, "weight_decay": weight_decay if decayed else 0.0, "stacked_dims": leading}
        | ({} if place < 0 else {"lr": (learning_rates or {})[patterns[place]]})
        for (place, decayed, leading), parameters in sorted(groups.items(), key=lambda group: group[0][0])
    ]


def _require_matches(patterns: list[str], matched: set[int], model: nn.Module) -> None:
    for place, pattern in enumerate(patterns):
        if place not in matched:
            names = [name for name, _ in model.named_parameters()]
            raise ConfigError(
                f"train.learning_rates: {pattern!r} matches no parameter that an earlier pattern does not match"
                f"{nearest(pattern, names) or f'. The first parameter is {names[0]!r}.'}"
            )


def warmup_linear(step: int, *, total_steps: int, warmup_share: float) -> float:
    """Return the factor of the learning rate. It rises linearly to 1 during the warm-up, and then falls linearly to 0.

    As in the authors' programs, `step` is the number of finished updates. The first update therefore has the rate 0.

    >>> [warmup_linear(step, total_steps=8, warmup_share=0.25) for step in (0, 1, 2, 5, 8, 9)]
    [0.0, 0.5, 1.0, 0.5, -0.0, 0.0]
    """
    progress = step / total_steps
    if progress < warmup_share:
        return progress / warmup_share
    return max((progress - 1) / (warmup_share - 1), 0.0)
