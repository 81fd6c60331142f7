"""Bins over HTTP: two open pages never overwrite each other unnoticed."""

import shutil

import pytest
from starlette.testclient import TestClient

import untrimmed
from untrimmed.server.app import create_app


@pytest.fixture
def client(toy, world, tmp_path):
    shutil.copytree(world / "library", tmp_path / "library")
    with TestClient(create_app(untrimmed.open(tmp_path / "library")), base_url="http://localhost:8765") as client:
        yield client


def moment(video_id, start_s=0.5, end_s=1.5, **fields):
    return {"video_id": video_id, "start_s": start_s, "end_s": end_s, **fields}


def test_a_bin_is_made_read_changed_renamed_and_deleted(client, ids):
    moments = [moment(ids["flag.mp4"], note="open", sentence="red"), moment(ids["sea [1].mp4"], 0.0, 2.25)]
    made = client.post("/api/bins", json={"name": "Trailer", "moments": moments})
    assert made.status_code == 201
    made = made.json()
    assert [(one["video"].rpartition("/")[2], one["note"], one["sentence"]) for one in made["moments"]] == [
        ("flag.mp4", "open", "red"),
        ("sea [1].mp4", "", ""),
    ]
    assert (made["num_moments"], made["duration_s"]) == (2, 3.25)
    assert not any(one["is_missing"] for one in made["moments"])
    address = f"/api/bins/{made['bin_id']}"
    assert client.get(address).json() == made
    summary = {key: value for key, value in made.items() if key != "moments"}
    assert client.get("/api/bins").json() == {"bins": [summary], "problems": []}
    changed = client.put(address, json={"name": "Reel", "moments": moments[::-1], "version": made["version"]}).json()
    assert (changed["name"], [one["start_s"] for one in changed["moments"]]) == ("Reel", [0.0, 0.5])
    assert client.get(address).json() == changed
    assert client.delete(address, params={"version": changed["version"]}).json() == {"bins": [], "problems": []}
    assert client.get(address).status_code == 404


def test_a_change_of_an_old_version_is_refused(client, ids):
    made = client.post("/api/bins", json={"name": "Trailer", "moments": []}).json()
    address = f"/api/bins/{made['bin_id']}"
    change = {"name": "Trailer", "moments": [moment(ids["flag.mp4"])], "version": made["version"]}
    kept = client.put(address, json=change).json()
    for answer in (
        client.put(address, json={**change, "moments": []}),
        client.delete(address, params={"version": made["version"]}),
    ):
        assert answer.status_code == 412
        assert answer.json()["error"] == "StaleVersionError"
    assert client.get(address).json() == kept


def test_a_removed_video_is_marked_until_its_file_is_indexed_again(client, ids, world):
    library = client.app.state.service.library
    made = client.post("/api/bins", json={"name": "Trailer", "moments": [moment(ids["flag.mp4"], note="x")]}).json()
    address = f"/api/bins/{made['bin_id']}"
    path = world / "videos" / "flag.mp4"
    library.remove([path])
    missing = client.get(address).json()
    assert missing["moments"] == [{**made["moments"][0], "is_missing": True}]
    # a page that sends back what it has read loses neither the moment nor its path
    moments = [
        {key: one[key] for key in ("video_id", "video", "start_s", "end_s", "note", "sentence")}
        for one in missing["moments"]
    ]
    again = client.put(address, json={"name": "Trailer", "moments": moments, "version": missing["version"]}).json()
    assert again["moments"] == missing["moments"]
    library.index([path])
    restored = client.get(address).json()["moments"][0]
    assert (restored["is_missing"], restored["video"]) == (False, str(path))
    assert client.get(f"/api/videos/{restored['video_id']}").json()["video"] == str(path)


def test_invalid_bins_are_refused(client, ids):
    client.post("/api/bins", json={"name": "Trailer", "moments": []})
    video_id = ids["flag.mp4"]
    for name, moments, status in [
        ("Trailer", [], 409),
        ("", [], 422),
        ("a\nb", [], 422),
        ("a" * 101, [], 422),
        ("odd", [moment(video_id, 2.0, 2.0)], 422),
        ("odd", [moment(video_id, -1.0, 2.0)], 422),
        ("odd", [moment("../../etc/passwd")], 422),
        ("odd", [moment(video_id)] * 501, 422),
        ("odd", [moment(video_id, note="x" * 501)], 422),
    ]:
        assert client.post("/api/bins", json={"name": name, "moments": moments}).status_code == status, name
    assert client.get("/api/bins/../../library").status_code == 404
    assert client.get("/api/bins/0123456789abcdef").status_code == 404
    assert [bin["name"] for bin in client.get("/api/bins").json()["bins"]] == ["Trailer"]


def test_a_damaged_bin_is_listed_as_a_problem(client):
    made = client.post("/api/bins", json={"name": "Trailer", "moments": []}).json()
    file = client.app.state.service.library.folder / "bins" / f"{made['bin_id']}.json"
    file.write_text(file.read_text().replace("Trailer", "Trailor"))
    answer = client.get("/api/bins").json()
    assert (answer["bins"], len(answer["problems"])) == ([], 1)
    assert str(file) in answer["problems"][0]
    assert client.get(f"/api/bins/{made['bin_id']}").status_code == 409
