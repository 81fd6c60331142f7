"""A library in a bucket: everything that is done with one in a folder, against a server of moto's in this process."""

import itertools
import shutil
import threading
import uuid
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import untrimmed
from tests.cli.conftest import typed  # noqa: F401  # a fixture
from tests.refusals import refused
from tests.search.corpora.test_updates import LIBRARY, features_of
from tests.toy import stored_video
from untrimmed.errors import ConfigError, UntrimmedError
from untrimmed.search.store import lance as lance_table
from untrimmed.search.store.records import library_folder
from untrimmed.search.store.table import VideoIndex
from untrimmed.server import service as service_module
from untrimmed.server.app import create_app

moto_server = pytest.importorskip("moto.server")
boto3 = pytest.importorskip("boto3")


@pytest.fixture(scope="session")
def endpoint():
    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"films-{uuid.uuid4().hex[:8]}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=name)
    return name


def found(lib, sentence="something green"):
    return [(hit.video.name, round(hit.score, 5), len(hit.moments)) for hit in lib.search(sentence, limit=9, moments=2)]


def test_a_library_in_a_bucket_does_all_that_one_in_a_folder_does(bucket, lib, videos, tmp_path, monkeypatch):
    address = f"s3://{bucket}/archive/films"
    there = untrimmed.open(address)
    own = tmp_path / "own"
    shutil.copytree(videos, own)
    assert len(there.index(own / "flag.mp4").done) == 1
    there.index(own)
    names = {f"{name}.mp4" for name in ("flag", "sun", "wood", "sea # 1")}
    assert {record.path.rpartition("/")[2] for record in there.videos()} == names
    wanted = found(lib)
    assert found(there) == wanted
    assert found(untrimmed.open(address)) == wanted, "from the local cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    elsewhere = untrimmed.open(address)
    assert found(elsewhere) == wanted, "from the bucket"
    there.remove([own / "wood.mp4"])
    assert {name for name, *_ in found(elsewhere)} == names - {"wood.mp4"}, "a commit of another machine is seen"
    assert not (elsewhere.folder / "videos.lance").exists()


def test_a_page_of_pictures_looks_for_commits_once_and_sees_what_a_search_has_found(
    bucket, encoder, videos, monkeypatch
):
    monkeypatch.setattr(service_module, "_BUCKET_CHECK_S", 3600.0)
    looks, look = [], service_module.newest_commit
    monkeypatch.setattr(service_module, "newest_commit", lambda folder: looks.append(folder) or look(folder))
    address = f"s3://{bucket}/films"
    untrimmed.open(address).index(videos / "flag.mp4")
    app = create_app(untrimmed.open(address))
    with TestClient(app, base_url="http://localhost:8765") as client:
        service = app.state.service
        (flag,) = service.records()
        assert {service.record(flag.video_id) for _ in range(20)} == {flag}
        assert len(looks) == 1
        untrimmed.open(address).index(videos / "sun.mp4")
        assert len(service.records()) == 1, "nobody has looked since"
        (sun,) = client.post("/api/search", json={"text": "yellow", "limit": 1}).json()["hits"]
        assert client.get(f"/api/videos/{sun['video_id']}").json()["video"] == str(videos / "sun.mp4")
        assert len(looks) == 2


def test_a_library_that_is_made_anew_in_a_bucket_is_seen(bucket, encoder, videos, endpoint):
    address = f"s3://{bucket}/films"
    reader = untrimmed.open(address)
    untrimmed.open(address).index(videos / "flag.mp4")
    assert [name for name, *_ in found(reader)] == ["flag.mp4"]
    objects = boto3.resource("s3", endpoint_url=endpoint, region_name="us-east-1").Bucket(bucket).objects
    objects.all().delete()
    with refused(UntrimmedError, address, "untrimmed index"):
        untrimmed.open(address).videos()
    untrimmed.open(address).index(videos / "sun.mp4")
    assert [name for name, *_ in found(reader)] == ["sun.mp4"], "of the same version as the one before"


def test_commands_take_the_address(bucket, encoder, videos, typed, tmp_path):  # noqa: F811
    place = ["--library", f"s3://{bucket}/films"]
    assert typed("index", videos, *place)[0] == 0
    code, out, _ = typed("search", "green", *place)
    assert (code, "wood.mp4" in out) == (0, True)
    assert typed("rm", videos / "wood.mp4", *place)[0] == 0
    assert "wood.mp4" not in typed("ls", *place)[1]
    assert f"library   s3://{bucket}/films" in typed("status", *place)[1]
    assert typed("index", videos / "wood.mp4", "--library", tmp_path / "part")[0] == 0
    assert f"videos in s3://{bucket}/films: 1 copied" in typed("merge", place[1], tmp_path / "part")[1]
    code, _, error = typed("ls", "--library", f"s3://no-{bucket}/films")
    assert code == 2
    (line,) = error.splitlines()
    assert line.startswith(f"untrimmed: s3://no-{bucket}/films: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"bucket": "no-such-bucket"},
            ("s3://no-such-bucket/films",),
        ),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, ("AWS_ENDPOINT_URL",)),
        (
            {"AWS_ACCESS_KEY_ID": None},
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ),
    ],
)
@pytest.mark.parametrize("what", ["index", "search"])
def test_what_is_wrong_with_a_bucket_is_one_line(bucket, encoder, videos, monkeypatch, change, message, what):
    bucket = change.get("bucket", bucket)
    for name, value in change.items():
        if name.startswith("AWS"):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    if "AWS_ACCESS_KEY_ID" in change:  # nor anywhere else
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    lib = untrimmed.open(f"s3://{bucket}/films")
    with refused(UntrimmedError, *message) as error:
        lib.index(videos / "sun.mp4") if what == "index" else lib.search("red")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("address", ["s3://films", "s3://", "s3:///x"])
def test_an_address_names_bucket_and_library(address, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with refused(ConfigError, "s3://BUCKET/NAME"):
        library_folder(address)


def test_parts_are_folders(bucket, encoder, videos):
    with pytest.raises(ConfigError):
        untrimmed.open(f"s3://{bucket}/films").index(videos, part="1/2")


def test_a_second_writer_on_this_machine_is_refused_and_searches_go_on(bucket, encoder, videos):
    lib = untrimmed.open(f"s3://{bucket}/films")
    lib.index(videos)
    before = found(lib)
    with VideoIndex(lib.folder):
        refusals = []

        def write():
            try:
                untrimmed.open(f"s3://{bucket}/films").index(videos)
            except UntrimmedError as error:
                refusals.append(str(error))

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        assert found(untrimmed.open(f"s3://{bucket}/films")) == before
    assert refusals[0].startswith(f"s3://{bucket}/films: ")


@pytest.fixture
def machines(bucket, monkeypatch, tmp_path):
    """Two that write to one library; of the second, what the first does once it has read what there is."""
    folders = []
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        folders.append(library_folder(f"s3://{bucket}/films"))
    assert folders[0] != folders[1]
    one, two = (VideoIndex(folder, create=True) for folder in folders)
    for index in (one, two):
        index.write_settings(LIBRARY)
    open_table, meanwhile = VideoIndex._open_table, []

    def opened(index):
        table = open_table(index)
        if index is two and meanwhile:
            meanwhile.pop()()
        return table

    monkeypatch.setattr(VideoIndex, "_open_table", opened)
    return one, two, meanwhile


def test_two_machines_may_make_a_library_at_once(machines, monkeypatch):
    one, two, meanwhile = machines
    meanwhile.append(lambda: one.put(stored_video("of one", features_of(0))))
    two.put(stored_video("of two", features_of(1)))
    one.put(stored_video("later", features_of(2)))
    for index in (one, two):
        assert {record.video_id for record in index.scan()} == {"of one", "of two", "later"}


def test_a_first_commit_that_fails_says_why(machines, monkeypatch):
    def full(*_, **__):
        raise OSError("no room")

    monkeypatch.setattr(lance_table.lance.LanceDataset, "commit", full)
    with pytest.raises(UntrimmedError, match="no room"):
        machines[0].put(stored_video("v", features_of(0)))


STEPS = {
    "adds": lambda index, own: index.put(stored_video(f"{own} new", features_of(1))),
    "replaces": lambda index, own: index.put(stored_video(f"{own} 0", features_of(2), indexed_at=2.0)),
    "removes": lambda index, own: index.remove([f"{own} 1"]),
    "moves": lambda index, own: index.relocate(
        index.get(f"{own} 2").record, path=Path(f"/moved/{own}"), size=1, mtime_ns=1
    ),
    "compacts": lambda index, own: index.compact(),
}


@pytest.mark.check
def test_nothing_is_lost_where_two_machines_write_at_once(machines):
    """The second has read the library when the first commits, and then commits what it has begun."""
    one, two, meanwhile = machines
    wanted = set()
    for number, (first, second) in enumerate(itertools.product(STEPS, STEPS)):
        places = {own: f"{own} {number}" for own in ("one", "two")}
        for own in places.values():
            two.put_all([stored_video(f"{own} {place}", features_of(place)) for place in range(4)])
        meanwhile.append(lambda first=first, own=places["one"]: STEPS[first](one, own))
        STEPS[second](two, places["two"])
        found = {record.video_id: record for record in one.scan()}
        for own, step in zip(places.values(), (first, second), strict=True):
            wanted |= {f"{own} {place}" for place in range(4) if (place, step) != (1, "removes")}
            wanted |= {f"{own} new"} if step == "adds" else set()
            assert found[f"{own} 0"].indexed_at == (2.0 if step == "replaces" else 1.0), (first, second)
            assert (found[f"{own} 2"].path == f"/moved/{own}") == (step == "moves"), (first, second)
        assert found.keys() == wanted, (first, second)
    assert len(list(two.read(sorted(wanted)))) == len(wanted)


def test_a_commit_that_others_always_come_before_is_one_line(machines, monkeypatch):
    one, _, _ = machines
    one.put(stored_video("v", features_of(0)))

    def conflict(*_, **__):
        raise OSError("Retryable commit conflict for version 9: preempted by concurrent transaction. Please retry.")

    monkeypatch.setattr(lance_table.lance.LanceDataset, "insert", conflict)
    with pytest.raises(UntrimmedError):
        one.put(stored_video("w", features_of(1)))
