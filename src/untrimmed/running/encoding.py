"""The device and the number format in which a model encodes."""

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
    """Return a context in which the model is in evaluation mode and gradients are disabled.

    Afterwards, the previous mode is restored, even after an error.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def require_float32(model: RetrievalModel) -> None:
    """Raise a ConfigError if a weight of the model is not float32."""
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            dtype = str(parameter.dtype).removeprefix("torch.")
            raise ConfigError(
                f"{model.name}: {name} is {dtype}, expected float32; call model.float(), and pass "
                "precision='bfloat16' for speed"
            )


@dataclass(frozen=True)
class Encoding:
    """The device and number format in which encoders run. Encodings are always float32.

    If `compiled` is true, `torch.compile` compiles each encoder for training, once for all batch sizes.
    """

    device: torch.device
    precision: Format = "float32"
    compiled: bool = False
    _compiled: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def on(cls, device: str | torch.device, precision: Precision) -> Encoding:
        """Return an instance for the device, with the number format that `precision` selects for this device."""
        chosen = choose_device(device)
        return cls(chosen, choose_format(precision, str(chosen)).name)

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """Return the encodings of a batch: the result of `encoder`, in float32.

        Raises: ConfigError if torch.compile finds no compiler.
        """
        run: Callable[[R], E] = encoder
        if self.compiled and torch.is_grad_enabled():
            if encoder not in self._compiled:
                self._compiled[encoder] = _compile(encoder, self.device)
            run = self._compiled[encoder]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            encoded = run(rows.to(self.device))
        return encoded.to(self.device, torch.float32)


def _compile(encoder: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    from torch._dynamo.exc import ShortenTraceback

    compiled = torch.compile(encoder, dynamic=True)

    def run(rows: Any) -> Any:
        try:
            # the compiler warns that it ignores a function's cache, but this cache contains only constants
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")
                return compiled(rows)
        # a backend of torch.compile raises this error; if Triton is missing, the error has no inner exception
        except ShortenTraceback as error:
            why = getattr(error, "inner_exception", error)
            raise ConfigError(
                f"torch.compile cannot work on {device} ({type(why).__name__}: {str(why).partition(chr(10))[0]}); "
                "install a C++ compiler (for CUDA: Triton too), or turn compilation off (compile)"
            ) from error

    return run
