"""How the encoders of a model run: on which device, in which number format."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from untrimmed.batches import E, R
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError
from untrimmed.models.base import RetrievalModel
from untrimmed.precision import Format, Precision, choose_format


@contextmanager
def evaluating(model: RetrievalModel) -> Iterator[None]:
    """The model in evaluation mode and without gradients; then as it was, after an error too."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def require_float32(model: RetrievalModel) -> None:
    """Raise a ConfigError if a model has weights in another format: encodings and features are float32."""
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            found = str(parameter.dtype).removeprefix("torch.")
            raise ConfigError(
                f"{model.name}: {name} is {found}, wanted float32; call model.float(), precision='bfloat16' is faster"
            )


@dataclass(frozen=True)
class Encoding:
    """How encoders run: on which device, in which number format; encodings are float32 in any case.

    `compiled`: those that are trained run through `torch.compile`, made once for batches of all sizes.
    """

    device: torch.device
    precision: Format = "float32"
    compiled: bool = False
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def on(cls, device: str | torch.device, precision: Precision) -> Encoding:
        """Encoders on a device, with the number format that a choice means there."""
        chosen = choose_device(device)
        return cls(chosen, choose_format(precision, str(chosen)).name)

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """The encodings of a batch.

        Raises: ConfigError when torch.compile has no compiler to work with.
        """
        run: Callable[[R], E] = encoder
        if self.compiled and torch.is_grad_enabled():
            if encoder not in self._made:
                self._made[encoder] = _compiled(encoder, self.device)
            run = self._made[encoder]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            encoded = run(rows.to(self.device))
        return encoded.to(self.device, torch.float32)


def _compiled(encoder: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    from torch._dynamo.exc import ShortenTraceback

    made = torch.compile(encoder, dynamic=True)

    def run(rows: Any) -> Any:
        try:
            with warnings.catch_warnings():  # a cache that the compiler reads through is one of constants
                warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")
                return made(rows)
        except ShortenTraceback as error:  # what a backend raised; a missing Triton comes as it is
            why = getattr(error, "inner_exception", error)
            raise ConfigError(
                f"torch.compile cannot work on {device} ({type(why).__name__}: {str(why).partition(chr(10))[0]}); "
                "install a C++ compiler (for CUDA: Triton too), or train without --compile"
            ) from error

    return run
