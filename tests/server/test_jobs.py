"""Indexing runs can be started, followed, paused, stopped and retried while searches continue."""

import json
import os
import queue
import threading
import time

import pytest
from starlette.testclient import TestClient

import untrimmed
from tests.toy import ToyEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.search.indexing.pipeline import IndexReport, Progress
from untrimmed.server.app import create_app
from untrimmed.server.jobs import IndexJob
from untrimmed.server.schemas import Job


class SlowEncoder(ToyEncoder):
    """An encoder that waits for permission to encode."""

    def __init__(self):
        super().__init__()
        self.may = threading.Event()
        self.may.set()

    def encode_frames(self, frames):
        assert self.may.wait(20)
        return super().encode_frames(frames)


@pytest.fixture
def encoder(monkeypatch):
    encoder = SlowEncoder()
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(encoder, None))
    return encoder


@pytest.fixture
def client(encoder, videos, tmp_path):
    app = create_app(untrimmed.open(tmp_path / "library"), folders=(videos,))
    with TestClient(app, base_url="http://localhost:8765") as client:
        yield client
        encoder.may.set()


@pytest.fixture
def start(client):
    def run():
        folder_ids = [folder["folder_id"] for folder in client.get("/api/folders").json()]
        answer = client.post("/api/jobs", json={"folder_ids": folder_ids})
        assert answer.status_code == 202
        return answer.json()["job_id"]

    return run


def wait(client, job_id, *states):
    deadline = time.monotonic() + 20
    while (job := client.get(f"/api/jobs/{job_id}").json())["state"] not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.01)
    return job


def test_a_run_brings_the_library_up_to_date(client, start, videos):
    job = wait(client, start(), "done")
    assert (job["position"], job["total"], job["num_done"], job["num_failed"]) == (1, 1, 1, 0)
    write_clip(videos / "second.mp4", ["blue"])
    job = wait(client, start(), "done")
    assert (job["num_done"], job["num_skipped"]) == (1, 1)
    assert client.get("/api/folders").json()[0]["num_videos"] == 2
    assert [job["num_done"] for job in client.get("/api/jobs").json()] == [1, 1]


def test_progress_is_sent_as_events_until_the_run_ends(client, start):
    job_id = start()
    with client.stream("GET", f"/api/jobs/{job_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    jobs = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert jobs[-1]["state"] == "done"
    assert {job["job_id"] for job in jobs} == {job_id}


def test_failed_files_are_named_and_can_be_retried(client, start, videos):
    (videos / "broken.mp4").write_text("no video")
    job = wait(client, start(), "done")
    assert [failed["path"] for failed in job["failed"]] == [str(videos / "broken.mp4")]
    assert "broken.mp4" in job["failed"][0]["reason"]
    write_clip(videos / "broken.mp4", ["green"])
    again = client.post(f"/api/jobs/{job['job_id']}/retry")
    assert again.status_code == 202
    mended = wait(client, again.json()["job_id"], "done")
    assert (mended["total"], mended["num_done"], mended["num_failed"]) == (1, 1, 0)
    assert client.post(f"/api/jobs/{mended['job_id']}/retry").status_code == 409


def test_a_name_that_is_not_utf8_is_escaped(client, start, videos):
    (videos / os.fsdecode(b"b\xff.mp4")).write_bytes((videos / "first.mp4").read_bytes())
    job = wait(client, start(), "done")
    assert [failed["path"] for failed in job["failed"]] == [f"{videos}/b\\udcff.mp4"]
    events = client.get(f"/api/jobs/{job['job_id']}/events")
    assert "b\\\\udcff.mp4" in events.text


def test_a_run_pauses_and_resumes_while_searches_are_answered(client, start, videos, encoder, monkeypatch):
    may_go_on, step = queue.SimpleQueue(), IndexJob._wait
    monkeypatch.setattr(IndexJob, "_wait", lambda job: (may_go_on.put(job._is_unpaused.is_set()), step(job)))
    wait(client, start(), "done")
    write_clip(videos / "second.mp4", ["blue"])
    encoder.may.clear()
    job_id = start()
    wait(client, job_id, "running")
    assert client.post(f"/api/jobs/{job_id}/pause").json()["state"] == "paused"
    encoder.may.set()
    while may_go_on.get(timeout=20):
        pass
    assert client.get(f"/api/jobs/{job_id}").json()["state"] == "paused"
    assert client.post("/api/search", json={"text": "red"}).status_code == 200
    assert client.get("/api/videos").json()["total"] == 1
    client.post(f"/api/jobs/{job_id}/resume")
    wait(client, job_id, "done")
    assert client.get("/api/videos").json()["total"] == 2


def test_a_stopped_run_keeps_finished_videos_and_unlocks_the_library(client, start, videos, encoder):
    wait(client, start(), "done")
    write_clip(videos / "second.mp4", ["blue"])
    encoder.may.clear()
    job_id = start()
    wait(client, job_id, "running")
    client.post(f"/api/jobs/{job_id}/stop")
    encoder.may.set()
    wait(client, job_id, "stopped")
    assert client.get("/api/videos").json()["total"] == 1
    assert wait(client, start(), "done")["num_done"] == 1


@pytest.fixture
def held(monkeypatch, tmp_path):
    """A running job, the event that lets it finish its single step, and its thread."""
    begun, may = threading.Event(), threading.Event()

    def index(_, progress):
        progress(Progress(tmp_path / "a", "encoding", 0, 1))
        begun.set()
        assert may.wait(20)
        return IndexReport()

    library, job = untrimmed.open(tmp_path / "library"), IndexJob([])
    monkeypatch.setattr(library, "index", index)
    thread = threading.Thread(target=job.run, args=(library,), daemon=True)
    thread.start()
    assert begun.wait(20)
    return job, may, thread


def test_a_stop_at_the_end_of_a_run_keeps_its_final_state(held, monkeypatch):
    job, may, thread = held
    copy = Job.model_copy

    def slow(self, *, update):
        made = copy(self, update=update)
        if update.get("state") == "stopping":
            may.set()
            thread.join(0.5)  # the run ends in the meantime, if it can
        return made

    monkeypatch.setattr(Job, "model_copy", slow)
    job.stop()
    thread.join(20)
    assert job.status.state == "done"
    for steer in (job.pause, job.resume, job.stop):
        steer()
        assert job.status.state == "done"


def test_a_waiting_run_can_be_paused_and_stopped(tmp_path):
    job = IndexJob([])
    job.pause()
    assert job.status.state == "paused"
    job.resume()
    assert job.status.state == "waiting"
    job.stop()
    job.pause()
    assert job.status.state == "stopping"
    thread = threading.Thread(target=job.run, args=(untrimmed.open(tmp_path / "library"),), daemon=True)
    thread.start()
    thread.join(20)
    assert job.status.state == "stopped"


def test_a_library_locked_by_another_process_is_reported(client, start, tmp_path):
    from untrimmed.search.store.table import VideoIndex

    with VideoIndex(tmp_path / "library", create=True):
        job = wait(client, start(), "failed")
    assert job["problem"]


def test_only_named_folders_and_folders_with_videos_can_be_indexed(client, tmp_path):
    assert [folder["path"] for folder in client.get("/api/folders").json()] == [str(tmp_path / "videos")]
    assert client.post("/api/jobs", json={"folder_ids": ["0123456789abcdef"]}).status_code == 404
    for body in ({"folder_ids": []}, {"folder_ids": ["/etc"]}, {"paths": ["/etc"]}):
        assert client.post("/api/jobs", json=body).status_code == 422


@pytest.mark.parametrize("action", ["pause", "resume", "stop", "retry"])
def test_unknown_runs_are_refused(client, action):
    assert client.post(f"/api/jobs/0123456789abcdef/{action}").status_code == 404
