"""Searches over HTTP return the hits of the library, and errors in one line."""

import asyncio
import io
import json
import math
import threading
import time
from dataclasses import fields
from datetime import date

import numpy as np
import pytest
from PIL import Image
from starlette.requests import Request
from starlette.testclient import TestClient

import untrimmed
from tests.apart import apart
from tests.toy import write_clip
from untrimmed.errors import UntrimmedError
from untrimmed.search.query.hits import Hit, Hits, WeighedWord
from untrimmed.search.query.query import Cutoff, Filters, Place, Query, Weights
from untrimmed.server.app import create_app
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import SearchRequest
from untrimmed.server.search_routes import MAX_PICTURE_BYTES, search_lines, search_picture
from untrimmed.video import reader as reader_module


def test_the_schema_of_a_hit_has_its_rank_and_all_its_fields(client):
    properties = client.app.openapi()["components"]["schemas"]["HitJson"]["properties"]
    assert properties.keys() == {"rank", *(field.name for field in fields(Hit))}


def test_a_search_returns_the_hits_of_the_library(client):
    answer = client.post("/api/search", json={"text": "white", "limit": 3, "moments": 2}).json()
    hits = client.app.state.service.library.search("white", limit=3, moments=2)
    assert answer["hits"] == json.loads(json.dumps(hits.to_json()["hits"]))
    assert len({hit["video_id"] for hit in answer["hits"]}) == 3
    assert all("then" not in hit for hit in answer["hits"])


@pytest.mark.parametrize("group_by", ["video", "moment"])
@pytest.mark.parametrize("then", ["", "green"])
def test_hits_have_a_curve_only_on_request(client, group_by, then):
    query = {"text": "white", "then": then, "group_by": group_by}
    plain = client.post("/api/search", json=query).json()["hits"]
    assert all("curve" not in hit for hit in plain)
    hits = client.post("/api/search", json={**query, "curve_points": 6}).json()["hits"]
    curves = [hit.pop("curve") for hit in hits]
    assert hits == plain
    assert {len(curve) for curve in curves} == {6}
    by_video = {
        hit["video_id"]: hit["score"] for hit in client.post("/api/search", json={"text": "white"}).json()["hits"]
    }
    if not then:
        best = [by_video[hit["video_id"]] for hit in hits]
        assert [max(curve) for curve in curves] == pytest.approx(best, abs=1e-4)


def test_a_curve_is_highest_where_the_video_shows_the_sentence(client):
    hits = client.post("/api/search", json={"text": "white", "limit": 50, "curve_points": 12}).json()["hits"]
    for hit in hits:
        part = max(range(12), key=hit["curve"].__getitem__)
        assert part * hit["duration_s"] / 12 <= hit["peak_s"] + 0.01
        assert hit["width"] > hit["height"] > 0


def test_the_answer_has_weights_of_words_if_there_are_any(client, monkeypatch):
    assert "words" not in client.post("/api/search", json={"text": "white"}).json()
    weighed = Hits(words=[WeighedWord("a", 0.1), WeighedWord("sea", 0.9)])
    monkeypatch.setattr(client.app.state.service.library, "search", lambda *_, **__: weighed)
    words = client.post("/api/search", json={"text": "a sea"}).json()["words"]
    assert words == [{"word": "a", "weight": 0.1}, {"word": "sea", "weight": 0.9}]


def test_lines_have_each_hit_before_the_complete_answer(client):
    ask = {"text": "white", "limit": 3}
    answer = client.post("/api/search/lines", json=ask)
    assert answer.headers["content-type"] == "application/x-ndjson"
    *hit_lines, last = map(json.loads, answer.text.splitlines())
    answer_json = client.post("/api/search", json=ask).json()
    assert [line["hit"] for line in hit_lines] == answer_json["hits"] == last["answer"]["hits"]
    assert last["answer"].keys() == answer_json.keys()
    flat = client.post("/api/search/lines", json={**ask, "group_by": "moment"}).text.splitlines()
    assert len(flat) == 1, "moments of all videos are put in order first"


def test_the_first_line_does_not_wait_for_the_others(client, monkeypatch):
    library, line_was_read = client.app.state.service.library, threading.Event()
    hits = library.search("white")

    def search(*_, on_hit, **__):
        on_hit(hits[0])
        assert line_was_read.wait(20)
        return hits

    monkeypatch.setattr(library, "search", search)

    async def first():
        request = SearchRequest(text="white")
        answer = await search_lines(client.app.state.service, request)
        lines = answer.body_iterator
        line = await anext(lines)
        line_was_read.set()
        return line, [rest async for rest in lines]

    line, rest = apart(lambda: asyncio.run(first()))
    assert json.loads(line)["hit"]["video_id"] == hits[0].video_id
    assert len(json.loads(rest[-1])["answer"]["hits"]) == len(hits)


def test_an_error_in_lines_is_a_problem_or_the_last_line(client, monkeypatch):
    refused = client.post("/api/search/lines", json={"text": "green", "filters": {"within": "/nowhere"}})
    assert (refused.status_code, refused.json()["error"]) == (404, "UnknownNameError")
    library = client.app.state.service.library
    hits = library.search("white")

    def search(*_, on_hit, **__):
        on_hit(hits[0])
        raise UntrimmedError("the table is damaged")

    monkeypatch.setattr(library, "search", search)
    *_, last = client.post("/api/search/lines", json={"text": "white"}).text.splitlines()
    assert json.loads(last) == {"problem": "the table is damaged"}


def test_a_disconnect_during_an_upload_is_not_a_bug(client):
    async def breaks_off():
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "headers": [], "method": "POST"}, breaks_off)
    with pytest.raises(PublicError):
        apart(lambda: asyncio.run(search_picture(client.app.state.service, request, query="")))


def test_options_reach_the_library(client, world):
    flag = str(world / "videos" / "flag.mp4")
    ask = {"text": "green", "filters": {"within": flag}}
    assert [hit["video"] for hit in client.post("/api/search", json=ask).json()["hits"]] == [flag]
    assert client.post("/api/search", json={"text": "green", "min_score": 2.0}).json()["hits"] == []
    unknown = client.post("/api/search", json={"text": "green", "filters": {"within": "/nowhere"}})
    assert (unknown.status_code, unknown.json()["error"]) == (404, "UnknownNameError")
    assert "/nowhere" in unknown.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {}, {"text": ""}, {"text": " "}, {"text": 3}, {"text": "x" * 4001}, {"text": "red", "limit": 0}, {"text": None},
        {"text": "red", "limit": "3"}, {"text": "red", "limit": 501}, {"text": "red", "moments": 0}, [], "red", None,
        {"text": "red", "min_score": "high"}, {"text": "red", "colour": "red"}, {"then": "red"},
        {"text": "red", "filters": {"within": ""}}, {"text": "red", "filters": {"since": "soon"}},
        {"text": "red", "like": [{"video_id": "../../etc", "start_s": 0}]}, {"text": "red", "weights": {"text": 0}},
    ],
)  # fmt: skip
def test_invalid_requests_are_refused_in_one_line(client, body):
    answer = client.post("/api/search", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.json()["detail"].splitlines()) == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"text": "\\ud800"}', b'{"text": "red", "min_score": NaN}']
)
def test_bodies_that_are_not_json_are_refused(client, content):
    answer = client.post("/api/search", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


def test_all_moments_are_in_time_order_and_include_the_best(client):
    answers = [
        client.post("/api/search", json={"text": "red", "limit": 1, "moments": number}).json() for number in (1, "all")
    ]
    best, every = (answer["hits"][0] for answer in answers)
    starts = [moment["start_s"] for moment in every["moments"]]
    assert starts == sorted(starts)
    assert best["moments"][0] in every["moments"]
    assert every["start_s"] == best["start_s"]
    for number in (0, 51, "some"):
        answer = client.post("/api/search", json={"text": "red", "moments": number})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("body.moments: ")


def test_all_parts_of_a_query_reach_the_library(client, ids, world):
    flag, sea = ids["flag.mp4"], ids["sea [1].mp4"]
    request = {
        "text": "red",
        "then": "green",
        "within_s": 5,
        "without": ["blue"],
        "without_in": "video",
        "like": [{"video_id": flag, "start_s": 0.5}],
        "unlike": [{"video_id": sea, "start_s": 0, "end_s": 2}],
        "weights": {"then": 2},
        "filters": {"min_duration_s": 3, "since": "2000-01-01", "within": str(world / "videos")},
        "group_by": "moment",
        "fold": 0.99,
        "limit": 4,
        "moments": 2,
    }
    query = Query(
        "red",
        then="green",
        within_s=5.0,
        without=("blue",),
        without_in="video",
        like=(Place(flag, 0.5),),
        unlike=(Place(sea, 0.0, 2.0),),
        weights=Weights(then=2.0),
        filters=Filters(min_duration_s=3.0, since=date(2000, 1, 1), within=world / "videos"),
        group_by="moment",
        fold=0.99,
    )
    answer = client.post("/api/search", json=request).json()
    hits = client.app.state.service.library.search(query, limit=4, moments=2)
    assert [(hit["video_id"], hit["score"], hit["start_s"]) for hit in answer["hits"]] == [
        (hit.video_id, hit.score, hit.start_s) for hit in hits
    ]
    assert answer["hits"][0]["then"] == list(hits[0].to_json(1)["then"])
    assert set(SearchRequest.model_fields) - {field.name for field in fields(Cutoff)} == {
        field.name for field in fields(Query) if field.name not in ("_", "image")
    }


def test_an_unknown_field_is_named_with_a_similar_field(client):
    place = {"video_id": "8f14e45fceea167a", "start_s": 1.0, "ends_s": 2.0}
    for request, message in (
        ({"txt": "white"}, "unknown field 'txt'. Did you mean 'text'?"),
        ({"text": "white", "zzzz": 1}, "unknown field 'zzzz'"),
        ({"like": [place]}, "body.like.0: unknown field 'ends_s'. Did you mean 'end_s'?"),
    ):
        answer = client.post("/api/search", json=request)
        assert (answer.status_code, answer.json()["detail"].startswith(message)) == (422, True)


def test_a_picture_finds_similar_videos(client):
    picture = io.BytesIO()
    Image.fromarray(np.full((40, 60, 3), (0, 0, 255), np.uint8)).save(picture, "PNG")
    hits = client.post("/api/search/picture", params={"limit": 1}, content=picture.getvalue()).json()["hits"]
    assert [hit["video"].rpartition("/")[2] for hit in hits] == ["sea [1].mp4"]
    request = {"text": "white", "without": ["red"], "filters": {"min_duration_s": 5}, "limit": 7}
    answer = client.post(
        "/api/search/picture", params={"query": json.dumps(request)}, content=picture.getvalue()
    ).json()
    query = Query("white", without=("red",), filters=Filters(min_duration_s=5), image=np.asarray(Image.open(picture)))
    hits = client.app.state.service.library.search(query, limit=7, moments=3)
    assert [(hit["video_id"], hit["score"]) for hit in answer["hits"]] == [(hit.video_id, hit.score) for hit in hits]
    for wrong in ("{", "3", '{"colour": "red"}'):
        answer = client.post("/api/search/picture", params={"query": wrong}, content=picture.getvalue())
        assert (answer.status_code, answer.json()["detail"].startswith("query")) == (422, True)


def test_an_uploaded_picture_is_decoded_in_the_child_and_limited_in_size(client):
    refused = client.post("/api/search/picture", content=b"no picture")
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert client.post("/api/search/picture", content=b"").status_code == 422
    large = io.BytesIO()
    Image.fromarray(np.zeros((700, 700, 3), np.uint8)).save(large, "BMP")
    assert client.post("/api/search/picture", content=large.getvalue()).status_code == 200

    def endless():
        for _ in range(40):
            yield b"\x89PNG" * (1 << 18)

    assert MAX_PICTURE_BYTES == 32 << 20
    assert client.post("/api/search/picture", content=endless()).status_code == 413


def test_uploaded_pictures_share_the_child_that_decodes_frames(client, ids, monkeypatch):
    started = []

    class Child(reader_module.DecodeProcess):
        def __init__(self, *values):
            super().__init__(*values)
            started.append(self.pid)

    monkeypatch.setattr(reader_module, "DecodeProcess", Child)
    picture = io.BytesIO()
    Image.fromarray(np.full((40, 60, 3), (0, 0, 255), np.uint8)).save(picture, "PNG")
    for content, status in ((picture.getvalue(), 200), (b"no picture", 422), (picture.getvalue(), 200)):
        assert client.post("/api/search/picture", content=content).status_code == status
    assert client.get(f"/api/videos/{ids['flag.mp4']}/frame", params={"time_s": 1}).status_code == 200
    assert len(started) == 1, "the next one meets it warm, after one that was no picture too"


@pytest.mark.parametrize("max_s", [math.inf, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_new_video_is_found_as_soon_as_it_is_committed(toy, tmp_path, max_s):
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
        assert time.perf_counter() - committed < max_s


def test_an_empty_library_is_reported_and_served(toy, tmp_path):
    with TestClient(create_app(untrimmed.open(tmp_path / "none")), base_url="http://localhost:8765") as client:
        answer = client.post("/api/search", json={"text": "red"})
        assert answer.status_code == 409
        assert "untrimmed index FOLDER" in answer.json()["detail"]
        assert client.get("/healthz").json() == {"status": "empty", "num_videos": 0}
        assert client.get("/api/videos").json() == {"total": 0, "videos": []}
        assert client.get("/api/folders").json() == []


def test_slow_decoding_does_not_delay_a_search(client, ids, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(client.app.state.service.pictures, "jpeg", lambda *_: release.wait(20) and b"")
    url = f"/api/videos/{ids['flag.mp4']}/frame"
    waiting = [threading.Thread(target=client.get, args=(url,)) for _ in range(12)]
    for thread in waiting:
        thread.start()
    assert client.post("/api/search", json={"text": "red"}).status_code == 200
    assert all(thread.is_alive() for thread in waiting)
    release.set()
    for thread in waiting:
        thread.join()


def test_answers_to_bugs_contain_no_details(toy, world, monkeypatch):
    app = create_app(untrimmed.open(world / "library"))
    monkeypatch.setattr(app.state.service.library, "search", lambda *_, **__: 1 / 0)
    with TestClient(app, base_url="http://localhost:8765", raise_server_exceptions=False) as client:
        answer = client.post("/api/search", json={"text": "red"})
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text


def test_metrics_count_requests_by_route_pattern(client, ids):
    client.get(f"/api/videos/{ids['flag.mp4']}")
    client.get("/api/videos/0123456789abcdef")
    client.get("/secret/path")
    text = client.get("/metrics").text
    assert 'untrimmed_requests_total{method="GET",route="/api/videos/{video_id}",status="200"} 1.0' in text
    assert 'untrimmed_requests_total{method="GET",route="/api/videos/{video_id}",status="404"} 1.0' in text
    assert "secret" not in text
    assert "untrimmed_videos 5.0" in text
