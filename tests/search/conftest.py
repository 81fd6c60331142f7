"""A library of four clips, which is indexed once; each test gets a copy."""

import shutil

import pytest

import untrimmed
from tests.toy import WideWordEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module

CLIPS = {
    "flag.mp4": ["red", "white", "green"],
    "sea # 1.mp4": ["blue", "blue", "white", "blue"],  # ids in the field's layout cannot contain blanks or #
    "sun.mp4": ["yellow", "red"],
    "wood.mp4": ["green"],
}


def use_encoder(monkeypatch, encoder):
    """Make libraries load this encoder, whatever its name."""
    monkeypatch.setattr(library_module, "load_encoder", lambda name=None, **_: LoadedEncoder(encoder, None))


@pytest.fixture(scope="session")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for name, colours in CLIPS.items():
        write_clip(folder / name, colours)
    return folder


@pytest.fixture(scope="session")
def indexed(videos, tmp_path_factory):
    """The folder of the library that each test copies."""
    folder = tmp_path_factory.mktemp("indexed") / "library"
    with pytest.MonkeyPatch.context() as patch:
        use_encoder(patch, WideWordEncoder())
        untrimmed.open(folder).index(videos)
    return folder


@pytest.fixture
def encoder(monkeypatch):
    encoder = WideWordEncoder()
    use_encoder(monkeypatch, encoder)
    return encoder


@pytest.fixture
def lib(encoder, indexed, tmp_path):
    shutil.copytree(indexed, tmp_path / "library")
    return untrimmed.open(tmp_path / "library")
