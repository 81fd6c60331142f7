"""Index and search on a real Ray cluster on this machine; workers and shards are killed."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import untrimmed
from tests.refusals import refused, require_named
from tests.search.same_hits import SENTENCES, check_same_hits, hits_of
from tests.search.store.test_merge import contents
from tests.toy import WideWordEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import ConfigError, UntrimmedError
from untrimmed.search import library as library_module
from untrimmed.search.store.records import THUMBNAILS

ray = pytest.importorskip("ray", reason="untrimmed[ray] is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray does not close all sockets and files

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def cluster():
    """A cluster for the tests of this file; its workers can import the tests."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "300")  # a busy machine needs more than Ray's 30 s
        ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
        yield "auto"
        ray.shutdown()


class FatalEncoder(WideWordEncoder):
    """Kills its process at the first frames, but only once. A file records that it has happened."""

    def __init__(self, fuse):
        super().__init__()
        self.fuse = Path(fuse)

    def encode_frames(self, frames):
        if not self.fuse.exists():
            self.fuse.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_frames(frames)


@pytest.fixture
def fuse(monkeypatch, tmp_path):
    """The file that exists after an encoder has killed its worker."""
    path = tmp_path / "fuse"

    def load(name=None, **_):
        return LoadedEncoder(FatalEncoder(path), None)

    monkeypatch.setattr(library_module, "load_encoder", load)
    return path


def thumbnails_of(library):
    return {file.name: file.read_bytes() for file in (library / THUMBNAILS).iterdir()}


@pytest.mark.slow
def test_indexing_on_a_cluster_gives_the_same_library_after_a_worker_is_killed(
    cluster, videos, indexed, fuse, tmp_path
):
    shutil.copytree(videos, tmp_path / "clips")
    (tmp_path / "clips" / "broken.mp4").write_bytes(b"no video at all")
    shutil.copy(videos / "sun.mp4", tmp_path / "clips" / "twin.mp4")
    lib = untrimmed.open(tmp_path / "library")
    report = lib.index(tmp_path / "clips", ray=cluster)
    assert fuse.exists(), "no worker was killed"
    assert [failure.path.name for failure in report.failed] == ["broken.mp4"]
    assert len(report.done) == 4
    assert {path.name for path in report.skipped} < {"sun.mp4", "twin.mp4"}
    assert report.timings.encode_s > 0
    untrimmed.open(tmp_path / "alone").index(tmp_path / "clips")
    assert contents(tmp_path / "library") == contents(tmp_path / "alone")
    assert thumbnails_of(tmp_path / "library") == thumbnails_of(tmp_path / "alone")
    assert len(lib.index(tmp_path / "clips", ray=cluster).skipped) == 5


@pytest.mark.slow
def test_shards_answer_like_one_process_and_a_killed_one_restarts(cluster, lib, videos, tmp_path):
    sharded = untrimmed.open(lib.folder, ray=cluster, shards=3)
    check_same_hits(sharded, lib, videos, tmp_path)
    sharded.engine._shards._answer_s = 300.0  # on a busy machine a new process may take longer than a search waits
    kill(sharded, 1)
    again = [sharded.search(text, limit=3, moments=2) for text in SENTENCES]
    assert [list(hits) for hits in again] == hits_of(lib), "the shard has restarted"
    assert not any(hits.partial for hits in again)


@pytest.mark.slow
def test_without_a_shard_the_result_is_partial(cluster, lib):
    sharded = untrimmed.open(lib.folder, ray=cluster, shards=2)
    complete = sharded.search("red", limit=9)
    assert len(complete) == 4
    shards = sharded.engine._shards
    shards._answer_s = 2.0
    ray.kill(shards.actors[0][0], no_restart=True)
    actual = sharded.search("red", limit=9)
    assert actual.partial
    require_named(*actual.warnings, "1", "2")
    assert set(actual) < set(complete)
    ray.kill(shards.actors[1][0], no_restart=True)
    with refused(UntrimmedError, "2"):
        sharded.search("red")


@pytest.mark.slow
def test_a_replica_replaces_a_dead_one(cluster, lib):
    sharded = untrimmed.open(lib.folder, ray=cluster, shards=1, replicas=2)
    assert hits_of(sharded) == hits_of(lib)
    sharded.engine._shards._answer_s = 300.0
    ray.kill(sharded.engine._shards.actors[0][0], no_restart=True)
    again = [sharded.search(text, limit=3, moments=2) for text in SENTENCES]
    assert [list(hits) for hits in again] == hits_of(lib)
    assert not any(hits.partial for hits in again)


def kill(sharded, number):
    ray.kill(sharded.engine._shards.actors[number][0], no_restart=False)


@pytest.mark.slow
def test_more_shards_than_the_cluster_has_cores_are_refused(cluster, lib):
    with refused(ConfigError, "9", "2", "4"):
        untrimmed.open(lib.folder, ray=cluster, shards=9, replicas=2)


def test_shards_without_a_cluster_are_refused(lib):
    with pytest.raises(ConfigError):
        untrimmed.open(lib.folder, shards=2)
