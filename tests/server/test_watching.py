"""Watched folders: new, changed, moved and deleted files are updated in the library when they are complete."""

import os
import shutil
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from starlette.testclient import TestClient

import untrimmed
from tests.toy import ToyEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import IndexBusyError, UntrimmedError
from untrimmed.search import library as library_module
from untrimmed.server import watching
from untrimmed.server.app import create_app
from untrimmed.server.jobs import IndexJob, Jobs
from untrimmed.server.stored_folders import WATCHED, read_folders, write_folders
from untrimmed.server.watching import Pace, Settling, Watched, Watches, is_remote

QUICK = Pace(settle_s=0.2, look_s=0.02, poll_s=0.1, again_s=0.05)


class Loader:
    """A loader of the toy encoder that fails on request."""

    def __init__(self):
        self.problem = None

    def __call__(self, *_, **__):
        if self.problem is not None:
            raise self.problem
        return LoadedEncoder(ToyEncoder(), None)


@pytest.fixture
def loader(monkeypatch):
    loader = Loader()
    monkeypatch.setattr(library_module, "load_encoder", loader)
    return loader


@pytest.fixture
def videos(videos):
    """A folder with two clips, one of which is never changed."""
    write_clip(videos / "stays.mp4", ["white"])
    return videos


@pytest.fixture
def jobs():
    return []


@pytest.fixture(params=["reported by the system", pytest.param("scanned", marks=pytest.mark.check)])
def client(request, loader, videos, tmp_path, jobs, monkeypatch):
    """A client of a service that watches the folder and has indexed it."""
    if request.param == "scanned":
        monkeypatch.setattr(watching, "is_remote", lambda folder: True)
    library = untrimmed.open(tmp_path / "library")
    app = create_app(library, watch=(videos,), pace=QUICK, on_job=jobs.append)
    with TestClient(app, base_url="http://localhost:8765") as client:
        wait(client, names={"first.mp4", "stays.mp4"})
        yield client
    names = [f"{what} {videos}" for what in ("watch", "listen")]  # services of other tests may watch in this process
    for thread in [thread for thread in threading.enumerate() if thread.name in names]:
        thread.join(20)
        assert not thread.is_alive()


def listed(client):
    return {video["video"].rpartition("/")[2]: video for video in client.get("/api/videos").json()["videos"]}


def wait(client, *, names=None, until=None):
    deadline = time.monotonic() + 60
    while not (set(listed(client)) == names if until is None else until()):
        assert time.monotonic() < deadline, (listed(client), client.get("/api/jobs").json()[:3])
        time.sleep(0.02)


def top(client, text):
    return client.post("/api/search", json={"text": text, "limit": 1}).json()["hits"][0]["video"].rpartition("/")[2]


def test_new_changed_moved_and_deleted_files_are_updated(client, videos, tmp_path, jobs):
    def put(colours):  # at once: if a busy machine paused in the middle of a file, the part would be indexed
        write_clip(tmp_path / "aside.mp4", colours)
        (tmp_path / "aside.mp4").replace(videos / "new.mp4")

    ids = {name: video["video_id"] for name, video in listed(client).items()}
    put(["blue"])
    wait(client, names={"first.mp4", "stays.mp4", "new.mp4"})
    assert top(client, "blue") == "new.mp4"
    put(["green", "green"])
    wait(client, until=lambda: top(client, "green") == "new.mp4" and listed(client)["new.mp4"]["duration_s"] == 4.0)
    (videos / "first.mp4").rename(videos / "renamed.mp4")
    wait(client, names={"renamed.mp4", "stays.mp4", "new.mp4"})
    assert listed(client)["renamed.mp4"]["video_id"] == ids["first.mp4"], "known by its content"
    shutil.copy(videos / "stays.mp4", videos / "copy.mp4")
    wait(client, until=lambda: [sum(job.num_copied for job in jobs), sum(job.num_moved for job in jobs)] == [1, 1])
    (videos / "copy.mp4").unlink()
    (videos / "new.mp4").unlink()
    wait(client, names={"renamed.mp4", "stays.mp4"})
    wait(client, until=lambda: sum(job.num_removed for job in jobs) == 2)
    assert {job.state for job in jobs} == {"done"}
    assert [failed.reason for job in jobs for failed in job.failed] == []


def test_new_and_deleted_folders_are_updated(client, videos, tmp_path):
    (tmp_path / "trip").mkdir()
    write_clip(tmp_path / "trip" / "lake.mp4", ["blue"])
    (tmp_path / "trip").rename(videos / "trip v1.2")
    wait(client, names={"first.mp4", "stays.mp4", "lake.mp4"})
    write_clip(videos / "trip v1.2" / "lawn.mp4", ["green"])
    wait(client, names={"first.mp4", "stays.mp4", "lake.mp4", "lawn.mp4"})
    shutil.move(videos / "trip v1.2", tmp_path / "elsewhere")
    wait(client, names={"first.mp4", "stays.mp4"})


def test_subtitle_files_beside_a_known_video_are_read_and_forgotten(client, videos):
    def texts():
        url = f"/api/videos/{listed(client)['first.mp4']['video_id']}/transcript"
        return [passage["text"] for passage in client.get(url).json()]

    cue = "1\n00:00:00,000 --> 00:00:01,500\n{}\n"
    (videos / "first.en.srt").write_text(cue.format("budget"))
    wait(client, until=lambda: texts() == ["budget"])
    (videos / "first.en.srt").write_text(cue.format("budget cuts"))
    wait(client, until=lambda: texts() == ["budget cuts"])
    (videos / "Subs").mkdir()
    (videos / "first.en.srt").rename(videos / "Subs" / "first.srt")
    (videos / "Subs" / "first.srt").write_text(cue.format("in a folder"))
    wait(client, until=lambda: texts() == ["in a folder"])
    (videos / "Subs").rename(videos / "other")
    wait(client, until=lambda: texts() == [])


def test_a_failed_file_is_named_and_retried_when_it_changes(client, videos, jobs):
    (videos / "broken.mp4").write_text("no video")
    wait(client, until=lambda: client.get("/api/watches").json()[0]["failed"])
    (failed,) = client.get("/api/watches").json()[0]["failed"]
    assert (failed["path"], "broken.mp4" in failed["reason"]) == (str(videos / "broken.mp4"), True)
    assert {one.path for job in jobs for one in job.failed} == {failed["path"]}
    write_clip(videos / "broken.mp4", ["green"])
    wait(client, names={"first.mp4", "stays.mp4", "broken.mp4"})
    wait(client, until=lambda: not client.get("/api/watches").json()[0]["failed"])
    (videos / "another.mp4").write_text("no video")
    wait(client, until=lambda: client.get("/api/watches").json()[0]["failed"])
    (videos / "another.mp4").unlink()
    wait(client, until=lambda: not client.get("/api/watches").json()[0]["failed"])


def test_hidden_files_and_other_files_are_ignored(client, videos, jobs):
    write_clip(videos / ".hidden.mp4", ["blue"])
    (videos / "notes.txt").write_text("x")
    (videos / "notes.txt").unlink()
    (videos / ".trash").mkdir()
    write_clip(videos / ".trash" / "old.mp4", ["blue"])
    write_clip(videos / "last.mp4", ["yellow"])
    wait(client, names={"first.mp4", "stays.mp4", "last.mp4"})
    wait(client, until=lambda: not client.get("/api/watches").json()[0]["waiting"])
    assert {job.total for job in jobs} <= {1, 2, 3}, "those that are there, or the new one"


def test_a_file_that_replaced_a_video_is_not_indexed(client, videos, jobs):
    (videos / "notes.txt").write_text("x")
    client.app.state.service.watches._changes.put(videos / "notes.txt")  # as if checked while it was missing
    write_clip(videos / "last.mp4", ["yellow"])
    wait(client, names={"first.mp4", "stays.mp4", "last.mp4"})
    wait(client, until=lambda: not client.get("/api/watches").json()[0]["waiting"])
    wait(client, until=lambda: all(job["ended_at"] for job in client.get("/api/jobs").json()))
    assert client.get("/api/watches").json()[0]["failed"] == []


def test_changes_while_the_library_cannot_be_read_are_not_lost(tmp_path, monkeypatch):
    def unreadable(path):
        raise UntrimmedError("the bucket does not answer")

    jobs, started = Jobs(untrimmed.open(tmp_path / "library")), []
    job = IndexJob([])
    monkeypatch.setattr(jobs, "start", lambda paths, **_: started.extend(paths) or job)
    watches = Watches(jobs, unreadable, lambda job: None, QUICK)
    watches._watched["1"] = Watched("1", tmp_path, is_remote=True)
    watches._changes.put(tmp_path / "gone.mp4")
    watches._look(0.0)
    watches._look(1.0)
    assert tmp_path / "gone.mp4" in started


def test_a_missing_folder_keeps_its_videos_until_it_returns(client, videos, tmp_path):
    videos.rename(tmp_path / "unplugged")
    wait(client, until=lambda: client.get("/api/watches").json()[0]["state"] == "missing")
    videos.mkdir()  # like a disconnected drive
    wait(client, until=lambda: client.get("/api/watches").json()[0]["state"] != "missing")
    wait(client, until=lambda: not client.get("/api/watches").json()[0]["waiting"])
    assert set(listed(client)) == {"first.mp4", "stays.mp4"}
    videos.rmdir()
    (tmp_path / "unplugged").rename(videos)
    write_clip(videos / "new.mp4", ["blue"])
    wait(client, names={"first.mp4", "stays.mp4", "new.mp4"})
    write_clip(videos / "newer.mp4", ["green"])
    wait(client, names={"first.mp4", "stays.mp4", "new.mp4", "newer.mp4"})


def test_a_run_is_retried_while_another_process_is_writing(client, videos, tmp_path, jobs):
    from untrimmed.search.store.table import VideoIndex

    with ExitStack() as stack:
        wait(client, until=lambda: holds(stack, VideoIndex(tmp_path / "library")))
        write_clip(videos / "new.mp4", ["blue"])
        wait(client, until=lambda: any(job.state == "failed" for job in jobs))
    wait(client, names={"first.mp4", "stays.mp4", "new.mp4"})


def holds(stack, index):
    with suppress(IndexBusyError):
        stack.enter_context(index)
        return True
    return False


def test_watches_are_listed_added_and_removed(client, videos, tmp_path):
    (watch,) = client.get("/api/watches").json()
    assert watch["path"] == str(videos)
    assert watch["state"] in ("watching", "polling")
    assert [folder["path"] for folder in client.get("/api/folders").json()] == [str(videos)]
    assert client.delete(f"/api/watches/{watch['folder_id']}").json() == []
    assert client.delete(f"/api/watches/{watch['folder_id']}").status_code == 404
    time.sleep(5 * QUICK.look_s)
    wait(client, until=lambda: all(job["ended_at"] for job in client.get("/api/jobs").json()))
    write_clip(videos / "new.mp4", ["blue"])
    time.sleep(5 * QUICK.settle_s)
    assert set(listed(client)) == {"first.mp4", "stays.mp4"}
    for _ in range(2):
        added = client.post("/api/watches", json={"folder_ids": [watch["folder_id"]]})
        assert (added.status_code, [one["path"] for one in added.json()]) == (201, [str(videos)])
    wait(client, names={"first.mp4", "stays.mp4", "new.mp4"})
    assert client.post("/api/watches", json={"folder_ids": ["0123456789abcdef"]}).status_code == 404


@contextmanager
def service(tmp_path, **options):
    app = create_app(untrimmed.open(tmp_path / "library"), pace=QUICK, **options)
    with TestClient(app, base_url="http://localhost:8765") as client:
        yield client


def test_the_next_service_watches_the_added_folders(loader, videos, tmp_path):
    with service(tmp_path, folders=(videos,)) as client:
        (folder,) = client.get("/api/folders").json()
        assert client.post("/api/watches", json={"folder_ids": [folder["folder_id"]]}).status_code == 201
        wait(client, names={"first.mp4", "stays.mp4"})
    write_clip(videos / "meanwhile.mp4", ["blue"])
    with service(tmp_path) as client:
        wait(client, names={"first.mp4", "stays.mp4", "meanwhile.mp4"})
        assert [watch["folder_id"] for watch in client.get("/api/watches").json()] == [folder["folder_id"]]
    videos.rename(tmp_path / "unplugged")
    with service(tmp_path) as client:
        (watch,) = client.get("/api/watches").json()
        assert (watch["path"], watch["state"]) == (str(videos), "missing")
        (tmp_path / "unplugged").rename(videos)
        write_clip(videos / "new.mp4", ["green"])
        wait(client, names={"first.mp4", "stays.mp4", "meanwhile.mp4", "new.mp4"})
        assert client.delete(f"/api/watches/{folder['folder_id']}").json() == []
    with service(tmp_path) as client:
        assert client.get("/api/watches").json() == []


def test_a_folder_of_the_command_line_is_not_remembered(client, tmp_path):
    assert len(client.get("/api/watches").json()) == 1
    assert read_folders(tmp_path / "library", WATCHED) == ()


def test_a_list_of_folders_of_another_user_is_ignored(tmp_path, monkeypatch):
    folder = tmp_path / "films \udce9 \n"
    write_folders(tmp_path, WATCHED, [folder, folder])
    assert read_folders(tmp_path, WATCHED) == (folder,)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert read_folders(tmp_path, WATCHED) == ()
    monkeypatch.undo()
    for damaged in ('["/a"', '{"/a": 1}', '["/a", 3]', '["a"]', "\xff"):
        (tmp_path / WATCHED).write_text(damaged, encoding="latin-1")
        assert read_folders(tmp_path, WATCHED) == ()


def test_a_watch_that_cannot_be_stored_is_refused(loader, videos, tmp_path):
    with service(tmp_path, folders=(videos,)) as client:
        (tmp_path / "library" / WATCHED / "in the way").mkdir(parents=True)
        (folder,) = client.get("/api/folders").json()
        answer = client.post("/api/watches", json={"folder_ids": [folder["folder_id"]]})
        assert (answer.status_code, WATCHED in answer.json()["detail"]) == (409, True)
        assert client.get("/api/watches").json() == []


def test_a_file_is_not_indexed_while_it_is_written(tmp_path):
    settling, file = Settling(2.0), tmp_path / "a.mp4"
    file.write_bytes(b"1")
    settling.note([file], 0.0)
    for second in range(1, 10):
        file.write_bytes(b"1" * second * 1000)
        assert settling.take(second) == []
    assert settling.paths == [file]
    assert settling.take(10.5) == []
    assert settling.take(11.0) == [file]
    assert (settling.take(20.0), settling.paths) == ([], [])
    settling.note([tmp_path], 20.0)
    (tmp_path / "b.mp4").write_bytes(b"2")
    assert settling.take(22.0) == []
    file.unlink()
    assert settling.take(23.9) == []
    assert settling.take(25.9) == [tmp_path]


MOUNTS = """
/dev/vda / ext4 rw 0 0
server:/films /mnt/films nfs4 rw 0 0
/dev/sdb1 /mnt/films/local\\040disk ext4 rw 0 0
sshfs /home/me/box fuse.sshfs rw 0 0
tmpfs /mnt/filmstrip tmpfs rw 0 0
box:/ /mnt/Über\\040all nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "answer"),
    [
        ("/home/me", False),
        ("/home/me/box/deep/er", True),
        ("/mnt/films", True),
        ("/mnt/films/x", True),
        ("/mnt/films/local disk/x", False),
        ("/mnt/filmstrip", False),
        ("/mnt/Über all/x", True),
    ],
)
def test_remote_file_systems_are_recognised(tmp_path, folder, answer):
    (tmp_path / "mounts").write_text(MOUNTS.strip(), encoding="utf-8")
    assert is_remote(tmp_path.__class__(folder), tmp_path / "mounts") is answer
    assert is_remote(tmp_path, tmp_path / "nowhere") is False


def test_a_folder_without_change_reports_is_scanned(loader, videos, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watching.watchfiles, "watch", fail)
    app = create_app(untrimmed.open(tmp_path / "library"), watch=(videos,), pace=QUICK)
    with TestClient(app, base_url="http://localhost:8765") as client:
        wait(client, names={"first.mp4", "stays.mp4"})
        write_clip(videos / "new.mp4", ["blue"])
        wait(client, names={"first.mp4", "stays.mp4", "new.mp4"})
        (watch,) = client.get("/api/watches").json()
        assert (watch["state"], "watch limit" in watch["problem"]) == ("polling", True)


def test_links_out_of_the_folder_are_not_followed(client, videos, tmp_path):
    (tmp_path / "outside").mkdir()
    write_clip(tmp_path / "outside" / "secret.mp4", ["blue"])
    os.symlink(tmp_path / "outside", videos / "link")
    write_clip(videos / "new.mp4", ["green"])
    wait(client, names={"first.mp4", "stays.mp4", "new.mp4"})
    assert set(listed(client)) == {"first.mp4", "stays.mp4", "new.mp4"}
