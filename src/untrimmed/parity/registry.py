"""Compare the recorded arrays of a golden case with ours. Each method registers its own comparison code."""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

import untrimmed.parity
from untrimmed.errors import FeatureError, UnknownNameError, UntrimmedError
from untrimmed.parity.case import Arrays, Case, load_case, read_arrays
from untrimmed.parity.compare import RULES, ArrayComparison, Rules, compare_all

RECORDED_FILES = ("expected", "grads", "weights_final")


class MethodParity(ABC):
    """Computes the arrays of one method's golden cases. Subclasses are registered with `parity_of`."""

    unused: ClassVar[frozenset[str]] = frozenset()  # names of recorded arrays that are not compared

    @abstractmethod
    def produce(self, case: Case) -> Arrays:
        """Return our arrays by `file/array`, such as `expected/clip_scores`.

        The comparison fails if a recorded array is missing from the result.
        """

    def rules(self, case: Case) -> Rules:
        """Return the tolerances.

        The first match applies. A subclass therefore lists its own tolerances before the common tolerances. The
        docstring of the subclass explains larger tolerances.
        """
        return RULES

    def exact(self, case: Case) -> Arrays:
        """Return our arrays in double precision, from which the rounding error of single precision is measured.

        The result is empty if the rounding error is not needed.
        """
        return {}

    def widest(self, case: Case) -> float:
        """Return the largest factor by which the measured rounding error may raise a tolerance."""
        return 1.0

    def align(
        self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray, exact: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both arrays in the form in which they are compared. Subclasses drop padding or transform values."""
        return ours, theirs


P = TypeVar("P", bound=type[MethodParity])
_METHODS: dict[str, type[MethodParity]] = {}


def parity_of(method: str) -> Callable[[P], P]:
    """Register a class for the cases of a method. `method` is the name of the folder with the method's cases."""

    def add(cls: P) -> P:
        _METHODS[method] = cls
        return cls

    return add


def run_case(folder: Path, method: str | None = None) -> list[ArrayComparison]:
    """Compare every recorded array of a case with the array that our code computes.

    Raises: FeatureError if the folder is not a case, UnknownNameError if no class is registered for its method.
    """
    for module in pkgutil.iter_modules(untrimmed.parity.__path__):
        if not module.name.startswith("__"):
            importlib.import_module(f"untrimmed.parity.{module.name}")
    case = load_case(folder, method)
    name = case.method.replace("_", "-")
    if name not in _METHODS:
        raise UnknownNameError.among("parity code for method", name, sorted(_METHODS))
    parity = _METHODS[name]()
    try:
        ours = parity.produce(case)
        exact = parity.exact(case)
        rules = parity.rules(case)
    except UntrimmedError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # cases have no schema, so invalid content can raise any of these errors
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise FeatureError(
            f"{folder}: its settings or arrays do not fit a {case.kind} case of {name} ({reason})"
        ) from error
    results = []
    for file in (file for file in RECORDED_FILES if (folder / f"{file}.npz").is_file()):
        recorded = read_arrays(folder / f"{file}.npz")
        rounding = {}
        theirs = {array: recorded[array] for array in recorded if f"{file}/{array}" not in parity.unused}
        for array in theirs:
            key = f"{file}/{array}"
            if key not in ours:
                continue
            if key in exact and ours[key].dtype.kind == "f":
                rounding[key] = _largest_difference(*parity.align(case, key, ours[key], exact[key], exact))
            ours[key], theirs[array] = parity.align(case, key, ours[key], theirs[array], exact)
        results += compare_all(file, ours, theirs, rules, rounding=rounding, widest=parity.widest(case))
    return results


def _largest_difference(ours: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest finite absolute difference, or 0 if the shapes differ."""
    if ours.shape != exact.shape:
        return 0.0
    difference = np.abs(ours - exact)
    return float(difference[np.isfinite(difference)].max(initial=0.0))
