"""The examples in the docstrings of configuration, blocks, scores, losses and metrics give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import untrimmed.evaluation
import untrimmed.losses
import untrimmed.nn
import untrimmed.scores

PACKAGES = (untrimmed.losses, untrimmed.scores, untrimmed.nn, untrimmed.evaluation)
MODULES = ["untrimmed.config", "untrimmed.data.resampling", "untrimmed.training.schedule"] + [
    f"{package.__name__}.{module.name}" for package in PACKAGES for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name), extraglobs=_names()).failed == 0


def _names() -> dict[str, object]:
    return {"np": importlib.import_module("numpy"), "torch": importlib.import_module("torch")}
