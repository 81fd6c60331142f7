"""Users with the token choose folders below the roots of the service, index them and remove them again."""

import errno
import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import untrimmed
from tests.server.test_jobs import wait
from tests.toy import write_clip
from untrimmed.server import browsing
from untrimmed.server.access import Access
from untrimmed.server.app import create_app
from untrimmed.server.stored_folders import CHOSEN, write_folders


@pytest.fixture
def home(tmp_path):
    """A root with folders of videos, hidden folders and links, and a folder outside."""
    home = tmp_path / "home"
    for folder in ("Films/old", ".hidden/inner", "Empty", "Films/.cache"):
        (home / folder).mkdir(parents=True)
    write_clip(home / "Films" / "red.mp4", ["red"])
    write_clip(home / "Films" / "old" / "blue.mp4", ["blue"])
    (home / "Films" / "notes.txt").write_text("no video")
    (home / ".hidden" / "secret.mp4").write_bytes(b"")
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (home / "way out").symlink_to(tmp_path / "outside")
    (home / "way to hidden").symlink_to(home / ".hidden")
    (home / "Shortcut").symlink_to(home / "Films" / "old")
    return home


@pytest.fixture
def client(toy, home, tmp_path):
    """A client with the token."""
    access = Access()
    app = create_app(untrimmed.open(tmp_path / "library"), roots=(home,), access=access)
    with TestClient(app, base_url="http://localhost:8765") as client:
        client.headers["authorization"] = f"Bearer {access.own_token}"
        yield client


def names(listing):
    return [folder["name"] for folder in listing["folders"]]


def test_the_folders_of_the_only_root_are_listed_with_their_videos(client, home):
    listing = client.get("/api/browse").json()
    assert (listing["folder"]["path"], listing["folder"]["num_videos"]) == (str(home), 3)
    assert listing["parents"] == []
    counts = {folder["path"]: (folder["num_videos"], folder["is_complete"]) for folder in listing["folders"]}
    # the link is listed as the folder that it leads to
    assert counts == {
        str(home / "Empty"): (0, True),
        str(home / "Films"): (2, True),
        str(home / "Films/old"): (1, True),
    }
    films = listing["folders"][1]
    inner = client.get(f"/api/browse/{films['folder_id']}").json()
    assert [parent["path"] for parent in inner["parents"]] == [str(home)]
    assert (names(inner), inner["folder"]["num_videos"]) == (["old"], 2)


def test_several_roots_are_listed(toy, home, tmp_path):
    access = Access()
    roots = (home / "Films", home / "Empty", tmp_path / "unplugged")
    app = create_app(untrimmed.open(tmp_path / "library"), roots=roots, access=access)
    with TestClient(app, base_url="http://localhost:8765") as client:
        listing = client.get("/api/browse", headers={"authorization": f"Bearer {access.own_token}"}).json()
    assert (listing["folder"], names(listing)) == (None, ["Films", "Empty"])


def test_a_service_without_roots_offers_no_folders(toy, tmp_path):
    access = Access()
    with TestClient(create_app(untrimmed.open(tmp_path), access=access), base_url="http://localhost:8765") as client:
        answer = client.get("/api/browse", headers={"authorization": f"Bearer {access.own_token}"})
    assert (answer.status_code, "--videos" in answer.json()["detail"]) == (409, True)


ROUTES = [
    ("GET", "/api/browse", None), ("GET", "/api/browse/{}", None), ("POST", "/api/browse/find", {"name": "Films"}),
    ("DELETE", "/api/folders/{}", None),
]  # fmt: skip


@pytest.mark.parametrize(("method", "route", "body"), ROUTES)
def test_without_the_token_folders_are_not_listed_found_or_removed(client, home, method, route, body):
    folder_id = client.get("/api/browse").json()["folders"][1]["folder_id"]
    del client.headers["authorization"]
    answer = client.request(method, route.format(folder_id), json=body)
    assert answer.status_code == 403
    assert str(home) not in answer.text


def test_without_the_token_a_listed_folder_cannot_be_indexed_or_watched(client, home):
    body = {"folder_ids": [client.get("/api/browse").json()["folders"][1]["folder_id"]]}
    token = client.headers.pop("authorization")
    assert [client.post(f"/api/{route}", json=body).status_code for route in ("jobs", "watches")] == [404, 404]
    client.headers["authorization"] = token
    assert client.post("/api/jobs", json=body).status_code == 202


@pytest.mark.parametrize("place", ["", "..", "../outside", ".hidden", ".hidden/inner", "way out", "way to hidden"])
def test_ids_of_folders_that_are_not_listed_are_unknown(client, home, place):
    client.get("/api/browse")
    for path in {home / place, (home / place).resolve()} - {home}:
        folder_id = browsing.folder_id_of(path)
        assert client.get(f"/api/browse/{folder_id}").status_code == 404
        assert client.post("/api/jobs", json={"folder_ids": [folder_id]}).status_code == 404


@pytest.mark.parametrize("folder_id", ["..", "%2e%2e", "/etc", "0123456789abcdeg", "0123456789abcdef0"])
def test_paths_are_not_ids(client, folder_id):
    assert client.get(f"/api/browse/{quote(folder_id, safe='')}").status_code in (404, 422)
    assert client.post("/api/jobs", json={"folder_ids": [folder_id]}).status_code == 422


def test_a_folder_that_becomes_a_link_out_is_refused(client, home, tmp_path):
    empty = client.get("/api/browse").json()["folders"][0]
    (home / "Empty").rmdir()
    (home / "Empty").symlink_to(tmp_path / "outside")
    assert client.get(f"/api/browse/{empty['folder_id']}").status_code == 404
    assert client.post("/api/jobs", json={"folder_ids": [empty["folder_id"]]}).status_code == 404
    assert "Empty" not in names(client.get("/api/browse").json())


def test_an_unreadable_folder_is_reported(client, home, monkeypatch):
    empty = client.get("/api/browse").json()["folders"][0]
    scandir = os.scandir

    def refuse(path="."):  # root could read the folder in spite of its mode
        if Path(path) == home / "Empty":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    answer = client.get(f"/api/browse/{empty['folder_id']}")
    assert (answer.status_code, str(home / "Empty") in answer.json()["detail"]) == (409, True)


@pytest.fixture
def disk(home, monkeypatch):
    """The folder `Films`, and a link to it, on a network disk that does not answer until the event is set."""
    answers = threading.Event()
    (home / "Link").symlink_to(home / "Films")
    lstat = os.lstat

    def wait_for_disk(path, **options):
        if not answers.is_set() and (home / "Films") in (Path(path), *Path(path).parents):
            answers.wait(30)
        return lstat(path, **options)

    monkeypatch.setattr(os, "lstat", wait_for_disk)
    yield answers
    answers.set()


def test_a_folder_that_does_not_answer_holds_up_no_other(client, home, disk):
    start = time.monotonic()
    listing = client.get("/api/browse").json()
    silent = {folder["path"]: folder["is_silent"] for folder in listing["folders"]}
    links = [str(home / "Link"), str(home / "Shortcut")]  # they lead to it
    assert silent == {str(home / "Empty"): False, str(home / "Films"): True, **dict.fromkeys(links, True)}
    films = next(folder for folder in listing["folders"] if folder["name"] == "Films")
    refusals = [client.get(f"/api/browse/{films['folder_id']}") for _ in range(10)]
    refusals.append(client.post("/api/jobs", json={"folder_ids": [films["folder_id"]]}))
    assert {(answer.status_code, "did not answer" in answer.json()["detail"]) for answer in refusals} == {(503, True)}
    assert client.post("/api/browse/find", json={"name": "Empty"}).json()[0]["path"] == str(home / "Empty")
    assert time.monotonic() - start < 15
    disk.set()
    time.sleep(0.1)
    assert client.get(f"/api/browse/{films['folder_id']}").json()["folder"]["num_videos"] == 2


def test_counting_stops_after_a_while(client, home, monkeypatch):
    monkeypatch.setattr(browsing, "_COUNT_ALL_S", 0.0)
    listing = client.get("/api/browse").json()
    assert {(folder["num_videos"], folder["is_complete"]) for folder in listing["folders"]} == {(None, False)}
    assert listing["folder"]["is_complete"] is False


def test_long_lists_are_cut(client, home, monkeypatch):
    monkeypatch.setattr(browsing, "_MAX_LISTED", 2)
    listing = client.get("/api/browse").json()
    assert (names(listing), listing["num_omitted"]) == (["Empty", "Films"], 1)


def test_ids_are_forgotten_if_there_are_too_many(client, monkeypatch):
    folders = client.get("/api/browse").json()["folders"]
    monkeypatch.setattr(browsing, "_MAX_KNOWN", 2)
    client.get("/api/browse")
    statuses = [client.post("/api/jobs", json={"folder_ids": [one["folder_id"]]}).status_code for one in folders]
    assert statuses == [404, 404, 202]


@pytest.mark.parametrize(
    ("name", "places"),
    [("Films", ["Films"]), ("blue.mp4", ["Films/old"]), ("notes.txt", []), ("secret.mp4", []), ("inner", [])],
)
def test_a_dropped_name_is_found(client, home, name, places):
    found = client.post("/api/browse/find", json={"name": name}).json()
    assert [folder["path"] for folder in found] == [str(home / place) for place in places]
    for folder in found:
        assert client.get(f"/api/browse/{folder['folder_id']}").status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_not_text_is_escaped(client, home):
    (home / os.fsdecode(b"b\xff")).mkdir()
    folder = client.get("/api/browse").json()["folders"][0]
    assert folder["name"] == "b\\udcff"
    assert client.get(f"/api/browse/{folder['folder_id']}").status_code == 200


def test_a_chosen_folder_is_indexed_listed_and_removed_again(client, home):
    films = client.get("/api/browse").json()["folders"][1]["folder_id"]
    job_id = client.post("/api/jobs", json={"folder_ids": [films]}).json()["job_id"]
    job = wait(client, job_id, "done")
    assert (job["num_done"], job["remaining_s"]) == (2, None)
    assert job["video_s"] == pytest.approx(4, abs=0.1)
    client.post("/api/watches", json={"folder_ids": [films]})
    folders = client.get("/api/folders").json()
    assert [(folder["path"], folder["num_videos"]) for folder in folders] == [(str(home / "Films"), 2)]
    for job in client.get("/api/jobs").json():
        wait(client, job["job_id"], "done")
    assert client.delete(f"/api/folders/{films}").json() == {"num_removed": 2}
    assert [client.get(f"/api/{route}").json() for route in ("folders", "watches")] == [[], []]
    assert client.get("/api/videos").json()["total"] == 0
    assert (home / "Films" / "red.mp4").exists()
    assert client.delete(f"/api/folders/{films}").status_code == 404


def test_a_chosen_folder_is_still_listed_after_a_restart_until_it_is_removed(client, home, tmp_path):
    (home / "Films" / "red.mp4").rename(home / "Films" / "old" / "red.mp4")
    films = client.get("/api/browse").json()["folders"][1]["folder_id"]
    wait(client, client.post("/api/jobs", json={"folder_ids": [films]}).json()["job_id"], "done")
    access = Access()

    def restarted(root=home):
        app = create_app(untrimmed.open(tmp_path / "library"), access=access, roots=(root,))
        headers = {"authorization": f"Bearer {access.own_token}"}
        return TestClient(app, base_url="http://localhost:8765", headers=headers)

    with restarted() as second:
        folders = second.get("/api/folders").json()
        assert [(folder["folder_id"], folder["path"]) for folder in folders] == [(films, str(home / "Films"))]
        assert second.delete(f"/api/folders/{films}").json() == {"num_removed": 2}
    with restarted() as third:
        assert third.get("/api/folders").json() == []


def test_a_chosen_folder_is_not_listed_if_it_may_no_longer_be_chosen(client, home, tmp_path):
    (home / "Films" / "old" / "empty").mkdir()
    write_folders(tmp_path / "library", CHOSEN, [home / "Films" / "old" / "empty"])
    for root, is_listed in ((home, True), (tmp_path / "other", False)):
        app = create_app(untrimmed.open(tmp_path / "library"), roots=(root,))
        with TestClient(app, base_url="http://localhost:8765") as restarted:
            assert bool(restarted.get("/api/folders").json()) == is_listed


def test_a_folder_is_not_removed_while_videos_are_indexed(client, monkeypatch):
    films = client.get("/api/browse").json()["folders"][1]["folder_id"]
    job_id = client.post("/api/jobs", json={"folder_ids": [films]}).json()["job_id"]
    wait(client, job_id, "done")
    monkeypatch.setattr(type(client.app.state.service.jobs), "num_open", 1)
    assert client.delete(f"/api/folders/{films}").status_code == 409
    assert client.get("/api/videos").json()["total"] == 2
