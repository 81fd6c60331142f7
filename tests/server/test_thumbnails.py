"""Stored thumbnails are served without the file of the video; without them, a frame is decoded."""

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import untrimmed
from tests.media import constant_stamps, read_clock
from tests.media import write_clip as write_clock
from untrimmed.search.store.records import THUMBNAILS
from untrimmed.search.store.thumbnails import thumbnails_file
from untrimmed.server.app import create_app


@pytest.fixture
def clock(toy, tmp_path):
    """A library of one video of 260 s whose frames show their number, and its service."""
    write_clock(tmp_path / "clock.mp4", constant_stamps(520, 2.0), rate=2)
    lib = untrimmed.open(tmp_path / "library")
    lib.index(tmp_path / "clock.mp4")
    return lib


@pytest.fixture
def service(clock):
    with TestClient(create_app(clock), base_url="http://localhost:8765") as client:
        yield client


@pytest.fixture
def url(clock):
    return f"/api/videos/{clock.videos()[0].video_id}"


def picture(answer):
    return Image.open(io.BytesIO(answer.content)).convert("RGB")


def shown(image):
    """The number of the frame that a picture of the clock shows."""
    return read_clock(np.asarray(image))


def test_the_nearest_picture_is_served_without_the_file_of_the_video(service, url, tmp_path):
    (tmp_path / "clock.mp4").unlink()  # as on a drive that is not connected
    for time_s in (0.0, 0.4, 7.6, 100.0, 259.5, 300.0):
        answer = service.get(f"{url}/thumbnail", params={"time_s": time_s})
        assert answer.headers["content-type"] == "image/webp"
        assert abs(shown(picture(answer)) / 2 - min(time_s, 259.5)) <= 0.5


def test_an_overview_shows_the_middle_of_equal_parts_of_the_video(service, url, tmp_path):
    (tmp_path / "clock.mp4").unlink()
    answer = service.get(f"{url}/thumbnails/overview", params={"pictures": 13})
    image = picture(answer)
    width, height = image.width // 10, image.height // 2
    cells = [(cell % 10 * width, cell // 10 * height) for cell in range(13)]
    times_s = [shown(image.crop((x, y, x + width, y + height))) / 2 for x, y in cells]
    assert [abs(time_s - (part + 0.5) * 20) <= 0.5 for part, time_s in enumerate(times_s)] == [True] * 13
    again = {"if-none-match": answer.headers["etag"]}
    assert service.get(f"{url}/thumbnails/overview", params={"pictures": 13}, headers=again).status_code == 304
    for number in (0, 101):
        assert service.get(f"{url}/thumbnails/overview", params={"pictures": number}).status_code == 422


def test_a_picture_of_a_moment_comes_from_inside_the_moment(service, url, tmp_path):
    def answer(**values):
        return service.get(f"{url}/thumbnail", params={"time_s": 7.5, "end_s": 9.0, **values})

    starts = (7.0, 7.25)
    assert [shown(picture(answer(start_s=start_s))) / 2 for start_s in starts] == [7.0, 8.0]
    assert len({answer(start_s=start_s).headers["etag"] for start_s in starts}) == 2
    assert answer(start_s=-1).status_code == 422
    short = {"start_s": 7.25, "end_s": 7.75}  # no picture is stored for this moment
    assert shown(picture(answer(**short))) / 2 == 7.5
    (tmp_path / "clock.mp4").unlink()
    fallback = answer(**short)
    assert abs(shown(picture(fallback)) / 2 - 7.5) == 0.5  # the nearest stored picture is better than none
    assert fallback.headers["cache-control"] == "no-store", "the frame is decoded again when the file is back"


def test_without_stored_pictures_the_frame_is_decoded(service, url, clock):
    shutil.rmtree(clock.folder / THUMBNAILS)
    answer = service.get(f"{url}/thumbnail", params={"time_s": 7.6})
    assert answer.headers["content-type"] == "image/jpeg"
    assert shown(picture(answer)) == 15
    assert service.get(f"{url}/thumbnails").json()["times_s"] == []
    for name in ("0", "overview"):
        assert service.get(f"{url}/thumbnails/{name}").status_code == 404


def test_a_time_without_a_picture_near_it_is_decoded(toy, tmp_path):
    write_clock(tmp_path / "clock.mp4", constant_stamps(20, 2.0), rate=2)
    lib = untrimmed.open(tmp_path / "library")
    lib.index(tmp_path / "clock.mp4", fps=0.25)  # pictures at 0, 4 and 8 s
    with TestClient(create_app(lib), base_url="http://localhost:8765") as client:
        url = f"/api/videos/{lib.videos()[0].video_id}/thumbnail"
        kinds = {time_s: client.get(url, params={"time_s": time_s}).headers["content-type"] for time_s in (4.4, 6.0)}
        assert kinds == {4.4: "image/webp", 6.0: "image/jpeg"}
        assert shown(picture(client.get(url, params={"time_s": 6.0}))) == 12


def test_a_damaged_file_counts_as_no_pictures(service, url, clock):
    file = thumbnails_file(clock.folder, clock.videos()[0].content_hash)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    answers = [service.get(f"{url}/thumbnail", params={"time_s": time_s}) for time_s in range(0, 260, 10)]
    assert "image/jpeg" in {answer.headers["content-type"] for answer in answers}
    assert all(abs(shown(picture(answer)) - 20 * number) <= 1 for number, answer in enumerate(answers))
    assert {service.get(f"{url}/thumbnails/{number}").status_code for number in range(3)} >= {404}


def test_sheets_contain_all_pictures_in_order(service, url):
    facts = service.get(f"{url}/thumbnails").json()
    assert facts["times_s"] == [*map(float, range(260)), 259.5]
    cells = []
    for number in range(3):
        answer = service.get(f"{url}/thumbnails/{number}")
        assert answer.headers["content-type"] == "image/webp"
        image = picture(answer)
        assert image.width == 10 * facts["width"]
        for top in range(0, image.height, facts["height"]):
            for left in range(0, image.width, facts["width"]):
                cells.append(image.crop((left, top, left + facts["width"], top + facts["height"])))
    assert [image.height // facts["height"] for image in [picture(answer)]] == [7]
    assert [shown(cell) for cell in cells[:261]] == [round(2 * time_s) for time_s in facts["times_s"]]
    assert service.get(f"{url}/thumbnails/3").status_code == 404


def test_a_picture_with_its_version_is_cached_for_good_and_others_are_asked_for_again(service, url):
    version = service.get(f"{url}/thumbnails").json()["version"]
    for path in ("thumbnail?time_s=3&", "thumbnails/0?"):
        fixed = service.get(f"{url}/{path}version={version}").headers
        assert "immutable" in fixed["cache-control"]
        for other in ("", "version=0123456789abcdef"):
            headers = service.get(f"{url}/{path}{other}").headers
            assert "immutable" not in headers["cache-control"]
            assert headers["etag"] == fixed["etag"]
        again = service.get(f"{url}/{path}", headers={"if-none-match": fixed["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_the_version_changes_with_the_content(service, url, clock, tmp_path):
    before = service.get(f"{url}/thumbnails").json()
    write_clock(tmp_path / "clock.mp4", constant_stamps(6, 2.0), rate=2)
    clock.index(tmp_path / "clock.mp4")
    after = service.get(f"{url}/thumbnails").json()
    assert after["times_s"] == [0.0, 1.0, 2.0, 2.5]
    assert after["version"] != before["version"]
    assert shown(picture(service.get(f"{url}/thumbnail", params={"time_s": 100}))) == 5


def test_pictures_of_another_sampling_are_served_after_indexing_again(service, url, clock, tmp_path):
    before = service.get(f"{url}/thumbnails").json()
    clock.index(tmp_path / "clock.mp4", fps=0.1)
    after = service.get(f"{url}/thumbnails").json()
    assert after["times_s"] == [*map(float, range(0, 260, 10))]
    assert after["version"] != before["version"]


@pytest.mark.parametrize("query", ["time_s=-1", "time_s=nan", "time_s=1e9", "version=" + "a" * 65])
def test_invalid_requests_are_refused(service, url, query):
    assert service.get(f"{url}/thumbnail?{query}").status_code == 422


@pytest.mark.parametrize("number", ["-1", "1.5", "x", "9" * 30])
def test_invalid_sheets_are_refused(service, url, number):
    assert service.get(f"{url}/thumbnails/{number}").status_code == 422


def test_few_files_stay_open(service, url, monkeypatch, clock):
    monkeypatch.setattr("untrimmed.search.store.thumbnails._OPEN_FILES", 2)
    files = service.app.state.service.thumbnails
    record = clock.videos()[0]
    for digest in "abcd":
        shutil.copy(thumbnails_file(clock.folder, record.content_hash), thumbnails_file(clock.folder, digest))
        assert files.of(replace(record, content_hash=digest)) is not None
        assert len(files._open) <= 2
