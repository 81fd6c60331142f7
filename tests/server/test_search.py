"""Searches over HTTP are the library's, and errors are one line."""

import io
import threading
import time

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import untrimmed
from tests.toy import write_clip
from untrimmed.server.app import create_app
from untrimmed.server.search_routes import MOST_PICTURE_BYTES


def test_a_search_answers_what_the_library_answers(client):
    found = client.post("/api/search", json={"text": "white", "limit": 3, "moments": 2}).json()
    hits = client.app.state.service.library.search("white", limit=3, moments=2)
    assert [(hit["video"], hit["video_id"]) for hit in found["hits"]] == [(str(h.video), h.video_id) for h in hits]
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3]
    for hit, own in zip(found["hits"], hits, strict=True):
        assert hit["moments"] == [
            {"start_s": round(m.start_s, 3), "end_s": round(m.end_s, 3), "score": round(m.score, 6)}
            for m in own.moments
        ]
        assert (hit["start_s"], hit["end_s"]) == (hit["moments"][0]["start_s"], hit["moments"][0]["end_s"])
    assert len({hit["video_id"] for hit in found["hits"]}) == 3


def test_options_reach_the_library(client, world):
    ask = {"text": "green", "within": str(world / "videos" / "flag.mp4")}
    assert [hit["video"] for hit in client.post("/api/search", json=ask).json()["hits"]] == [ask["within"]]
    assert client.post("/api/search", json={"text": "green", "min_score": 2.0}).json()["hits"] == []
    unknown = client.post("/api/search", json={"text": "green", "within": "/nowhere"})
    assert (unknown.status_code, unknown.json()["error"]) == (404, "UnknownNameError")
    assert unknown.json()["detail"].startswith("/nowhere: no video of ")


@pytest.mark.parametrize(
    "body",
    [
        {}, {"text": ""}, {"text": " "}, {"text": 3}, {"text": "x" * 4001}, {"text": "red", "limit": 0}, {"text": None},
        {"text": "red", "limit": "3"}, {"text": "red", "limit": 501}, {"text": "red", "moments": 0}, [], "red", None,
        {"text": "red", "min_score": "high"}, {"text": "red", "colour": "red"}, {"text": "red", "within": ""},
    ],
)  # fmt: skip
def test_requests_of_another_form_are_refused_in_one_line(client, body):
    answer = client.post("/api/search", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.json()["detail"].splitlines()) == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"text": "\\ud800"}', b'{"text": "red", "min_score": NaN}']
)
def test_bodies_that_are_no_json_are_refused(client, content):
    answer = client.post("/api/search", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


def test_what_looks_like_a_frame_is_found_by_that_frame(client, ids):
    answer = client.post("/api/similar", json={"video_id": ids["flag.mp4"], "time_s": 0.5, "moments": 1})
    first = answer.json()["hits"][0]
    assert first["video_id"] == ids["flag.mp4"]
    assert first["start_s"] <= 0.5 <= first["end_s"]


def test_what_looks_like_a_picture_is_found_by_the_picture(client):
    picture = io.BytesIO()
    Image.fromarray(np.full((40, 60, 3), (0, 0, 255), np.uint8)).save(picture, "PNG")
    hits = client.post("/api/similar/picture", params={"limit": 1}, content=picture.getvalue()).json()["hits"]
    assert [hit["video"].rpartition("/")[2] for hit in hits] == ["sea [1].mp4"]


def test_what_is_sent_is_decoded_in_the_child_and_has_a_cap(client):
    assert client.post("/api/similar/picture", content=b"no picture").status_code == 422
    assert client.post("/api/similar/picture", content=b"").status_code == 422

    def endless():
        for _ in range(40):
            yield b"\x89PNG" * (1 << 18)

    assert MOST_PICTURE_BYTES == 32 << 20
    assert client.post("/api/similar/picture", content=endless()).status_code == 413


def test_a_new_video_is_found_within_a_second_of_its_commit(toy, world, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    write_clip(videos / "first.mp4", ["red"])
    library = untrimmed.open(tmp_path / "library")
    library.index(videos)
    with TestClient(create_app(library), base_url="http://localhost:8765") as client:
        client.post("/api/search", json={"text": "blue"})
        write_clip(videos / "second.mp4", ["blue"])
        untrimmed.open(tmp_path / "library").index(videos)
        committed = time.perf_counter()
        hits = client.post("/api/search", json={"text": "blue", "limit": 1}).json()["hits"]
        assert hits[0]["video"] == str(videos / "second.mp4")
        assert client.get("/api/videos").json()["total"] == 2
        assert time.perf_counter() - committed < 1


def test_a_library_that_is_empty_says_so_and_serves_on(toy, tmp_path):
    with TestClient(create_app(untrimmed.open(tmp_path / "none")), base_url="http://localhost:8765") as client:
        answer = client.post("/api/search", json={"text": "red"})
        assert answer.status_code == 409
        assert "untrimmed index FOLDER" in answer.json()["detail"]
        assert client.get("/healthz").json() == {"status": "empty", "num_videos": 0}
        assert client.get("/api/videos").json() == {"total": 0, "videos": []}
        assert client.get("/api/folders").json() == []


def test_slow_decoding_keeps_no_search_waiting(client, ids, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(client.app.state.service.pictures, "jpeg", lambda *_: release.wait(20) and b"")
    url = f"/api/videos/{ids['flag.mp4']}/frame"
    waiting = [threading.Thread(target=client.get, args=(url,)) for _ in range(12)]
    for thread in waiting:
        thread.start()
    started = time.perf_counter()
    assert client.post("/api/search", json={"text": "red"}).status_code == 200
    assert time.perf_counter() - started < 2
    release.set()
    for thread in waiting:
        thread.join()


def test_bugs_are_answered_without_their_insides(toy, world, monkeypatch):
    app = create_app(untrimmed.open(world / "library"))
    monkeypatch.setattr(app.state.service.library, "search", lambda *_, **__: 1 / 0)
    with TestClient(app, base_url="http://localhost:8765", raise_server_exceptions=False) as client:
        answer = client.post("/api/search", json={"text": "red"})
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text


def test_figures_count_requests_by_route_and_never_by_what_was_asked(client, ids):
    client.get(f"/api/videos/{ids['flag.mp4']}")
    client.get("/api/videos/0123456789abcdef")
    client.get("/secret/path")
    text = client.get("/metrics").text
    assert 'untrimmed_requests_total{method="GET",route="/api/videos/{video_id}",status="200"} 1.0' in text
    assert 'untrimmed_requests_total{method="GET",route="/api/videos/{video_id}",status="404"} 1.0' in text
    assert "secret" not in text
    assert "untrimmed_videos 5.0" in text
