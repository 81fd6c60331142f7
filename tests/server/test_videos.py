"""Lists, curves, frames and files. Only indexed files are served."""

import io
import os
import random
import re
import shutil
import sys
import threading

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import untrimmed
from tests.media import clock_frame, read_clock, write_pictures
from tests.refusals import require_named
from tests.server.conftest import HOSTILE
from tests.toy import write_clip
from untrimmed import Query
from untrimmed.server import media, service, video_routes
from untrimmed.server.app import create_app


def test_videos_are_listed_by_path_and_paged(client):
    whole = client.get("/api/videos").json()
    assert whole["total"] == len(whole["videos"]) == 5
    assert [video["video"] for video in whole["videos"]] == sorted(video["video"] for video in whole["videos"])
    page = client.get("/api/videos", params={"offset": 3, "limit": 1}).json()
    assert (page["total"], page["videos"]) == (5, whole["videos"][3:4])
    assert client.get("/api/videos", params={"name": "SEA ["}).json()["total"] == 1


def test_hostile_names_are_unchanged_in_json(client):
    answer = client.get("/api/videos")
    assert answer.headers["content-type"] == "application/json"
    names = [video["video"].rpartition("/")[2] for video in answer.json()["videos"]]
    assert f"{HOSTILE}.mp4" in names
    assert "ß" * 125 + ".mp4" in names


def test_the_times_of_frames_are_listed(client, ids):
    at = f"/api/videos/{ids['flag.mp4']}/frames"
    assert client.get(at, params={"start_s": 1.05, "end_s": 1.45}).json() == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4])
    assert client.get(at, params={"start_s": 1, "end_s": 22}).status_code == 422
    assert client.get(at, params={"start_s": 1000, "end_s": 1001}).status_code == 422


def test_the_edges_of_a_span_move_to_the_shot_changes(client, ids):
    edges = client.get(f"/api/videos/{ids['flag.mp4']}/edges", params={"start_s": 1.75, "end_s": 4.25}).json()
    assert edges == {"start_s": pytest.approx(2.0), "end_s": pytest.approx(4.0)}
    words = {"start_s": 1.75, "end_s": 3.75, "extend_only": True}
    edges = client.get(f"/api/videos/{ids['flag.mp4']}/edges", params=words).json()
    assert edges == {"start_s": 1.75, "end_s": pytest.approx(4.0)}
    reversed_span = {"start_s": 3, "end_s": 1}
    assert client.get(f"/api/videos/{ids['flag.mp4']}/edges", params=reversed_span).status_code == 422
    request = {
        "text": "green",
        "limit": 1,
        "filters": {"within": str(client.app.state.service.record(ids["flag.mp4"]).path)},
    }
    sampled, exact = (
        client.post("/api/search", json={**request, "edges": edges}).json()["hits"][0] for edges in ("sampled", "exact")
    )
    assert sampled["end_s"] - sampled["start_s"] == pytest.approx(2.25)
    assert exact["end_s"] - exact["start_s"] == pytest.approx(2.0)
    assert (exact["start_s"], exact["end_s"]) == (exact["moments"][0]["start_s"], exact["moments"][0]["end_s"])


def test_a_video_reports_whether_its_file_can_be_read(client, ids):
    detail = client.get(f"/api/videos/{ids['clock.webm']}").json()
    assert (detail["can_be_read"], detail["problem"], detail["kind"]) == (True, None, "video/webm")
    assert (detail["width"], detail["height"]) == (160, 96)


def test_the_curve_of_a_sentence_comes_from_the_library(client, ids, world):
    curve = client.get(f"/api/videos/{ids['flag.mp4']}/relevance", params={"text": "white"}).json()
    times_s, relevance = client.app.state.service.library.relevance("white", world / "videos" / "flag.mp4")
    np.testing.assert_allclose(curve["times_s"], times_s, atol=1e-3)
    np.testing.assert_allclose(curve["relevance"], relevance, atol=1e-5)
    assert 2 <= curve["times_s"][int(np.argmax(curve["relevance"]))] < 4


def test_the_curve_of_a_query_comes_from_the_library(client, ids, world):
    like = {"video_id": ids["flag.mp4"], "start_s": 4.5}
    curve = client.post(f"/api/videos/{ids['flag.mp4']}/relevance", json={"like": [like]}).json()
    assert curve["times_s"][int(np.argmax(curve["relevance"]))] >= 4
    query = Query("white", without=("green",))
    expected = client.app.state.service.library.relevance(query, world / "videos" / "flag.mp4")[1]
    request = {"text": "white", "without": ["green"]}
    curve = client.post(f"/api/videos/{ids['flag.mp4']}/relevance", json=request, params={"points": 3}).json()
    assert len(curve["times_s"]) == 3
    assert max(curve["relevance"]) == pytest.approx(expected.max(), abs=1e-5)
    assert client.post(f"/api/videos/{ids['flag.mp4']}/relevance", json={"then": "green"}).status_code == 422


@pytest.mark.parametrize("time_s", [0.0, 0.5, 1.25, 1.96])
def test_a_frame_is_the_one_on_screen(client, ids, time_s):
    answer = client.get(f"/api/videos/{ids['clock.webm']}/frame", params={"time_s": time_s, "short_side": 96})
    assert answer.headers["content-type"] == "image/jpeg"
    assert read_clock(np.asarray(Image.open(io.BytesIO(answer.content)))) == round(time_s * 25)


def test_frames_are_scaled_down_and_decoded_once(client, ids):
    service = client.app.state.service
    url = f"/api/videos/{ids['clock.webm']}/frame?time_s=1&short_side=80"
    first = client.get(url).content
    assert Image.open(io.BytesIO(first)).size == (150, 90)
    service.pictures.close()
    assert client.get(url).content == first
    assert service.pictures.num_bytes == len(first)


def test_the_frame_cache_is_bounded(world, client):
    from untrimmed.server.pictures import PictureDecoder

    pictures = PictureDecoder(children=1, cache_bytes=8000)
    for step in range(40):
        pictures.jpeg(world / "videos" / "clock.webm", "x", step * 0.04, 90, 2.0)
        assert pictures.num_bytes <= 8000
    assert pictures.num_bytes > 4000
    pictures.close()


@pytest.mark.parametrize("time_s", [2, 3, 5, 90_000])
def test_a_time_after_the_end_shows_the_last_frame(client, ids, time_s):
    answer = client.get(f"/api/videos/{ids['clock.webm']}/frame", params={"time_s": time_s, "short_side": 96})
    assert read_clock(np.asarray(Image.open(io.BytesIO(answer.content)))) == 49


# -- ranges

RANGES = [  # header, status, length of the answer for a file of N bytes
    ("bytes=0-0", 206, lambda n: 1),
    ("bytes=0-", 206, lambda n: n),
    ("bytes=10-19", 206, lambda n: 10),
    ("bytes=-5", 206, lambda n: 5),
    ("bytes=-999999999999", 206, lambda n: n),
    ("bytes=0-999999999999999999999", 206, lambda n: n),
    ("bytes=999999999-", 416, lambda n: 0),
    ("bytes=99999999999999999999999999-", 416, lambda n: 0),
]
ODD_RANGES = [
    "bytes=-", "bytes=", "bytes", "=", "", "lines=0-5", "bytes=a-b", "bytes=5-1", "bytes=--5", "bytes=0-1-2",
    "bytes=-0", "bytes=1e3-", "bytes=٣-", "bytes= 0 - 5 ", "BYTES=0-5", "bytes=0x0-0x5", "bytes=0-0," * 50 + "1-1",
    "bytes=" + ",".join("0-" for _ in range(2000)), "bytes=" + "9" * 5000 + "-", "bytes=0-5;bytes=7-9",
]  # fmt: skip


@pytest.mark.parametrize(("header", "status", "length"), RANGES)
def test_a_file_is_served_by_ranges(client, ids, world, header, status, length):
    content = (world / "videos" / "clock.webm").read_bytes()
    answer = client.get(f"/api/videos/{ids['clock.webm']}/media", headers={"range": header})
    assert answer.status_code == status
    if status == 206:
        assert len(answer.content) == length(len(content))
        start, end, total = map(int, re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.headers["content-range"]).groups())
        assert (answer.content, total) == (content[start : end + 1], len(content))


@pytest.mark.parametrize("header", ODD_RANGES, ids=lambda header: header[:20])
def test_odd_ranges_are_refused_or_answered_within_the_file(client, ids, world, header):
    size = (world / "videos" / "clock.webm").stat().st_size
    answer = client.get(f"/api/videos/{ids['clock.webm']}/media", headers={"range": header.encode()})
    assert answer.status_code in (200, 206, 400, 416)
    assert len(answer.content) <= size + 20_000  # each of several ranges has its own headers


def test_a_complete_file_has_its_media_type(client, ids, world):
    answer = client.get(f"/api/videos/{ids['clock.webm']}/media")
    assert answer.content == (world / "videos" / "clock.webm").read_bytes()
    assert (answer.headers["content-type"], answer.headers["accept-ranges"]) == ("video/webm", "bytes")


# -- nothing outside the library's files


def traversals(count, seed=0):
    """Variants of `../../etc/passwd` in place of an id."""
    chance = random.Random(seed)
    ups = [
        "..", ".", "%2e%2e", "%2E.", "..%00", "....", "..;", "%252e%252e", "..%c0%af", "%c0%ae%c0%ae", "..\\", ".%00.",
    ]  # fmt: skip
    slashes = ["/", "%2f", "%2F", "%252f", "\\", "%5c", "//", "%c0%af", "/./", ";/"]
    targets = [
        "etc/passwd", "etc/hostname", "proc/self/environ", "library.json", "videos.lance", "writer.lock",
        "records.json",
        "library/library.json", "videos/flag.mp4", "windows/win.ini", "~/.ssh/id_rsa", "dev/zero", "%2fetc%2fpasswd",
    ]  # fmt: skip
    forms = ["/api/videos/{}", "/api/videos/{}/media", "/api/videos/{}/frame", "/api/videos/{}/clip?start_s=0&end_s=1",
             "/api/jobs/{}", "/{}", "/assets/{}", "/api/{}", "/api/videos/0123456789abcdef/{}"]  # fmt: skip
    for _ in range(count):
        slash = chance.choice(slashes)
        climbing = slash.join(chance.choice(ups) for _ in range(chance.randint(0, 8)))
        target = chance.choice(targets).replace("/", slash)
        yield chance.choice(forms).format(chance.choice(["", "/", "file:", "file://"]) + climbing + slash + target)


def test_500_paths_outside_the_library_are_refused(client, world):
    secrets = [b"root:", b"encoder_identity", b"PATH=", (world / "videos" / "flag.mp4").read_bytes()[:64]]
    for path in traversals(500):
        answer = client.get(f"{client.base_url}{path}")  # `//name` alone would be another host
        assert answer.status_code in (400, 404, 405, 422), path
        assert not any(secret in answer.content for secret in secrets), path


@pytest.fixture
def copied_clip(toy, world, tmp_path):
    """A copy of an indexed clip that tests may change: its file, and a client of its library."""
    videos = tmp_path / "videos"
    videos.mkdir()
    write_clip(videos / "mine.mp4", ["red", "blue"])
    library = untrimmed.open(tmp_path / "library")
    library.index(videos)
    with TestClient(create_app(library), base_url="http://localhost:8765") as client:
        yield videos / "mine.mp4", client, library.videos()[0].video_id


def answers(client, video_id):
    return {
        client.get(f"/api/videos/{video_id}/{what}").status_code
        for what in ("media", "frame?time_s=1", "clip?start_s=0&end_s=1")
    }


def test_single_frames_of_a_folder_of_pictures_are_served(toy, tmp_path):
    folder = write_pictures(tmp_path / "frames", map(clock_frame, range(1, 13)))
    library = untrimmed.open(tmp_path / "library")
    library.index(folder, pictures_fps=3.0)
    (video,) = library.videos()
    url = f"/api/videos/{video.video_id}"
    with TestClient(create_app(library), base_url="http://localhost:8765") as client:
        for time_s, number in ((0, 1), (1.4, 5), (3.9, 12), (99, 12)):
            answer = client.get(f"{url}/frame", params={"time_s": time_s, "short_side": 96})
            assert read_clock(np.asarray(Image.open(io.BytesIO(answer.content)))) == number
        assert client.get(f"{url}/media").status_code == 409
        assert client.get(url).json()["can_be_read"] is False
        (folder / "00003.png").unlink()
        assert client.get(f"{url}/frame?time_s=2").status_code == 409
        shutil.rmtree(folder)
        assert client.get(f"{url}/frame?time_s=2").status_code == 404


@pytest.mark.parametrize("what", ["picture", "folder"])
def test_a_picture_swapped_between_check_and_read_is_not_served(what, toy, tmp_path, monkeypatch):
    folder = write_pictures(tmp_path / "frames", map(clock_frame, range(1, 13)))
    secret = write_pictures(tmp_path / "secret", map(clock_frame, range(21, 33)))
    library = untrimmed.open(tmp_path / "library")
    library.index(folder, pictures_fps=3.0)
    (video,) = library.videos()
    frame_source = service.frame_source

    def swapping(record):
        source = frame_source(record)
        if what == "folder":
            folder.rename(tmp_path / "moved")
            folder.symlink_to(secret)
        else:
            (folder / "00005.png").unlink()
            (folder / "00005.png").hardlink_to(secret / "00005.png")
        return source

    monkeypatch.setattr(service, "frame_source", swapping)
    with TestClient(create_app(library), base_url="http://localhost:8765") as client:
        assert client.get(f"/api/videos/{video.video_id}/frame?time_s=1.4").status_code == 422


def test_a_link_out_of_the_folder_is_refused(copied_clip, tmp_path):
    file, client, video_id = copied_clip
    shutil.move(file, tmp_path / "elsewhere.mp4")
    file.symlink_to(tmp_path / "elsewhere.mp4")
    assert answers(client, video_id) == {409}
    assert client.get(f"/api/videos/{video_id}").json()["can_be_read"] is False


def test_a_link_within_the_folder_is_followed(copied_clip):
    file, client, video_id = copied_clip
    shutil.move(file, file.with_name("renamed.mp4"))
    file.symlink_to("renamed.mp4")
    assert answers(client, video_id) == {200}


def test_a_file_swapped_between_check_and_read_is_not_served(copied_clip, tmp_path, monkeypatch):
    file, client, video_id = copied_clip
    content, secret = file.read_bytes(), write_clip(tmp_path / "secret.mp4", ["green", "green"])
    whole = client.get(f"/api/videos/{video_id}/media").content
    for module, look in ((video_routes, "open_media"), (video_routes, "media_file"), (service, "frame_source")):
        monkeypatch.setattr(module, look, swapped_behind(getattr(module, look), file, secret))
    assert whole == content
    assert client.get(f"/api/videos/{video_id}/media").content == content, "what was opened, which has no name now"
    part = client.get(f"/api/videos/{video_id}/media", headers={"range": "bytes=5-104"})
    assert part.status_code == 409, "for the next one the link is there from the beginning"
    for what in ("frame?time_s=1", "clip?start_s=0&end_s=1"):
        file.unlink()
        file.write_bytes(content)
        os.utime(file, ns=(0, client.app.state.service.record(video_id).mtime_ns))
        answer = client.get(f"/api/videos/{video_id}/{what}")
        assert answer.status_code == 422
        assert file.is_symlink()


def swapped_behind(look, file, secret):
    """Replace a file with a link to another one right after it was checked."""

    def swapping(record):
        seen = look(record)
        file.unlink()
        file.symlink_to(secret)
        return seen

    return swapping


def test_a_missing_file_is_not_to_be_indexed_again(copied_clip):
    file, client, video_id = copied_clip
    file.rename(file.with_suffix(".away"))
    problem = client.get(f"/api/videos/{video_id}").json()["problem"]
    require_named(problem, file.name, "drive")
    assert "index" not in problem
    file.with_suffix(".away").rename(file)
    assert client.get(f"/api/videos/{video_id}").json()["problem"] is None


@pytest.mark.parametrize("what", ["other content", "folder", "pipe", "gone", "forbidden link"])
def test_a_file_that_replaced_a_video_is_refused(copied_clip, what):
    file, client, video_id = copied_clip
    file.unlink()
    if what == "other content":
        file.write_text("a secret diary")
    elif what == "folder":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "forbidden link":
        file.symlink_to("/etc/passwd")
    assert answers(client, video_id) <= {404, 409}


@pytest.mark.skipif(sys.platform != "linux", reason="large files are compared on Linux only")
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_large_file_of_the_same_size_and_time_is_compared_in_the_background(copied_clip, monkeypatch, is_replaced):
    monkeypatch.setattr(media, "_MAX_COMPARED_BYTES", 0)
    file, client, video_id = copied_clip
    content = bytearray(file.read_bytes())
    status = file.stat()
    content[len(content) // 2] ^= is_replaced
    file.unlink()
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = file.stat()
    key = now.st_dev, now.st_ino, now.st_ctime_ns
    assert client.get(f"/api/videos/{video_id}/media").status_code == 200
    for thread in threading.enumerate():
        if thread.name == "compare":
            thread.join(20)
    assert (media._content_hashes[key] != client.app.state.service.record(video_id).content_hash) == is_replaced
    assert answers(client, video_id) == {409 if is_replaced else 200}


def test_another_file_of_the_same_size_and_time_is_refused_and_a_copy_is_served(copied_clip, monkeypatch):
    file, client, video_id = copied_clip
    content = file.read_bytes()
    status = file.stat()
    other = bytearray(content)
    other[len(other) // 2] ^= 1
    for replacement, expected in ((bytes(other), 409), (content, 200)):
        file.unlink()
        file.write_bytes(replacement)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert answers(client, video_id) == {expected}
    assert client.get(f"/api/videos/{video_id}/media").content == content
    monkeypatch.setattr(media, "content_hash", None)  # the content of a file is read once
    assert answers(client, video_id) == {200}


def test_clips_are_cut_and_named_after_their_video(client, ids, tmp_path):
    import av

    answer = client.get(f"/api/videos/{ids['clock.webm']}/clip", params={"start_s": 0.4, "end_s": 1.2})
    assert answer.headers["content-disposition"] == 'attachment; filename="clock_0.4-1.2s.mp4"'
    (tmp_path / "clip.mp4").write_bytes(answer.content)
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        frames = [read_clock(frame.to_ndarray(format="rgb24")) for frame in clip.decode(video=0)]
    assert (frames[0], frames[-1], len(frames)) == (10, 29, 20)


@pytest.mark.parametrize(("start_s", "end_s"), [(1, 1), (2, 1), (0, 601), (50, 60)])
def test_empty_and_too_long_spans_are_refused(client, ids, start_s, end_s):
    answer = client.get(f"/api/videos/{ids['clock.webm']}/clip", params={"start_s": start_s, "end_s": end_s})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["", "/media", "/frame?time_s=1"])
def test_head_has_the_headers_of_get_and_no_body(client, ids, path):
    path = f"/api/videos/{ids['flag.mp4']}{path}"
    head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))
    assert client.head("/api/videos/0123456789abcdef").status_code == 404


def test_a_client_that_has_a_frame_gets_no_second_copy(client, ids, monkeypatch):
    address = f"/api/videos/{ids['clock.webm']}/frame?time_s=1"
    first = client.get(address)
    monkeypatch.setattr(client.app.state.service, "frame", None)  # nothing is decoded
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
        again = client.get(address, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    with pytest.raises(TypeError):
        client.get(address, headers={"if-none-match": '"other"'})


def test_only_the_files_of_the_page_are_compressed(client, ids):
    script = client.get("/page.js", headers={"accept-encoding": "gzip"})
    assert script.headers["content-encoding"] == "gzip"
    with client.stream("GET", "/page.js", headers={"accept-encoding": "gzip"}) as answer:
        assert sum(map(len, answer.iter_raw())) < len(script.content) / 2
    plain = client.get("/page.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == script.content
    media = f"/api/videos/{ids['clock.webm']}/media"
    for path in (media, f"/api/videos/{ids['clock.webm']}/frame?time_s=1", "/api/openapi.json"):
        assert "content-encoding" not in client.get(path, headers={"accept-encoding": "gzip"}).headers
    part = client.get(media, headers={"accept-encoding": "gzip", "range": "bytes=0-9"})
    assert (part.status_code, len(part.content)) == (206, 10)


def test_facts_name_the_modes_that_the_library_can_be_searched_in(toy, videos, tmp_path):
    library = untrimmed.open(tmp_path / "library")
    client = TestClient(create_app(library), base_url="http://localhost:8765")
    assert client.get("/api/facts").json()["modes"] == ["seen"]
    library.index(videos)
    assert client.get("/api/facts").json()["modes"] == ["seen"]
    write_clip(videos / "talk.mp4", ["blue"])
    (videos / "talk.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nThe whale sings.\n")
    library.index(videos)
    assert client.get("/api/facts").json()["modes"] == ["seen", "said"]


def test_a_transcript_is_in_order_with_the_words_of_sentences(toy, videos, tmp_path):
    library = untrimmed.open(tmp_path / "library")
    write_clip(videos / "talk.mp4", ["blue"])
    subtitles = "1\n00:00:00,000 --> 00:00:01,000\nThe whale sings.\n\n2\n00:00:01,000 --> 00:00:02,000\nA song!\n"
    (videos / "talk.srt").write_text(subtitles)
    library.index(videos)
    client = TestClient(create_app(library), base_url="http://localhost:8765")
    ids = {os.path.basename(record.path): record.video_id for record in library.videos()}
    address = f"/api/videos/{ids['talk.mp4']}/transcript"
    plain = client.get(address).json()
    assert [(line["text"], line["mode"], line["source"], line["start_s"]) for line in plain] == [
        ("The whale sings.", "said", "subtitle", 0.0), ("A song!", "said", "subtitle", 1.0),
    ]  # fmt: skip
    assert [(line["words"], line["strength"]) for line in plain] == [([], 0.0)] * 2
    first, second = client.get(address, params={"text": ["a whale", "the song"]}).json()
    assert (first["words"], first["strength"]) == ([{"start": 4, "end": 9}], 0.5)
    assert (second["words"], second["strength"]) == ([{"start": 2, "end": 6}], 0.5)
    assert client.get(f"/api/videos/{ids['first.mp4']}/transcript").json() == []
    assert client.get("/api/videos/0000000000000000/transcript").status_code == 404
    assert client.get(address, params={"text": [""]}).status_code == 422
