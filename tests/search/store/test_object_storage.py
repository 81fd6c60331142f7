"""A library in a bucket does what one in a folder does. A moto server in this process has the bucket."""

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


def search_results(lib, sentence="something green"):
    return [(hit.video.name, round(hit.score, 5), len(hit.moments)) for hit in lib.search(sentence, limit=9, moments=2)]


def test_a_library_in_a_bucket_works_like_one_in_a_folder(bucket, lib, videos, tmp_path, monkeypatch):
    address = f"s3://{bucket}/archive/films"
    in_bucket = untrimmed.open(address)
    clips = tmp_path / "own"
    shutil.copytree(videos, clips)
    assert len(in_bucket.index(clips / "flag.mp4").done) == 1
    in_bucket.index(clips)
    names = {f"{name}.mp4" for name in ("flag", "sun", "wood", "sea # 1")}
    assert {record.path.rpartition("/")[2] for record in in_bucket.videos()} == names
    expected = search_results(lib)
    assert search_results(in_bucket) == expected
    assert search_results(untrimmed.open(address)) == expected, "from the local cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    elsewhere = untrimmed.open(address)
    assert search_results(elsewhere) == expected, "from the bucket"
    in_bucket.remove([clips / "wood.mp4"])
    assert {name for name, *_ in search_results(elsewhere)} == names - {"wood.mp4"}, "the commit is seen"
    assert not (elsewhere.folder / "videos.lance").exists()


def test_the_service_checks_a_bucket_for_commits_once_per_interval_and_after_searches(
    bucket, encoder, videos, monkeypatch
):
    monkeypatch.setattr(service_module, "_BUCKET_CHECK_S", 3600.0)
    checks, check = [], service_module.newest_commit
    monkeypatch.setattr(service_module, "newest_commit", lambda folder: checks.append(folder) or check(folder))
    address = f"s3://{bucket}/films"
    untrimmed.open(address).index(videos / "flag.mp4")
    app = create_app(untrimmed.open(address))
    with TestClient(app, base_url="http://localhost:8765") as client:
        service = app.state.service
        (flag,) = service.records()
        assert {service.record(flag.video_id) for _ in range(20)} == {flag}
        assert len(checks) == 1
        untrimmed.open(address).index(videos / "sun.mp4")
        assert len(service.records()) == 1, "no check since then"
        (sun,) = client.post("/api/search", json={"text": "yellow", "limit": 1}).json()["hits"]
        assert client.get(f"/api/videos/{sun['video_id']}").json()["video"] == str(videos / "sun.mp4")
        assert len(checks) == 2


def test_a_library_that_is_created_again_in_a_bucket_is_noticed(bucket, encoder, videos, endpoint):
    address = f"s3://{bucket}/films"
    reader = untrimmed.open(address)
    untrimmed.open(address).index(videos / "flag.mp4")
    assert [name for name, *_ in search_results(reader)] == ["flag.mp4"]
    objects = boto3.resource("s3", endpoint_url=endpoint, region_name="us-east-1").Bucket(bucket).objects
    objects.all().delete()
    with refused(UntrimmedError, address, "untrimmed index"):
        untrimmed.open(address).videos()
    untrimmed.open(address).index(videos / "sun.mp4")
    assert [name for name, *_ in search_results(reader)] == ["sun.mp4"], "the new library has the same version number"


def test_commands_accept_an_address(bucket, encoder, videos, typed, tmp_path):  # noqa: F811
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
def test_problems_with_a_bucket_are_reported_in_one_line(bucket, encoder, videos, monkeypatch, change, message, what):
    bucket = change.get("bucket", bucket)
    for name, value in change.items():
        if name.startswith("AWS"):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    if "AWS_ACCESS_KEY_ID" in change:  # no other source of credentials either
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    lib = untrimmed.open(f"s3://{bucket}/films")
    with refused(UntrimmedError, *message) as error:
        lib.index(videos / "sun.mp4") if what == "index" else lib.search("red")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("address", ["s3://films", "s3://", "s3:///x"])
def test_an_address_without_bucket_or_name_is_refused(address, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with refused(ConfigError, "s3://BUCKET/NAME"):
        library_folder(address)


def test_a_part_of_a_library_in_a_bucket_is_refused(bucket, encoder, videos):
    with pytest.raises(ConfigError):
        untrimmed.open(f"s3://{bucket}/films").index(videos, part="1/2")


def test_a_second_writer_on_this_machine_is_refused_and_searches_continue(bucket, encoder, videos):
    lib = untrimmed.open(f"s3://{bucket}/films")
    lib.index(videos)
    previous = search_results(lib)
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
        assert search_results(untrimmed.open(f"s3://{bucket}/films")) == previous
    assert refusals[0].startswith(f"s3://{bucket}/films: ")


@pytest.fixture
def machines(bucket, monkeypatch, tmp_path):
    """Two machines that write to one library, and a list of what the first does after the second has read the table."""
    folders = []
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        folders.append(library_folder(f"s3://{bucket}/films"))
    assert folders[0] != folders[1]
    first_machine, second_machine = (VideoIndex(folder, create=True) for folder in folders)
    for index in (first_machine, second_machine):
        index.write_settings(LIBRARY)
    open_table, meanwhile = VideoIndex._open_table, []

    def opened(index):
        table = open_table(index)
        if index is second_machine and meanwhile:
            meanwhile.pop()()
        return table

    monkeypatch.setattr(VideoIndex, "_open_table", opened)
    return first_machine, second_machine, meanwhile


def test_two_machines_can_create_a_library_at_once(machines, monkeypatch):
    first_machine, second_machine, meanwhile = machines
    meanwhile.append(lambda: first_machine.put(stored_video("of one", features_of(0))))
    second_machine.put(stored_video("of two", features_of(1)))
    first_machine.put(stored_video("later", features_of(2)))
    for index in (first_machine, second_machine):
        assert {record.video_id for record in index.scan()} == {"of one", "of two", "later"}


def test_a_failed_first_commit_reports_the_reason(machines, monkeypatch):
    def full(*_, **__):
        raise OSError("no room")

    monkeypatch.setattr(lance_table.lance.LanceDataset, "commit", full)
    with pytest.raises(UntrimmedError, match="no room"):
        machines[0].put(stored_video("v", features_of(0)))


STEPS = {
    "adds": lambda index, prefix: index.put(stored_video(f"{prefix} new", features_of(1))),
    "replaces": lambda index, prefix: index.put(stored_video(f"{prefix} 0", features_of(2), indexed_at=2.0)),
    "removes": lambda index, prefix: index.remove([f"{prefix} 1"]),
    "moves": lambda index, prefix: index.relocate(
        index.get(f"{prefix} 2").record, path=Path(f"/moved/{prefix}"), size=1, mtime_ns=1
    ),
    "compacts": lambda index, prefix: index.compact(),
}


@pytest.mark.check
def test_two_machines_that_write_at_once_lose_nothing(machines):
    """The second machine has read the library when the first commits, and then commits its own change."""
    first_machine, second_machine, meanwhile = machines
    expected = set()
    for number, (first, second) in enumerate(itertools.product(STEPS, STEPS)):
        places = {prefix: f"{prefix} {number}" for prefix in ("one", "two")}
        for prefix in places.values():
            second_machine.put_all([stored_video(f"{prefix} {place}", features_of(place)) for place in range(4)])
        meanwhile.append(lambda first=first, prefix=places["one"]: STEPS[first](first_machine, prefix))
        STEPS[second](second_machine, places["two"])
        actual = {record.video_id: record for record in first_machine.scan()}
        for prefix, step in zip(places.values(), (first, second), strict=True):
            expected |= {f"{prefix} {place}" for place in range(4) if (place, step) != (1, "removes")}
            expected |= {f"{prefix} new"} if step == "adds" else set()
            assert actual[f"{prefix} 0"].indexed_at == (2.0 if step == "replaces" else 1.0), (first, second)
            assert (actual[f"{prefix} 2"].path == f"/moved/{prefix}") == (step == "moves"), (first, second)
        assert actual.keys() == expected, (first, second)
    assert len(list(second_machine.read(sorted(expected)))) == len(expected)


def test_a_commit_that_always_conflicts_is_refused(machines, monkeypatch):
    first_machine, _, _ = machines
    first_machine.put(stored_video("v", features_of(0)))

    def conflict(*_, **__):
        raise OSError("Retryable commit conflict for version 9: preempted by concurrent transaction. Please retry.")

    monkeypatch.setattr(lance_table.lance.LanceDataset, "insert", conflict)
    with pytest.raises(UntrimmedError):
        first_machine.put(stored_video("w", features_of(1)))
