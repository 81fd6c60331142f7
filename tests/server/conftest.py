"""The service of a library of five clips with the toy encoder, without a socket."""

import pytest
from starlette.testclient import TestClient

import untrimmed
from tests.media import write_clip as write_clock
from tests.toy import ToyEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.server.access import Access
from untrimmed.server.app import create_app

HOSTILE = "<img src=x onerror=alert(1)> \u202egnp.4pm\n&\"'"


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The folder of clips and the library. Tests must not change them."""
    folder = tmp_path_factory.mktemp("served")
    videos = folder / "videos"
    videos.mkdir()
    write_clip(videos / "flag.mp4", ["red", "white", "green"])
    write_clip(videos / "sea [1].mp4", ["blue", "blue"])
    write_clip(videos / f"{HOSTILE}.mp4", ["yellow"])
    write_clip(videos / ("ß" * 125 + ".mp4"), ["green", "yellow"])  # 254 bytes
    write_clock(videos / "clock.webm", codec="libvpx-vp9", rate=25)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ToyEncoder(), None))
        untrimmed.open(folder / "library").index(videos)
    return folder


@pytest.fixture
def videos(tmp_path):
    """A folder with one clip, which tests may change."""
    folder = tmp_path / "videos"
    folder.mkdir()
    write_clip(folder / "first.mp4", ["red"])
    return folder


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ToyEncoder(), None))


@pytest.fixture
def access():
    return Access()


@pytest.fixture
def client(toy, world, access):
    """A client of the service of `world`, like a program on this machine."""
    app = create_app(untrimmed.open(world / "library"), access=access)
    with TestClient(app, base_url="http://localhost:8765") as client:
        yield client


@pytest.fixture
def ids(client):
    """Video ids by file name."""
    return ids_of(client)


def ids_of(client):
    """Video ids by file name."""
    return {
        video["video"].rpartition("/")[2]: video["video_id"] for video in client.get("/api/videos").json()["videos"]
    }
