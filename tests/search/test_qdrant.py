"""Candidates from Qdrant, exact answers here: the client's local mode, or the server at $UNTRIMMED_QDRANT."""

import os
import uuid

import numpy as np
import pytest

import untrimmed
from tests.search.same_hits import check_same_hits, hits_of
from tests.search.test_index import SETTINGS
from tests.search.test_trained import save_run
from tests.toy import stored_video
from untrimmed.errors import UntrimmedError
from untrimmed.search import qdrant as qdrant_module
from untrimmed.search.engine import Engine
from untrimmed.search.index import VideoIndex
from untrimmed.search.qdrant import QdrantEngine
from untrimmed.types import FrameFeatures, TextFeatures

qdrant_client = pytest.importorskip("qdrant_client", reason="untrimmed[qdrant] is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]


@pytest.fixture
def client():
    address = os.environ.get("UNTRIMMED_QDRANT")
    opened = qdrant_client.QdrantClient(url=address) if address else qdrant_client.QdrantClient(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def collection(client):
    """A name of its own on a server that others use, too."""
    name = f"untrimmed-{uuid.uuid4().hex[:8]}"
    yield name
    client.delete_collection(name)


@pytest.fixture
def there(lib, client, collection):
    """The library once more, whose candidates come from the collection."""
    opened = untrimmed.open(lib.folder)
    opened.engine = QdrantEngine(lib.folder, client, collection)
    return opened


def test_hits_are_those_of_a_search_here_whatever_is_committed(lib, there, videos, tmp_path):
    check_same_hits(there, lib, videos, tmp_path)


@pytest.mark.parametrize("method", ["gmmformer_v2", "ms_sl", "gmmformer_v2+ral", "tf_prvr"])
def test_hits_are_those_of_the_model_in_use(lib, there, tmp_path, method):
    assert hits_of(there) == hits_of(lib)
    lib.use("tf_prvr" if method == "tf_prvr" else save_run(tmp_path / "run", method))
    assert hits_of(there) == hits_of(lib)


def test_a_video_that_is_longer_than_a_point_may_be_is_several(lib, there, client, collection, monkeypatch):
    monkeypatch.setattr(qdrant_module, "MOST_NUMBERS", 12)  # three frames of width 4
    assert hits_of(there) == hits_of(lib)
    points, _ = client.scroll(collection, limit=100, with_vectors=True)
    sizes = [np.size(point.vector["frames"]) for point in points if point.vector]
    assert max(sizes) <= 12
    assert len(sizes) > len(lib.videos())


@pytest.fixture
def many(tmp_path):
    """A library of 200 videos of random frames."""
    rng = np.random.default_rng(0)
    with VideoIndex(tmp_path / "many", create=True) as index:
        index.write_settings(SETTINGS)
        videos = []
        for number in range(200):
            frames = rng.standard_normal((int(rng.integers(1, 9)), 6)).astype(np.float16)
            frames /= np.linalg.norm(frames, axis=1, keepdims=True)
            features = FrameFeatures(frames, np.arange(len(frames)) / 2.0, len(frames) / 2)
            videos.append(stored_video(f"{number:04d}", features))
        index.put_all(videos)
    return tmp_path / "many"


def test_few_videos_are_read_and_more_where_candidates_do_not_settle_it(many, client, collection, monkeypatch):
    here, there = Engine(many).view(), QdrantEngine(many, client, collection).view()
    read = []
    own = VideoIndex.read

    def noting(index, video_ids):
        read.append(len(video_ids))
        return own(index, video_ids)

    rng = np.random.default_rng(1)
    here_corpus, there_corpus = here.windows(), there.windows()
    monkeypatch.setattr(VideoIndex, "read", noting)
    for first in (1, 8, 64):
        monkeypatch.setattr(qdrant_module, "_FIRST_TAKE", first)
        read.clear()
        for _ in range(10):
            sentence = rng.standard_normal(6).astype(np.float32)
            query = TextFeatures("", sentence / np.linalg.norm(sentence), np.empty((0, 1), np.float32), ())
            wanted = here_corpus.prepare(query).rank(limit=3)
            prepared = there_corpus.prepare(query)
            assert prepared.rank(limit=3) == wanted
            video_id = wanted[0].video_id
            assert prepared.moments(video_id, limit=2) == here_corpus.prepare(query).moments(video_id, limit=2)
        assert sum(read) < 10 * 200, "all videos were read each time"


def test_a_server_that_is_not_there_is_told_in_one_line(lib):
    away = qdrant_client.QdrantClient(url="http://127.0.0.1:1", check_compatibility=False)
    lib.engine = QdrantEngine(lib.folder, away, "films")
    with pytest.raises(UntrimmedError, match="collection films: the Qdrant server does not do it"):
        lib.search("red")
    away.close()
