"""Proxies over HTTP: rendered once for all viewers, stopped without viewers, cached within a limit."""

import io
import os
import shutil
import tempfile
import threading
import time
from types import SimpleNamespace

import av
import pytest
from starlette.testclient import TestClient

import untrimmed
from tests.media import constant_stamps, read_clock
from tests.media import write_clip as write_clock
from tests.served import served
from tests.server.conftest import ids_of
from untrimmed.search.store.proxies import remove_oldest_proxies
from untrimmed.server import media as media_module
from untrimmed.server import proxies as proxies_module
from untrimmed.server.app import create_app
from untrimmed.server.media import media_file
from untrimmed.video.reader import ProxyWriter


@pytest.fixture
def library(toy, tmp_path):
    """A library with one video that browsers cannot decode, with sound."""
    videos = tmp_path / "videos"
    videos.mkdir()
    write_clock(videos / "clock.mkv", constant_stamps(200), codec="libx265", options={"x265-params": "log-level=none"})
    write_clock(videos / "sound.mp4", constant_stamps(100), has_sound=True)
    untrimmed.open(tmp_path / "library").index(videos)
    return untrimmed.open(tmp_path / "library")


@pytest.fixture
def client(library):
    with TestClient(create_app(library), base_url="http://localhost:8765") as client:
        yield client


@pytest.fixture
def num_renderings(monkeypatch):
    """The spans that were rendered."""
    spans = []
    original = ProxyWriter.write

    def write(self, path, start_s, end_s, *rest):
        spans.append((start_s, end_s))
        return original(self, path, start_s, end_s, *rest)

    monkeypatch.setattr(ProxyWriter, "write", write)
    return spans


def address_of(ids, name, start_s, end_s):
    return f"/api/videos/{ids[name]}/proxy?start_s={start_s}&end_s={end_s}"


def numbers(data):
    with av.open(io.BytesIO(data)) as container:
        return [read_clock(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]


def files(library):
    return sorted(file.name for file in (library.folder / "proxies").iterdir())


def wait_until(is_true):
    end = time.monotonic() + 30
    while not is_true() and time.monotonic() < end:
        time.sleep(0.02)
    assert is_true()


def test_a_proxy_is_rendered_once_and_then_sent_by_ranges(client, ids, library, num_renderings):
    address = address_of(ids, "clock.mkv", 2.0, 4.0)
    first = client.get(address)
    assert (first.status_code, first.headers["content-type"]) == (200, 'video/mp4; codecs="avc1.640015"')
    assert numbers(first.content) == list(range(50, 100))
    wait_until(lambda: files(library) and not files(library)[0].startswith("."))
    second = client.get(address)
    assert (second.content, second.headers["content-length"]) == (first.content, str(len(first.content)))
    assert second.headers["content-type"] == first.headers["content-type"]
    part = client.get(address, headers={"range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, first.content[100:200])
    assert num_renderings == [(2.0, 4.0)]
    assert client.get(address_of(ids, "sound.mp4", 1.0, 2.0)).headers["content-type"].endswith(',mp4a.40.2"')


def test_viewers_of_one_span_share_one_rendering(client, ids, num_renderings):
    with served(client.app) as address:
        import httpx

        answers = [None] * 4

        def view(number):
            answers[number] = httpx.get(address + address_of(ids, "clock.mkv", 1.0, 7.0), timeout=60).content

        threads = [threading.Thread(target=view, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert num_renderings == [(1.0, 7.0)]
    assert numbers(answers[0]) == list(range(25, 175))
    assert all(answer == answers[0] for answer in answers)


def test_a_rendering_stops_when_its_viewers_leave(client, ids, library, monkeypatch):
    monkeypatch.setattr(proxies_module, "_GRACE_S", 0.0)
    proxies = client.app.state.service.proxies
    record = client.app.state.service.record(ids["clock.mkv"])
    rendering = proxies.enter(record, media_file(record), 0.0, 8.0)
    assert proxies.enter(record, media_file(record), 0.0, 8.0) is rendering
    proxies.leave(rendering)
    assert not rendering.is_cancelled
    proxies.leave(rendering)
    wait_until(lambda: rendering.is_done)
    assert rendering.is_cancelled
    assert files(library) == []
    assert numbers(client.get(address_of(ids, "clock.mkv", 0.0, 1.0)).content) == list(range(25)), "the next one works"


def test_a_client_that_disconnects_is_no_viewer_any_more(client, ids, monkeypatch):
    import httpx

    left = threading.Event()
    proxies = client.app.state.service.proxies
    original = proxies.leave
    monkeypatch.setattr(proxies, "leave", lambda rendering: (original(rendering), left.set()))
    with (
        served(client.app) as address,
        httpx.stream("GET", address + address_of(ids, "clock.mkv", 0.0, 8.0), timeout=60) as answer,
    ):
        next(answer.iter_raw())
    assert left.wait(30)


def test_the_proxies_that_were_used_last_are_kept(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).write_bytes(bytes(100))
        os.utime(tmp_path / str(number), (number, number))
    os.utime(tmp_path / "0", (9, 9))
    (tmp_path / ".unfinished").write_bytes(bytes(100))
    (tmp_path / ".abandoned").write_bytes(bytes(100))
    os.utime(tmp_path / ".abandoned", (5, 5))
    remove_oldest_proxies(tmp_path, 350)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".unfinished", "0", "4"]


def test_the_cache_stays_below_its_limit(library, num_renderings):
    with TestClient(create_app(library, proxy_bytes=1), base_url="http://localhost:8765") as client:
        ids = ids_of(client)
        for _ in range(2):
            assert numbers(client.get(address_of(ids, "clock.mkv", 0.0, 1.0)).content) == list(range(25))
            wait_until(lambda: files(library) == [])
    assert num_renderings == [(0.0, 1.0)] * 2


@pytest.mark.parametrize("damage", ["zeroed", "truncated", "a zeroed end", "empty"])
def test_a_damaged_proxy_is_rendered_again(client, ids, library, num_renderings, damage):
    address = address_of(ids, "clock.mkv", 2.0, 4.0)
    assert numbers(client.get(address).content) == list(range(50, 100))
    wait_until(lambda: files(library) and not files(library)[0].startswith("."))
    assert numbers(client.get(address).content) == list(range(50, 100))
    assert len(num_renderings) == 1
    (file,) = (library.folder / "proxies").iterdir()
    data = file.read_bytes()
    half = len(data) // 2
    damaged = {"zeroed": bytes(len(data)), "truncated": data[:half], "a zeroed end": data[:half] + bytes(half)}
    status = file.stat()
    file.write_bytes(damaged.get(damage, b""))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert numbers(client.get(address).content) == list(range(50, 100))
    assert len(num_renderings) == 2


def test_the_proxies_of_a_removed_video_are_removed(client, ids, library, tmp_path):
    for name in ("clock.mkv", "sound.mp4"):
        client.get(address_of(ids, name, 0.0, 1.0))
    wait_until(lambda: len([name for name in files(library) if not name.startswith(".")]) == 2)
    (kept,) = [record.content_hash for record in library.videos() if record.path.endswith("sound.mp4")]
    library.remove([tmp_path / "videos" / "clock.mkv"])
    (name,) = files(library)
    assert name.startswith(f"{kept}-0-1000-")


def test_proxies_of_a_read_only_library_are_in_a_temporary_folder(client, ids, library, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert numbers(client.get(address_of(ids, "clock.mkv", 0.0, 1.0)).content) == list(range(25))
    assert files(library) == []
    folder = client.app.state.service.proxies._folder()
    client.app.state.service.proxies.close()
    assert not folder.parent.exists()


def test_temporary_folders_of_killed_services_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running = proxies_module.Proxies(tmp_path / "library")
    used = running._folder().parent
    abandoned, young, other = (tmp_path / name for name in ("untrimmed-proxies-1", "untrimmed-proxies-2", "else"))
    for folder in (abandoned, young, other):
        (folder / "proxies").mkdir(parents=True)
    for folder in (used, abandoned, other):
        os.utime(folder, (0, 0))
    later = proxies_module.Proxies(tmp_path / "library")
    later._folder()
    assert [folder.exists() for folder in (used, abandoned, young, other)] == [True, False, True, True]
    for proxies in (running, later):
        proxies.close()


def test_too_many_waiting_renderings_and_a_full_disk_are_refused(client, ids, monkeypatch):
    proxies = client.app.state.service.proxies
    record = client.app.state.service.record(ids["clock.mkv"])
    monkeypatch.setattr(proxies, "_render", lambda *arguments: None)  # they wait
    for number in range(8):
        proxies.enter(record, media_file(record), 0.0, 1.0 + number / 10)
    refused = client.get(address_of(ids, "clock.mkv", 0.0, 3.0))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    for rendering in proxies._renderings.values():
        rendering.close()
    proxies._renderings.clear()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    assert client.get(address_of(ids, "clock.mkv", 0.0, 3.0)).status_code == 507


def test_spans_and_files_that_cannot_be_shown_are_refused(client, ids, tmp_path, monkeypatch):
    for span, status in [((1.0, 1.0), 422), ((0.0, 601.0), 422), ((50.0, 51.0), 422)]:
        assert client.get(address_of(ids, "clock.mkv", *span)).status_code == status, span
    assert client.head(address_of(ids, "clock.mkv", 0.0, 1.0)).status_code == 200
    file = tmp_path / "videos" / "clock.mkv"
    status = file.stat()
    file.write_bytes(bytes(status.st_size))  # damaged, but of the same size and time
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    monkeypatch.setattr(media_module, "_MAX_COMPARED_BYTES", 0)
    damaged = client.get(address_of(ids, "clock.mkv", 3.0, 4.0))
    assert (damaged.status_code, damaged.headers["content-type"]) == (422, "application/problem+json")
    file.unlink()
    assert client.get(address_of(ids, "clock.mkv", 3.0, 4.0)).status_code == 404
    shutil.copy(tmp_path / "videos" / "sound.mp4", file)
    assert client.get(address_of(ids, "clock.mkv", 3.0, 4.0)).status_code == 409
    assert client.get("/api/videos/0123456789abcdef/proxy?start_s=0&end_s=1").status_code == 404
