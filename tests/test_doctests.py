"""The examples in docstrings give the results that they show."""

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

SOURCE = Path(__file__).resolve().parents[1] / "src"
RUN = re.compile(r">>> (?!.*\+SKIP)")
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if RUN.search(path.read_text(encoding="utf-8"))]
MODULES = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in FILES]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    tried = doctest.testmod(importlib.import_module(name), extraglobs={"np": np, "torch": torch})
    assert (tried.failed, tried.attempted > 0) == (0, True)
