"""A library of four clips, indexed once, for the tests of what a library hands on: features, trained models."""

import shutil

import pytest

import untrimmed
from tests.toy import WideWordEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module

CLIPS = {
    "flag.mp4": ["red", "white", "green"],
    "sea # 1.mp4": ["blue", "blue", "white", "blue"],  # neither blanks nor # can stand in the field's ids
    "sun.mp4": ["yellow", "red"],
    "wood.mp4": ["green"],
}


@pytest.fixture(scope="session")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for name, colours in CLIPS.items():
        write_clip(folder / name, colours)
    return folder


@pytest.fixture(scope="session")
def indexed(videos, tmp_path_factory):
    """A library that every test gets a copy of."""
    folder = tmp_path_factory.mktemp("indexed") / "library"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "load_encoder", lambda name=None, **_: LoadedEncoder(WideWordEncoder(), None))
        untrimmed.open(folder).index(videos)
    return folder


@pytest.fixture
def encoder(monkeypatch):
    encoder = WideWordEncoder()
    monkeypatch.setattr(library_module, "load_encoder", lambda name=None, **_: LoadedEncoder(encoder, None))
    return encoder


@pytest.fixture
def lib(encoder, indexed, tmp_path):
    shutil.copytree(indexed, tmp_path / "library")
    return untrimmed.open(tmp_path / "library")
