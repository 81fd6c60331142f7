"""Fixtures for all tests. With `UNTRIMMED_TYPECHECK=1`, types and shapes of arguments are checked at run time."""

import os
from pathlib import Path

import pytest

if os.environ.get("UNTRIMMED_TYPECHECK"):
    from jaxtyping import install_import_hook

    import tests.typecheck  # noqa: F401 - the hook looks it up by name

    install_import_hook("untrimmed", "tests.typecheck.check")

pytest_plugins = ["tests.retrieval_world", "tests.run_world"]


@pytest.fixture(scope="session", autouse=True)
def own_user_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Redirects the user's data folder to a temporary one."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real videos, annotations and golden data, which may exist next to the project."""
    folder = Path(os.environ.get("UNTRIMMED_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real material at {folder}; set UNTRIMMED_SHARED to its folder")
    return folder
