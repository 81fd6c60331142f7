"""Which code runs the cases of a method."""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

import untrimmed.parity
from untrimmed.config import nearest
from untrimmed.errors import UnknownNameError
from untrimmed.parity.case import Arrays, Case, load_case, read_arrays
from untrimmed.parity.compare import RULES, Comparison, Rules, compare_all

RECORDED_FILES = ("expected", "grads", "weights_final")


class MethodParity(ABC):
    """Produces the arrays of every kind of case of one method."""

    @abstractmethod
    def produce(self, case: Case) -> Arrays:
        """Our arrays by `file/array`, for instance `expected/clip_scores`; arrays not produced count as failures."""

    def rules(self, case: Case) -> Rules:
        """The tolerances; a method that needs a looser one puts it first and says why."""
        return RULES

    def align(self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The parts of both arrays that must match: by default all, a method leaves out rows at padding."""
        return ours, theirs


P = TypeVar("P", bound=type[MethodParity])
_METHODS: dict[str, type[MethodParity]] = {}


def parity_of(method: str) -> Callable[[P], P]:
    """Run the cases of a method (the name of their folder) with this class."""

    def add(cls: P) -> P:
        _METHODS[method] = cls
        return cls

    return add


def run_case(folder: Path, method: str | None = None) -> list[Comparison]:
    """Every recorded array of a case against ours.

    Raises: FeatureError when the folder is no case, UnknownNameError when its method has no parity code.
    """
    for module in pkgutil.iter_modules(untrimmed.parity.__path__):
        if not module.name.startswith("__"):
            importlib.import_module(f"untrimmed.parity.{module.name}")
    case = load_case(folder, method)
    name = case.method.replace("_", "-")
    if name not in _METHODS:
        known = ", ".join(sorted(_METHODS))
        raise UnknownNameError(f"no parity code for method {name!r}{nearest(name, _METHODS) or '.'} Known: {known}")
    parity = _METHODS[name]()
    ours = parity.produce(case)
    results = []
    for file in (file for file in RECORDED_FILES if (folder / f"{file}.npz").is_file()):
        theirs = read_arrays(folder / f"{file}.npz")
        for array in theirs:
            key = f"{file}/{array}"
            if key in ours:
                ours[key], theirs[array] = parity.align(case, key, ours[key], theirs[array])
        results += compare_all(file, ours, theirs, parity.rules(case))
    return results
